"""The server's view of the replies of single devices."""

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl.errors import UsageError
from codedfl.schemes.contract import Scheme
from codedfl.schemes.messages import Work
from codedfl.schemes.plain.minibatch import Minibatch
from codedfl.security.transcript import Exposure, RecordedReply, Transcript
from codedfl.security.views.kinds import RepliesView
from codedfl.task import Shard, gram
from codedfl.task.shard import batch_rows

Read = Callable[[RecordedReply], Float[np.ndarray, "d c"]]


@final
class Stacks:
    """Stacks of models, one for all devices that were sent the same: attacks decompose each of them once."""

    def __init__(self, read: Read = lambda entry: entry.request["model"]) -> None:
        self._read = read
        self._known: dict[tuple[int, ...], Float[np.ndarray, "epochs d c"]] = {}

    def of(self, entries: Sequence[RecordedReply]) -> Float[np.ndarray, "epochs d c"]:
        """Return the models of a series."""
        key = tuple(id(entry.request["model"]) for entry in entries)
        if key not in self._known:
            self._known[key] = np.stack([self._read(entry) for entry in entries])
        return self._known[key]


def reply_series(
    entries: Sequence[RecordedReply], read: Read, stacks: Stacks, *, at_zero: Float[np.ndarray, "d c"] | None = None
) -> RepliesView:
    """Return the models and the replies of one device, as the server reads them.

    Where a reply is A Theta - B, ``at_zero`` is the reply to the zero model, -B, which is subtracted.
    """
    replies = np.stack([read(entry) for entry in entries])
    return RepliesView(stacks.of(entries), replies if at_zero is None else replies - at_zero)


def longest_of_each(series: Sequence[Sequence[RecordedReply]]) -> list[Sequence[RecordedReply]]:
    """Return the first series of each device: the longest, as the transcript orders them."""
    found: dict[int, Sequence[RecordedReply]] = {}
    for entries in series:
        found.setdefault(entries[0].device, entries)
    return list(found.values())


def reply_exposures(scheme: Scheme[Any], transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return the server's view of every device whose replies are gradients of all its data.

    A reply that is one array of the model's shape is the gradient. Any other reply is read as the server reads it: its
    ``combine``, given this reply alone, returns the mean gradient over the device's data points.
    """

    def read(entry: RecordedReply) -> Float[np.ndarray, "d c"]:
        arrays, model = list(entry.reply.values()), entry.request["model"]
        if len(arrays) == 1 and arrays[0].shape == model.shape and arrays[0].dtype.kind == "f":
            return arrays[0]
        try:
            mean = scheme.server().combine(entry.epoch, {entry.device: entry.reply}, Work())
        except Exception as error:
            raise UsageError(
                f"the server of scheme '{scheme.name}' does not combine the reply of one device ({error!r}); tell with "
                "codedfl.security.views.registry.register_views what its parties see"
            ) from error
        return np.asarray(mean * shards[entry.device].samples)

    found, stacks = [], Stacks()
    for entries in longest_of_each(transcript.series()):
        device = entries[0].device
        view = reply_series(entries, read, stacks, at_zero=read(transcript.first(device)))
        found.append(Exposure(view, device, shards[device].gram))
    return found


def minibatch_exposures(scheme: Minibatch, transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return the gradients of the first part of every device's data, which the server sees again and again."""
    parts, found, stacks = scheme.options.parts, [], Stacks()
    for everything in longest_of_each(transcript.series()):
        first = transcript.first(everything[0].device)
        entries = [entry for entry in everything if (entry.epoch - first.epoch) % parts == 0]
        if not entries:
            raise UsageError(
                f"the server sees each of {parts} parts of the data for the first time in {parts} epochs; attack at "
                f"least {parts + 1} epochs of scheme '{scheme.name}'"
            )
        points = shards[first.device].x[batch_rows(shards[first.device].samples, parts, first.epoch)]
        view = reply_series(entries, lambda entry: entry.reply["gradient"], stacks, at_zero=first.reply["gradient"])
        found.append(Exposure(view, first.device, gram(points), points=points))
    return found
