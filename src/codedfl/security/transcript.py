"""The transcript of a run: all messages, and whose data each contains, which no single party sees.

``codedfl.security.views`` turns it into the views that single parties have.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from codedfl.schemes.messages import Message
from codedfl.security.views.kinds import View


@dataclass(frozen=True, eq=False)
class RecordedReply:
    """A request to a device and its reply; ``contents`` are the devices whose data the reply is computed from."""

    device: int
    epoch: int
    contents: frozenset[int]
    request: Message = field(repr=False)
    reply: Message = field(repr=False)


@dataclass(frozen=True, eq=False)
class RecordedParcel:
    """A parcel that a device sent, and the parcels that it had absorbed before."""

    sender: int
    contents: frozenset[int]
    grant: Message = field(repr=False)
    parcel: Message = field(repr=False)
    received: tuple["RecordedParcel", ...] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Exposure:
    """A view that a party has, and the truth for scoring.

    ``subject`` is the attacked device, ``gram`` its Gram matrix (or that of the attacked part of its data), ``support``
    the true error support, ``points`` the data points behind the view where they are not the whole shard.
    ``assumption`` is not empty where the view needs more than the scheme as it is. Where the view is of several devices
    together, ``subject`` is None, ``gram`` the sum, and ``parts`` has the truth for each of them. ``adversary`` is
    given where it is not that of the view.
    """

    view: View
    subject: int | None
    gram: Float[np.ndarray, "rows d"] = field(repr=False)
    support: Int[np.ndarray, "t"] | None = field(default=None, repr=False)
    assumption: str = ""
    points: Float[np.ndarray, "n d"] | None = field(default=None, repr=False)
    parts: Mapping[int, Float[np.ndarray, "rows columns"]] = field(default_factory=dict, repr=False)
    adversary: str = ""
    columns: Int[np.ndarray, "rows"] | None = field(default=None, repr=False)
    """The features that ``gram`` is of, where it is not of all."""

    @property
    def party(self) -> str:
        """The adversary who has the view."""
        return self.adversary or self.view.adversary


@dataclass(eq=False)
class Transcript:
    """All messages of a run in order."""

    replies: list[RecordedReply] = field(default_factory=list)
    parcels: list[RecordedParcel] = field(default_factory=list)
    points: list[Float[np.ndarray, "d c"]] = field(default_factory=list)
    """The models of all epochs, as devices get them."""

    def first(self, device: int) -> RecordedReply:
        """Return the first reply of a device, to the zero model."""
        return next(entry for entry in self.replies if entry.device == device)

    def series(self) -> list[list[RecordedReply]]:
        """Return series of replies from epoch 2 on, one for each device and each set of data that it held.

        Series over the data of the fewest devices come first, longer ones before shorter ones.
        """
        found: dict[tuple[int, frozenset[int]], list[RecordedReply]] = {}
        for entry in self.replies:
            if entry.epoch > 1:
                found.setdefault((entry.device, entry.contents), []).append(entry)
        return sorted(found.values(), key=lambda entries: (len(entries[0].contents), -len(entries), entries[0].device))

    def single(self) -> list[list[RecordedReply]]:
        """Return the series of replies that are computed from the data of one device."""
        return [entries for entries in self.series() if len(entries[0].contents) == 1]
