"""Views of ``coded-padded`` and ``sealed-coded``: padded parcels, and the sums that the server decodes."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float, UInt

from codedfl.cipher.seals.triangles import unpack_upper
from codedfl.schemes.coded.coded_padded import EVERYTHING, CodedPadded, split
from codedfl.schemes.coded.sealed_coded import SealedCoded
from codedfl.schemes.coded.sealed_coded_device import PIECE
from codedfl.schemes.messages import Message, Work
from codedfl.schemes.sharing.sealed import pad_of
from codedfl.security.transcript import Exposure, RecordedReply, Transcript
from codedfl.security.views.kinds import ParcelView, RepliesView, SummedRepliesView
from codedfl.security.views.residues import (
    as_seen,
    everyone,
    opened_parcel,
    rounded,
    sealed_exposures,
    sealed_pair,
    steps,
)
from codedfl.task import Shard


def coded_padded_exposures(scheme: CodedPadded, transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return the parcels of all devices, and what the server computes of replies and parcels."""
    form, ring = scheme.formats.gram, scheme.formats.ring
    grants = _grants(transcript)
    sums = _sums(scheme, transcript)
    best = _best_guess(scheme, sums.models, shards)
    if not grants:  # alpha = 1: the best guess is the truth
        return [best]

    def triangle(vector: UInt[np.ndarray, "size"]) -> Float[np.ndarray, "d d"]:
        return as_seen(ring, unpack_upper(split(vector, scheme.public.features, scheme.public.outputs)[0]))

    sent: dict[int, UInt[np.ndarray, "size"]] = {}
    for entry in transcript.parcels:
        sent.setdefault(entry.sender, ring.from_wire(entry.parcel["words"]))
    words = {device: triangle(vector) for device, vector in sorted(sent.items())}
    found = [e for device, each in words.items() for e in sealed_exposures(form, each, device, shards[device].gram)]
    found.append(sealed_pair(form, (words[0], shards[0].gram), (words[1], shards[1].gram)))
    found.append(everyone(sums, shards))
    found.append(dataclasses.replace(best, assumption="all coded replies together, at best"))
    clear = triangle(ring.subtract(sent[0], pad_of(ring, 0, grants[0], EVERYTHING).residues(sent[0].size)))
    opened = opened_parcel(form, clear, 0, shards[0].gram)
    found.append(opened)
    if scheme.options.relayed:
        words_of = "a server that reads the parcel it relays, and knows its pad"
        found.append(dataclasses.replace(opened, assumption=words_of, adversary="deviating server"))
    return found


