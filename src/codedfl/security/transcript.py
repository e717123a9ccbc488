"""The messages of a run: what was really sent, for those who ask what somebody could have learnt from it.

A transcript holds what no single party sees: all messages, and whose data lies under them. ``Scheme.exposures`` turns
it into the views that single parties have, with the truth beside them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from codedfl.schemes.messages import Message
from codedfl.security.views.kinds import RepliesView, View

__all__ = ["Asked", "Exposure", "Sent", "Transcript", "reply_series"]


@dataclass(frozen=True, eq=False)
class Asked:
    """A question to a device and its reply; ``contents`` are the devices whose data the reply was computed from."""

    device: int
    epoch: int
    contents: frozenset[int]
    request: Message = field(repr=False)
    reply: Message = field(repr=False)


@dataclass(frozen=True, eq=False)
class Sent:
    """A parcel that a device handed over, and the parcels that it had taken in before."""

    sender: int
    contents: frozenset[int]
    grant: Message = field(repr=False)
    parcel: Message = field(repr=False)
    received: tuple["Sent", ...] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Exposure:
    """A view that somebody really has, and the truth under it, for scoring.

    ``subject`` is the device that is attacked, ``gram`` its Gram matrix (or that of the part of its data in question),
    ``support`` the true error support, ``points`` the data points under the view where they are not the whole shard.
    ``assumption`` says what was changed where the view is not of the scheme as it is.
    """

    view: View
    subject: int
    gram: Float[np.ndarray, "rows d"] = field(repr=False)
    support: Int[np.ndarray, "t"] | None = field(default=None, repr=False)
    assumption: str = ""
    points: Float[np.ndarray, "n d"] | None = field(default=None, repr=False)


@dataclass(eq=False)
class Transcript:
    """All messages of a run in their order."""

    asked: list[Asked] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)

    def first(self, device: int) -> Asked:
        """Return the first question to a device and its reply; the model is zero then."""
        return next(entry for entry in self.asked if entry.device == device)

    def series(self) -> list[list[Asked]]:
        """Return the replies of each device from epoch 2 on, cut where what it holds changes.

        Those that hold the data of the fewest devices come first, longer ones before shorter ones.
        """
        found: dict[tuple[int, frozenset[int]], list[Asked]] = {}
        for entry in self.asked:
            if entry.epoch > 1:
                found.setdefault((entry.device, entry.contents), []).append(entry)
        return sorted(found.values(), key=lambda entries: (len(entries[0].contents), -len(entries), entries[0].device))


def reply_series(
    entries: Sequence[Asked],
    read: Callable[[Asked], Float[np.ndarray, "d c"]],
    *,
    at_zero: Float[np.ndarray, "d c"] | None = None,
) -> RepliesView:
    """Return the server's view of a device.

    ``read`` gives a reply in clear, as the server can read it. Where it is A Theta - B, ``at_zero`` is the reply to the
    zero model, -B, which is taken away.
    """
    models = np.stack([entry.request["model"] for entry in entries])
    replies = np.stack([read(entry) for entry in entries])
    return RepliesView(models, replies if at_zero is None else replies - at_zero)
