"""What the server sees of replies under masks: words that say nothing, and sums.

Both are put before the attacks as the replies that the inner scheme's own views are made of.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt

from codedfl.cipher.seals import Z_64, FixedPoint, Ring
from codedfl.schemes.aggregated.device import proper_form, proper_request
from codedfl.schemes.aggregated.server import MaskedSum, Threshold
from codedfl.schemes.contract import AddingScheme, Exposure, Message, Transcript, Work
from codedfl.schemes.sharing.sealed import Sealed
from codedfl.security.transcript import Asked
from codedfl.security.views.kinds import MaskedRepliesView, RepliesView, SummedRepliesView
from codedfl.security.views.sealed import as_seen
from codedfl.task import Shard

__all__ = ["masked_exposures", "opened_sums", "replayed", "summed_exposures"]


def masked_exposures(scheme: AddingScheme[Any], transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return the views of the inner scheme with masked replies in place of replies, as the server would read them."""
    replies = Transcript([entry for entry in transcript.asked if _is_reply(entry)], transcript.sent)
    device = replies.series()[0][0].device
    asked = [_as_read(entry) for entry in replies.asked if entry.device == device]
    found = scheme.exposures(Transcript(asked, transcript.sent), shards)
    return [_renamed(exposure, MaskedRepliesView) if not exposure.assumption else exposure for exposure in found]


def summed_exposures(
    scheme: AddingScheme[Any], threshold: Threshold, transcript: Transcript, shards: Sequence[Shard]
) -> list[Exposure]:
    """Return the same with the sums that the server opens, scaled to the first device's share of the data points."""
    if isinstance(scheme, Sealed):
        return [_sealed_sums(scheme, transcript, shards)]
    points = [shard.samples for shard in shards]
    asked = []
    for epoch, survivors, request, form, total in opened_sums(threshold, transcript):
        share = points[0] / sum(points[device] for device in survivors)
        scaled = {name: np.asarray(share * form.decode_sum(part)) for name, part in total.items()}
        asked.append(Asked(0, epoch, frozenset({0}), request, scaled))
    found = scheme.exposures(Transcript(asked, []), shards)
    return [_renamed(exposure, SummedRepliesView) for exposure in found]


def _sealed_sums(scheme: Sealed, transcript: Transcript, shards: Sequence[Shard]) -> Exposure:
    """Return what the server knows when it has taken all pads away from a sum: the product of all data as rounded."""
    form = scheme.formats.gram
    asked = {entry.epoch: entry for entry in transcript.asked if entry.epoch > 1 and "model" in entry.request}
    models = np.stack([as_seen(form.ring, entry.request["model"]).T for entry in asked.values()])
    rounded = np.sum([as_seen(form.ring, form.encode(shard.gram)) for shard in shards], axis=0) * form.data_step
    share = shards[0].samples / sum(shard.samples for shard in shards)
    return Exposure(SummedRepliesView(models, np.asarray(share * rounded @ models)), 0, shards[0].gram)


def opened_sums(
    threshold: Threshold, transcript: Transcript
) -> Iterator[tuple[int, tuple[int, ...], Message, FixedPoint, Mapping[str, UInt[np.ndarray, "..."]]]]:
    """Open the sums of numbers in a transcript: epoch, who is in it, the question proper, number format, sum."""
    for epoch in sorted({entry.epoch for entry in transcript.asked}):
        told = Transcript([entry for entry in transcript.asked if entry.epoch == epoch])
        masked = _of_question(told, "envelopes")
        one = masked[min(masked)].request
        form = proper_form(one, len(masked))
        if form is not None:
            survivors, opened = replayed(told, threshold, Z_64)
            yield epoch, survivors, proper_request(one), form, opened


def replayed(
    transcript: Transcript, threshold: Threshold, ring: Ring
) -> tuple[tuple[int, ...], Mapping[str, UInt[np.ndarray, "..."]]]:
    """Open the only sum of a transcript as the server does; return who is in it, and the sum."""
    keys, envelopes, masked, shares = (
        _of_question(transcript, name) for name in ("asked", "keys", "envelopes", "survivors")
    )
    total = MaskedSum(transcript.asked[0].epoch, {device: {} for device in keys}, threshold, ring, awaited=0, needed=0)
    for answered in (keys, envelopes, {device: masked[device] for device in shares}):
        total.follow_up({device: entry.reply for device, entry in answered.items()})
    return total.survivors, total.opened({device: entry.reply for device, entry in shares.items()}, Work())


def _of_question(transcript: Transcript, name: str) -> dict[int, Asked]:
    return {entry.device: entry for entry in transcript.asked if name in entry.request}


def _is_reply(entry: Asked) -> bool:
    return not any(name in entry.request for name in ("asked", "keys", "survivors"))


def _as_read(entry: Asked) -> Asked:
    """Return a masked reply as signed numbers in the steps of the question; residues stay what they are."""
    form = proper_form(entry.request, 1)
    reply = entry.reply
    if form is not None:
        reply = {name: np.ldexp(Z_64.centred(part).astype(np.float64), -form.data_bits) for name, part in reply.items()}
    return dataclasses.replace(entry, request=proper_request(entry.request), reply=reply)


def _renamed(exposure: Exposure, kind: type[RepliesView]) -> Exposure:
    view = exposure.view
    if not isinstance(view, RepliesView):
        return exposure
    return dataclasses.replace(exposure, view=kind(view.models, view.replies))
