"""Views of ``coded-padded`` and ``sealed-coded``: padded parcels, and the sums that the server decodes."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from jaxtyping import Float, Int, UInt

from codedfl.cipher.seals.triangles import unpack_upper
from codedfl.schemes.coded.coded_padded import EVERYTHING, CodedPadded, split
from codedfl.schemes.coded.pairwise_masks import PairwiseMasks
from codedfl.schemes.coded.placing.block_layout import PIECE
from codedfl.schemes.coded.sealed_coded import SealedCoded
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
    total_of,
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
    sums = _sums(scheme, transcript)
    return [
        *found,
        sealed_pair(form, (words[0], shards[0].gram), (words[1], shards[1].gram)),
        everyone(sums, shards),
        *_pooled(scheme, transcript, sums, shards),
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


def _pooled(
    scheme: SealedCoded, transcript: Transcript, sums: SummedRepliesView, shards: Sequence[Shard]
) -> Iterable[Exposure]:
    """Yield what the server reads with one device, or half of them: rows of the others' matrices, or their sum."""
    form = scheme.formats.gram
    for helpers in ([0], list(range(len(shards) // 2))):
        words = f"{len(helpers)} of {len(shards)} devices help the server"
        others = [device for device in range(len(shards)) if device not in helpers]
        if scheme.options.masks:  # pieces tell no more than their sum: tests/security/views/test_pooled.py
            known = np.sum([rounded(form, shards[device].gram) for device in helpers], axis=0)
            view = SummedRepliesView(sums.models, sums.replies - np.asarray(known @ sums.models))
            seen = f"{words}: the sum over the others"
            parts = {device: shards[device].gram for device in others}
            yield Exposure(view, None, total_of(parts), assumption=seen, parts=parts, adversary="server and devices")
            continue
        rows = pooled_rows(scheme, helpers)
        for device in others:
            clear = pooled_view(scheme, transcript, device, helpers)
            seen, gram = (
                f"{words}: {len(rows)} rows and columns of each matrix",
                shards[device].gram[np.ix_(rows, rows)],
            )
            yield Exposure(clear, device, gram, assumption=seen, adversary="server and devices", columns=rows)


def pooled_rows(scheme: SealedCoded, helpers: Sequence[int]) -> Int[np.ndarray, "rows"]:
    """Return the rows of the bands that devices add up."""
    layout = scheme.layout
    return np.concatenate([layout.bands.rows_of(number) for each in helpers for number in layout.added_by(each)])


def pooled_view(
    scheme: SealedCoded,
    transcript: Transcript,
    sender: int,
    helpers: Sequence[int],
    masks: Mapping[int, PairwiseMasks] = MappingProxyType({}),
) -> ParcelView:
    """Return the rows and columns of a device's Gram matrix that devices read with the server, if no masks are left.

    Device a gets piece a of everybody's sealed data, and the server has the seeds of the seals: it opens the block of
    band a on the diagonal, and the blocks of its rows with the bands that belong to the piece. Helpers that tell their
    ``masks`` take off those that they share with the sender.
    """
    bands, form, ring = scheme.layout.bands, scheme.formats.gram, scheme.formats.ring
    grant, clear = _grants(transcript)[sender], np.zeros((scheme.public.features,) * 2)
    for entry in transcript.parcels:
        helper = int(entry.grant["target"])
        if entry.sender == sender and int(entry.parcel["kind"]) == PIECE and helper in helpers:
            number = int(entry.parcel["band"])
            chunk = number // bands.adders
            pieces, own = np.zeros(bands.chunk_size(chunk), ring.dtype), bands.within(number)  # pads are by chunk
            pieces[own] = ring.from_wire(entry.parcel["piece"])
            pad_of(ring, sender, grant, chunk).take_from(pieces)
            for known in masks.values():
                known.add_one(sender, pieces, chunk, ring)
            blocks, _ = bands.unpack(number, pieces[own])
            for other, block in blocks.items():
                clear[bands.band(number), bands.band(other)] = as_seen(form.ring, block)
                clear[bands.band(other), bands.band(number)] = as_seen(form.ring, block).T
    clear = bands.natural(clear)
    rows = pooled_rows(scheme, helpers)
    return ParcelView(steps(len(rows), form.data_step), clear[np.ix_(rows, rows)], 0, 0)


def _pieces(scheme: SealedCoded, transcript: Transcript, device: int) -> Float[np.ndarray, "d d"]:
    """Put together all pieces that a device sent; the one it kept for itself stays zero."""
    bands, ring = scheme.layout.bands, scheme.formats.ring
    words = np.zeros((scheme.public.features,) * 2)
    for entry in transcript.parcels:
        if entry.sender == device and int(entry.parcel["kind"]) == PIECE:
            number = int(entry.parcel["band"])
            blocks, _ = bands.unpack(number, ring.from_wire(entry.parcel["piece"]))
            for other, block in blocks.items():
                words[bands.band(number), bands.band(other)] = as_seen(ring, block)
                words[bands.band(other), bands.band(number)] = as_seen(ring, block).T
    return bands.natural(words)
