"""Views of ``coded-padded`` and ``sealed-coded``: padded parcels, and the sums that the server decodes."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt

from codedfl.cipher.seals.triangles import unpack_upper
from codedfl.schemes.coded.coded_padded import EVERYTHING, CodedPadded, split
from codedfl.schemes.coded.sealed_coded import SealedCoded
from codedfl.schemes.coded.sealed_coded_device import PIECE
from codedfl.schemes.messages import Message, Work
from codedfl.schemes.sharing.sealed import pad_of
from codedfl.security.transcript import Exposure, RecordedReply, Transcript
from codedfl.security.views.kinds import ParcelView, RepliesView
from codedfl.security.views.residues import as_seen, from_models, sealed_exposures, sealed_pair
from codedfl.task import Shard


def coded_padded_exposures(scheme: CodedPadded, transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return the parcels of two devices, what the server computes of replies and parcels, and what models tell."""
    form, gram, ring = scheme.formats.gram, shards[0].gram, scheme.formats.ring
    grants = _grants(transcript)
    sums = _sums(scheme, transcript)
    guess = RepliesView(sums.models, _best_guess(scheme, shards) @ sums.models)
    found = [from_models(form, sums.models, 0, gram)]
    if not grants:  # alpha = 1: the best guess is the truth
        return [Exposure(guess, 0, gram), *found]

    def triangle(vector: UInt[np.ndarray, "size"]) -> Float[np.ndarray, "d d"]:
        return as_seen(ring, unpack_upper(split(vector, scheme.public.features, scheme.public.outputs)[0]))

    sent = [next(e.parcel["words"] for e in transcript.parcels if e.sender == device) for device in (0, 1)]
    vectors = [ring.from_wire(words) for words in sent]
    words = [triangle(vector) for vector in vectors]
    found += sealed_exposures(form, words[0], 0, gram)
    found.append(sealed_pair(form, (words[0], gram), (words[1], shards[1].gram)))
    found.append(Exposure(sums, 0, gram))
    found.append(Exposure(guess, 0, gram, assumption="all coded replies together, at best"))
    if scheme.options.relayed:
        pad = pad_of(ring, 0, grants[0], EVERYTHING).residues(vectors[0].size)
        clear = triangle(ring.subtract(vectors[0], pad))
        view = ParcelView(np.eye(len(clear)) / form.data_step, clear, 0, 0)
        found.append(Exposure(view, 0, gram, assumption="a server that reads the parcel it relays, and knows its pad"))
    return found


def sealed_coded_exposures(scheme: SealedCoded, transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return the pieces that two devices sealed and sent, the server's sums, and what models tell."""
    form = scheme.formats.gram
    words = [_pieces(scheme, transcript, device) for device in (0, 1)]
    sums = _sums(scheme, transcript)
    return [
        *sealed_exposures(form, words[0], 0, shards[0].gram),
        sealed_pair(form, (words[0], shards[0].gram), (words[1], shards[1].gram)),
        Exposure(sums, 0, shards[0].gram),
        from_models(form, sums.models, 0, shards[0].gram),
    ]


def _grants(transcript: Transcript) -> dict[int, Message]:
    return {entry.sender: entry.grant for entry in transcript.parcels if "seed" in entry.grant}


def _sums(scheme: CodedPadded | SealedCoded, transcript: Transcript) -> RepliesView:
    """Decode the replies as the server does: sums over all devices, scaled to the first one's share of the points."""
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
    share = scheme.public.samples[0] / sum(scheme.public.samples)
    points, products = (np.stack([as_seen(ring, item).T for item in items]) for items in (models, sums))
    return RepliesView(points, share * (products * scheme.formats.gram.data_step))


def _best_guess(scheme: CodedPadded, shards: Sequence[Shard]) -> Float[np.ndarray, "d d"]:
    """Return the most that all coded replies together tell of the first device's data, as rounded."""
    form, weights = scheme.formats.gram, scheme.code.visible(0)
    parts = (as_seen(form.ring, form.encode(shard.gram)) for shard in shards)
    return np.asarray(sum(weight * part for weight, part in zip(weights, parts, strict=True)) * form.data_step)


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
