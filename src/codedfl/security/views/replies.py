"""The server's view of the replies of one device."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from codedfl.errors import UsageError
from codedfl.schemes.contract import Scheme
from codedfl.schemes.messages import Work
from codedfl.schemes.plain.minibatch import Minibatch, batch_rows
from codedfl.security.transcript import Exposure, RecordedReply, Transcript
from codedfl.security.views.kinds import RepliesView
from codedfl.task import Shard, gram

Read = Callable[[RecordedReply], Float[np.ndarray, "d c"]]


def reply_series(
    entries: Sequence[RecordedReply], read: Read, *, at_zero: Float[np.ndarray, "d c"] | None = None
) -> RepliesView:
    """Return the models and the replies of one device, as the server reads them.

    Where a reply is A Theta - B, ``at_zero`` is the reply to the zero model, -B, which is subtracted.
    """
    models = np.stack([entry.request["model"] for entry in entries])
    replies = np.stack([read(entry) for entry in entries])
    return RepliesView(models, replies if at_zero is None else replies - at_zero)


def reply_exposures(scheme: Scheme[Any], transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return the server's view of one device whose replies are gradients of all its data.

    A reply that is one array of the model's shape is the gradient. Any other reply is read as the server reads it: its
    ``combine``, given this reply alone, returns the mean gradient over the device's data points.
    """
    series = transcript.series()
    if not series:
        return []
    device = series[0][0].device

    def read(entry: RecordedReply) -> Float[np.ndarray, "d c"]:
        arrays, model = list(entry.reply.values()), entry.request["model"]
        if len(arrays) == 1 and arrays[0].shape == model.shape and arrays[0].dtype.kind == "f":
            return arrays[0]
        try:
            mean = scheme.server().combine(entry.epoch, {device: entry.reply}, Work())
        except Exception as error:
            raise UsageError(
                f"the server of scheme '{scheme.name}' does not combine the reply of one device ({error!r}); tell with "
                "codedfl.security.views.registry.register_views what its parties see"
            ) from error
        return np.asarray(mean * shards[device].samples)

    view = reply_series(series[0], read, at_zero=read(transcript.first(device)))
    return [Exposure(view, device, shards[device].gram)]


def minibatch_exposures(scheme: Minibatch, transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return the gradients of the first part of one device's data, which the server sees again and again."""
    parts, everything = scheme.options.parts, transcript.series()[0]
    first = transcript.first(everything[0].device)
    entries = [entry for entry in everything if (entry.epoch - first.epoch) % parts == 0]
    if not entries:
        raise UsageError(
            f"the server sees each of {parts} parts of the data for the first time in {parts} epochs; attack at least "
            f"{parts + 1} epochs of scheme '{scheme.name}'"
        )
    shard = shards[first.device]
    view = reply_series(entries, lambda entry: entry.reply["gradient"], at_zero=first.reply["gradient"])
    return [Exposure(view, first.device, gram(shard.x[batch_rows(shard.samples, parts, first.epoch)]))]