def sealed_coded_exposures(scheme: SealedCoded, transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return the pieces that devices sealed and sent, the server's sums, and what it reads with devices' help."""
    form = scheme.formats.gram
    words = [_pieces(scheme, transcript, device) for device in range(len(shards))]
    found = [e for device, each in enumerate(words) for e in sealed_exposures(form, each, device, shards[device].gram)]
    return [
        *found,
        sealed_pair(form, (words[0], shards[0].gram), (words[1], shards[1].gram)),
        everyone(_sums(scheme, transcript), shards),
        *_pooled(scheme, transcript, shards),
    ]


def _grants(transcript: Transcript) -> dict[int, Message]:
    return {entry.sender: entry.grant for entry in transcript.parcels if "seed" in entry.grant}


def _sums(scheme: CodedPadded | SealedCoded, transcript: Transcript) -> SummedRepliesView:
    """Decode the replies as the server does: sums over all devices."""
    server, grants, ring = scheme.server(), _grants(transcript), scheme.formats.ring
    if grants:
        server.add_pads([grants[device] for device in range(scheme.public.devices)])
    epochs: dict[int, dict[int, RecordedReply]] = {}
    for entry in transcript.replies:
        if entry.epoch > 1:
            epochs.setdefault(entry.epoch, {})[entry.device] = entry
    models = [ring.from_wire(next(iter(entries.values())).request["model"]) for entries in epochs.values()]
    sums = [
        server.opened(model, {device: entry.reply for device, entry in entries.items()}, Work())
        for model, entries in zip(models, epochs.values(), strict=True)
    ]
    points, products = (np.stack([as_seen(ring, item).T for item in items]) for items in (models, sums))
    return SummedRepliesView(points, products * scheme.formats.gram.data_step)


def _best_guess(scheme: CodedPadded, models: Float[np.ndarray, "epochs d c"], shards: Sequence[Shard]) -> Exposure:
    """Return the most that all coded replies together tell of the device that they hide least.

    The best guess of device j is a sum of all data with weights w_j, so its error is a quadratic form in w_j of the
    products <A_i, A_k>, and one matrix of those finds the least hidden device.
    """
    rows = np.stack([shard.gram.ravel() for shard in shards])
    products = (rows @ rows.T).astype(np.float64)
    weights = np.array([scheme.code.visible(device) for device in range(len(shards))])
    missed = weights - np.eye(len(shards))
    squares = np.einsum("ij,jk,ik->i", missed, products, missed)
    device = int(np.argmin(squares / np.diag(products)))
    form = scheme.formats.gram
    guess = np.sum(
        [weight * rounded(form, shard.gram) for weight, shard in zip(weights[device], shards, strict=True)], 0
    )
    return Exposure(RepliesView(models, np.asarray(guess @ models)), device, shards[device].gram)


def _pooled(scheme: SealedCoded, transcript: Transcript, shards: Sequence[Shard]) -> Iterable[Exposure]:
    """Yield the rows of every other device's Gram matrix that one device, or half of them, read with the server.

    Device a gets piece a of everybody's sealed data, and the server has the seeds of the seals: it opens the block of
    band a on the diagonal, and the blocks of its rows with the bands that belong to the piece.
    """
    bands, grants, form = scheme.layout.bands, _grants(transcript), scheme.formats.gram

    def opened(sender: int, helpers: Sequence[int]) -> Float[np.ndarray, "d d"]:
        clear = np.zeros((scheme.public.features,) * 2)
        for entry in transcript.parcels:
            number = int(entry.grant["target"])
            if entry.sender == sender and int(entry.parcel["kind"]) == PIECE and number in helpers:
                piece = scheme.formats.ring.from_wire(entry.parcel["piece"])
                pad = pad_of(scheme.formats.ring, sender, grants[sender], number).residues(piece.size)
                blocks, _ = bands.unpack(number, scheme.formats.ring.subtract(piece, pad))
                for other, block in blocks.items():
                    clear[bands.band(number), bands.band(other)] = as_seen(form.ring, block)
                    clear[bands.band(other), bands.band(number)] = as_seen(form.ring, block).T
        return clear

    for helpers in ([0], list(range(len(shards) // 2))):
        rows = np.concatenate([np.arange(scheme.public.features)[bands.band(number)] for number in helpers])
        for device in [device for device in range(len(shards)) if device not in helpers]:
            clear = opened(device, helpers)[np.ix_(rows, rows)]
            view = ParcelView(steps(len(rows), form.data_step), clear, 0, 0)
            words = (
                f"{len(helpers)} of {len(shards)} devices help the server: {len(rows)} rows and columns of each matrix"
            )
            gram = shards[device].gram[np.ix_(rows, rows)]
            yield Exposure(view, device, gram, assumption=words, adversary="server and devices", columns=rows)


def _pieces(scheme: SealedCoded, transcript: Transcript, device: int) -> Float[np.ndarray, "d d"]:
    """Put together all pieces that a device sent; the one it kept for itself stays zero."""
    bands, ring = scheme.layout.bands, scheme.formats.ring
    words = np.zeros((scheme.public.features,) * 2)
    for entry in transcript.parcels:
        if entry.sender == device and int(entry.parcel["kind"]) == PIECE:
            number = int(entry.grant["target"])
            blocks, _ = bands.unpack(number, ring.from_wire(entry.parcel["piece"]))
            for other, block in blocks.items():
                words[bands.band(number), bands.band(other)] = as_seen(ring, block)
                words[bands.band(other), bands.band(number)] = as_seen(ring, block).T
    return words
