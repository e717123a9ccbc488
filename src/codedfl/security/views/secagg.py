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
from codedfl.security.views.kinds import UNSTEADY, CohortsView, MaskedRepliesView, RepliesView, SummedRepliesView
from codedfl.security.views.registry import build_exposures
from codedfl.security.views.residues import as_seen, everyone, rounded, sealed_exposures, sealed_pair, total_of
from codedfl.task import Shard


def secagg_exposures(scheme: Any, transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return every view of the inner scheme with masked replies in place of replies, and the sums that are opened."""
    masked = _masked(scheme.inner, transcript, shards)
    opened = list(_opened_sums(scheme.threshold, transcript))
    summed = _summed(scheme.inner, transcript, opened, shards)
    helped = [with_helpers(exposure, scheme.threshold, shards) for exposure in summed]
    return [*masked, *summed, *helped, *_cohorts(scheme.inner, opened, shards)]


def one_shot_exposures(scheme: OneShot, transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return all devices' masked matrices as the server sees them, and the sum that it opens."""
    form = scheme.formats.gram
    masked = {entry.device: entry.reply["gram"] for entry in transcript.replies if "envelopes" in entry.request}
    words = {device: as_seen(form.ring, unpack_upper(each)) for device, each in sorted(masked.items())}
    survivors, opened = _replayed(transcript, scheme.threshold, form.ring)
    total = unpack_upper(form.decode_sum(opened["gram"]))
    parts = {device: shards[device].gram for device in survivors}
    view = SummedRepliesView(np.eye(len(total))[None], total[None])
    summed = Exposure(view, None, total_of(parts), parts=parts)
    found = [e for device, each in words.items() for e in sealed_exposures(form, each, device, shards[device].gram)]
    pair = sealed_pair(form, (words[0], shards[0].gram), (words[1], shards[1].gram))
    sent = [dataclasses.replace(exposure, adversary="server") for exposure in (*found, pair)]
    return [*sent, summed, with_helpers(summed, scheme.threshold, shards)]


def with_helpers(summed: Exposure, threshold: Threshold, shards: Sequence[Shard]) -> Exposure:
    """Return the sum over the devices that are left when as many as the threshold allows give theirs to the server."""
    helpers = sorted(summed.parts)[: threshold.of(len(shards)) - 1]
    view, parts = summed.view, {device: part for device, part in summed.parts.items() if device not in helpers}
    assert isinstance(view, SummedRepliesView)  # noqa: S101 - for mypy
    own = np.sum([summed.parts[device] for device in helpers], axis=0, dtype=np.float64)
    rest = dataclasses.replace(view, replies=np.asarray(view.replies - own @ view.models))
    words = f"{len(helpers)} of {len(shards)} devices help the server"
    return Exposure(rest, None, summed.gram - own, assumption=words, parts=parts, adversary="server and devices")


def _masked(inner: Scheme[Any], transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return the views of the inner scheme with the masked replies of all devices, as the server reads them."""
    proper = [entry for entry in transcript.replies if not {"asked", "keys", "survivors"} & set(entry.request)]
    read = [_as_read(entry) for entry in proper]
    found = build_exposures(inner, Transcript(read, transcript.parcels), shards)
    return [_as_kind(exposure, MaskedRepliesView) for exposure in found]


def _summed(
    inner: Scheme[Any], transcript: Transcript, opened: Sequence["OpenedSum"], shards: Sequence[Shard]
) -> list[Exposure]:
    """Return the same with the sums that the server opens; where devices are missing, scaled to all data points."""
    if isinstance(inner, Sealed):
        return [_sealed_sums(inner, transcript, shards)]
    points = [shard.samples for shard in shards]
    asked = []
    for epoch, survivors, request, form, total in opened:
        scale = sum(points) / sum(points[device] for device in survivors)
        scaled = {name: np.asarray(scale * form.decode_sum(part)) for name, part in total.items()}
        asked += [RecordedReply(device, epoch, frozenset({device}), request, scaled) for device in range(len(shards))]
    parts = {
        exposure.subject: exposure
        for exposure in build_exposures(inner, Transcript(asked, []), shards)
        if isinstance(exposure.view, RepliesView) and exposure.subject is not None
    }
    view = next(iter(parts.values())).view
    assert isinstance(view, RepliesView)  # noqa: S101 - they were chosen so
    steady = len({survivors for _, survivors, *_ in opened}) == 1
    unit = float(np.finfo(shards[0].x.dtype).eps) / 2 if steady else UNSTEADY
    grams = {device: exposure.gram for device, exposure in parts.items()}
    return [Exposure(SummedRepliesView(view.models, view.replies, unit), None, total_of(grams), parts=grams)]


def _sealed_sums(inner: Sealed, transcript: Transcript, shards: Sequence[Shard]) -> Exposure:
    """Return a sum whose pads the server has subtracted: the product of the model with all data as rounded."""
    form = inner.formats.gram
    asked = {entry.epoch: entry for entry in transcript.replies if entry.epoch > 1 and "model" in entry.request}
    models = np.stack([as_seen(form.ring, entry.request["model"]).T for entry in asked.values()])
    total = np.sum([rounded(form, shard.gram) for shard in shards], axis=0)
    return everyone(SummedRepliesView(models, np.asarray(total @ models)), shards)


WHOLE = ("conventional", "drop-slowest", "deadline")
"""Schemes whose replies are the gradients of all data of a device."""


def _cohorts(inner: Scheme[Any], opened: Sequence["OpenedSum"], shards: Sequence[Shard]) -> Iterator[Exposure]:
    """Yield the sums of gradients and whose they are; the truth are the gradients at the last model."""
    if inner.name not in WHOLE or len(opened) < 2:
        return
    models = np.stack([request["model"] for _, _, request, _, _ in opened]).astype(np.float64)
    sums = np.stack([form.decode_sum(total["gradient"]) for _, _, _, form, total in opened])
    cohorts = np.array([[device in survivors for device in range(len(shards))] for _, survivors, *_ in opened])
    points = np.array([shard.samples for shard in shards])
    parts = {d: shard.gram.astype(np.float64) @ models[-1] - shard.moments for d, shard in enumerate(shards)}
    total = np.sum(list(parts.values()), axis=0)
    yield Exposure(CohortsView(models, sums, cohorts, points), None, total, parts=parts)


OpenedSum = tuple[int, tuple[int, ...], Message, FixedPoint, Mapping[str, UInt[np.ndarray, "..."]]]
"""Epoch, survivors, inner request, number format, and sum."""


def _opened_sums(threshold: Threshold, transcript: Transcript) -> Iterator[OpenedSum]:
    """Open the sums of numbers in a transcript."""
    for epoch in sorted({entry.epoch for entry in transcript.replies}):
        told = Transcript([entry for entry in transcript.replies if entry.epoch == epoch])
        masked = _of_question(told, "envelopes")
        if not masked:  # a single device was asked, without masks
            continue
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
