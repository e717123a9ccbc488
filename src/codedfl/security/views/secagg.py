"""Views of ``secagg`` and ``one-shot``: masked words, which say nothing of one device, and the sums that are opened.

Both are shown to the attacks as the replies that the views of the inner scheme are made of.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt

from codedfl.cipher.seals.fixed_point import FixedPoint
from codedfl.cipher.seals.rings import Z_64, Ring
from codedfl.cipher.seals.triangles import unpack_upper
from codedfl.schemes.aggregated.device import proper_form, proper_request
from codedfl.schemes.aggregated.one_shot import OneShot
from codedfl.schemes.aggregated.server import MaskedSum, Threshold
from codedfl.schemes.contract import Scheme
from codedfl.schemes.messages import Message, Work
from codedfl.schemes.sharing.sealed import Sealed
from codedfl.security.transcript import Exposure, RecordedReply, Transcript
from codedfl.security.views.kinds import MaskedRepliesView, RepliesView, SummedRepliesView
from codedfl.security.views.registry import build_exposures
from codedfl.security.views.residues import as_seen, sealed_exposures, sealed_pair
from codedfl.task import Shard


def secagg_exposures(scheme: Any, transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return every view of the inner scheme with masked replies in place of replies, and the sums that are opened."""
    masked = _masked(scheme.inner, transcript, shards)
    return [*masked, *_summed(scheme.inner, scheme.threshold, transcript, shards)]


def one_shot_exposures(scheme: OneShot, transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return two devices' masked matrices as the server sees them, and the sum that it opens."""
    form = scheme.formats.gram
    masked = {entry.device: entry.reply["gram"] for entry in transcript.replies if "envelopes" in entry.request}
    words = [as_seen(form.ring, unpack_upper(masked[device])) for device in (0, 1)]
    survivors, opened = _replayed(transcript, scheme.threshold, form.ring)
    share = shards[0].samples / sum(shards[device].samples for device in survivors)
    total = share * unpack_upper(form.decode_sum(opened["gram"]))
    view = SummedRepliesView(np.eye(len(total))[None], total[None])
    return [
        *sealed_exposures(form, words[0], 0, shards[0].gram),
        sealed_pair(form, (words[0], shards[0].gram), (words[1], shards[1].gram)),
        Exposure(view, 0, shards[0].gram),
    ]


def _masked(inner: Scheme[Any], transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return the views of the inner scheme with the masked replies of one device, as the server reads them."""
    proper = [entry for entry in transcript.replies if not {"asked", "keys", "survivors"} & set(entry.request)]
    device = Transcript(proper).series()[0][0].device
    read = [_as_read(entry) for entry in proper if entry.device == device]
    found = build_exposures(inner, Transcript(read, transcript.parcels), shards)
    return [_as_kind(exposure, MaskedRepliesView) if not exposure.assumption else exposure for exposure in found]


def _summed(
    inner: Scheme[Any], threshold: Threshold, transcript: Transcript, shards: Sequence[Shard]
) -> list[Exposure]:
    """Return the same with the sums that the server opens, scaled to the first device's share of the data points."""
    if isinstance(inner, Sealed):
        return [_sealed_sums(inner, transcript, shards)]
    points = [shard.samples for shard in shards]
    asked = []
    for epoch, survivors, request, form, total in _opened_sums(threshold, transcript):
        share = points[0] / sum(points[device] for device in survivors)
        scaled = {name: np.asarray(share * form.decode_sum(part)) for name, part in total.items()}
        asked.append(RecordedReply(0, epoch, frozenset({0}), request, scaled))
    found = build_exposures(inner, Transcript(asked, []), shards)
    return [_as_kind(exposure, SummedRepliesView) for exposure in found]


def _sealed_sums(inner: Sealed, transcript: Transcript, shards: Sequence[Shard]) -> Exposure:
    """Return a sum whose pads the server has subtracted: the product of the model with all data as rounded."""
    form = inner.formats.gram
    asked = {entry.epoch: entry for entry in transcript.replies if entry.epoch > 1 and "model" in entry.request}
    models = np.stack([as_seen(form.ring, entry.request["model"]).T for entry in asked.values()])
    rounded = np.sum([as_seen(form.ring, form.encode(shard.gram)) for shard in shards], axis=0) * form.data_step
    share = shards[0].samples / sum(shard.samples for shard in shards)
    return Exposure(SummedRepliesView(models, np.asarray(share * rounded @ models)), 0, shards[0].gram)


def _opened_sums(
    threshold: Threshold, transcript: Transcript
) -> Iterator[tuple[int, tuple[int, ...], Message, FixedPoint, Mapping[str, UInt[np.ndarray, "..."]]]]:
    """Open the sums of numbers in a transcript; yield epoch, survivors, inner request, number format and sum."""
    for epoch in sorted({entry.epoch for entry in transcript.replies}):
        told = Transcript([entry for entry in transcript.replies if entry.epoch == epoch])
        masked = _of_question(told, "envelopes")
        one = masked[min(masked)].request
        form = proper_form(one, len(masked))
        if form is not None:
            survivors, opened = _replayed(told, threshold, Z_64)
            yield epoch, survivors, proper_request(one), form, opened


def _replayed(
    transcript: Transcript, threshold: Threshold, ring: Ring
) -> tuple[tuple[int, ...], Mapping[str, UInt[np.ndarray, "..."]]]:
    """Open the only sum of a transcript as the server does; return its survivors and the sum."""
    keys, envelopes, masked, shares = (
        _of_question(transcript, name) for name in ("asked", "keys", "envelopes", "survivors")
    )
    total = MaskedSum(
        transcript.replies[0].epoch, {device: {} for device in keys}, threshold, ring, awaited=0, needed=0
    )
    for answered in (keys, envelopes, {device: masked[device] for device in shares}):
        total.follow_up({device: entry.reply for device, entry in answered.items()})
    return total.survivors, total.opened({device: entry.reply for device, entry in shares.items()}, Work())


def _of_question(transcript: Transcript, name: str) -> dict[int, RecordedReply]:
    return {entry.device: entry for entry in transcript.replies if name in entry.request}


def _as_read(entry: RecordedReply) -> RecordedReply:
    """Return a masked reply as signed numbers in the steps of the question; residues stay as they are."""
    form = proper_form(entry.request, 1)
    reply = entry.reply
    if form is not None:
        reply = {name: np.ldexp(Z_64.centred(part).astype(np.float64), -form.data_bits) for name, part in reply.items()}
    return dataclasses.replace(entry, request=proper_request(entry.request), reply=reply)


def _as_kind(exposure: Exposure, kind: type[RepliesView]) -> Exposure:
    view = exposure.view
    if not isinstance(view, RepliesView):
        return exposure
    return dataclasses.replace(exposure, view=kind(view.models, view.replies))
