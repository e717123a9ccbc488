"""The sharing policy (section IV-B of the paper) as a state machine without clock, arrays or keys.

After every epoch the server tells the policy when each active device replied. A *straggler* is a device that replied
more than Delta seconds after the fastest. Stragglers hand over all data that they hold, and retire:

- a straggler whose data carry at least two error supports of other devices (set S^r) forwards them without a new one;
- any other straggler (set S^nr) needs a support of its own. The server grants supports to the slowest ones while it
  has some. They send in pairs: both devices of a pair send to the same recipient, whose data then carry two supports.
  ``odd_set`` says what happens when their number is odd.

Recipients are the slowest of the other devices that have never received a parcel; when there are none, the fastest
device is the recipient. ``docs/sharing.md`` lists what the paper leaves open and which choice is made here.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final

Supply = Literal["once", "reissued", "unlimited"]
"""How often a support is granted: once in a run, once in every epoch, or without limit."""
OddSet = Literal["partner", "two-errors"]
"""What completes an odd set: a device that is no straggler, or a second support for the last straggler."""


@dataclass(frozen=True)
class Handover:
    """A device sends all its data to another and retires; its new supports by number, at most two."""

    sender: int
    recipient: int
    support: int | None
    second: int | None = None

    @property
    def supports(self) -> tuple[int, ...]:
        """The numbers of its new supports."""
        return tuple(number for number in (self.support, self.second) if number is not None)


@dataclass(frozen=True)
class Decision:
    """The hand-overs after an epoch, in the order in which recipients receive the parcels."""

    stragglers: tuple[int, ...]
    handovers: tuple[Handover, ...]
    waiting: tuple[int, ...]
    """Stragglers that stay because there is no support left for them."""

    def __str__(self) -> str:
        """Return the decision in words."""
        if not self.stragglers:
            return "no stragglers"
        lines = [f"stragglers, slowest first: {', '.join(map(str, self.stragglers))}"]
        for handover in self.handovers:
            added = " and ".join(map(str, handover.supports))
            several = "supports" if len(handover.supports) > 1 else "support"
            sends = f"adds {several} {added} and sends" if added else "forwards"
            lines.append(f"device {handover.sender} {sends} to device {handover.recipient} and retires")
        if self.waiting:
            lines.append(f"no support left, so these stay: {', '.join(map(str, self.waiting))}")
        return "\n".join(lines)


@final
class SharingPolicy:
    """The sharing policy of one run.

    Parameters
    ----------
    devices : int
        Number of devices N.
    supports : int
        Number of error supports M.
    delta : float
        A device is a straggler if it replies more than this many seconds after the fastest.
    supply : Supply
        How often a support is granted.

    Examples
    --------
    >>> policy = SharingPolicy(devices=4, supports=2, delta=1.0, supply="once")
    >>> print(policy.after_epoch({0: 1.0, 1: 1.5, 2: 9.0, 3: 5.0}))
    stragglers, slowest first: 2, 3
    device 2 adds support 0 and sends to device 1 and retires
    device 3 adds support 1 and sends to device 1 and retires
    >>> policy.active
    (0, 1)
    """

    def __init__(
        self,
        *,
        devices: int,
        supports: int,
        delta: float,
        supply: Supply,
        odd_set: OddSet = "partner",
        detect_from: int = 2,
    ) -> None:
        if devices < 1 or supports < 0 or not delta >= 0:
            raise ValueError(f"need devices >= 1, supports >= 0, delta >= 0; got {devices}, {supports}, {delta}")
        self._delta = delta
        self._odd_set = odd_set
        self._detect_from = detect_from
        self._supply = supply
        self._supports = supports
        self._issued = 0
        self._held: dict[int, int] = dict.fromkeys(range(devices), 0)
        self._received: set[int] = set()

    @property
    def delta(self) -> float:
        """A device is a straggler if it replies more than this many seconds after the fastest."""
        return self._delta

    @property
    def active(self) -> tuple[int, ...]:
        """The devices that have not retired, in the order of their numbers."""
        return tuple(sorted(self._held))

    @property
    def issued(self) -> int:
        """How many supports were granted so far."""
        return self._issued

    def foreign_supports(self, device: int) -> int:
        """Return how many supports of other devices the data of an active device carry."""
        return self._held[device]

    def may_forward(self, device: int) -> bool:
        """Return whether an active device may hand over without a new support, because two others hide its data."""
        return self._held[device] >= 2

    @property
    def may_grant(self) -> bool:
        """Whether there are enough supports left for a pair of devices."""
        return self._available() >= 2

    @property
    def may_double(self) -> bool:
        """Whether a device may be granted two supports."""
        return self._odd_set == "two-errors" and self.may_grant

    @property
    def supports_left(self) -> float:
        """L, the number of supports available after the next epoch; infinite if there is no limit."""
        return math.inf if self._supply == "unlimited" else self._available()

    def detects(self, epoch: int) -> bool:
        """Tell whether stragglers are looked for after an epoch."""
        return epoch >= self._detect_from

    def after_epoch(self, reply_seconds: Mapping[int, float]) -> Decision:
        """Decide on hand-overs, given when each active device replied."""
        if set(reply_seconds) != set(self._held):
            raise ValueError(f"reply times of {sorted(reply_seconds)} do not fit the active devices {self.active}")
        slowest = sorted(reply_seconds, key=lambda device: (-reply_seconds[device], device))
        limit = min(reply_seconds.values()) + self._delta
        stragglers = [device for device in slowest if reply_seconds[device] > limit]
        others = [device for device in slowest if reply_seconds[device] <= limit]
        forwarding = [device for device in stragglers if self.may_forward(device)]
        unsupported = [device for device in stragglers if not self.may_forward(device)]
        handovers = self._forward(forwarding, others)
        granted, others = self._grant(unsupported, others)
        handovers += self._pair(granted, others)
        served = set(granted)
        waiting = tuple(device for device in unsupported if device not in served)
        return Decision(tuple(stragglers), tuple(handovers), waiting)

    def resume(self, moved: Iterable[tuple[int, int, int | None]]) -> None:
        """Repeat the hand-overs (sender, recipient, support) of earlier epochs; two supports are two entries."""
        for sender, recipient, support in moved:
            if sender in self._held:
                self._move(Handover(sender, recipient, support))
            else:
                self._held[recipient] += 1
            self._issued += support is not None

    def _available(self) -> int:
        if self._supply == "unlimited":
            return 2 * len(self._held)
        return self._supports if self._supply == "reissued" else self._supports - self._issued

    def _forward(self, forwarding: Sequence[int], others: Sequence[int]) -> list[Handover]:
        recipients = self._recipients(len(forwarding), others)
        pairs = zip(forwarding, recipients, strict=True)
        return [self._move(Handover(sender, recipient, None)) for sender, recipient in pairs]

    def _grant(self, unsupported: Sequence[int], others: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the devices that get a support, an even number if possible, and the remaining recipients.

        Their number is odd only if all unsupported stragglers get one, and then at least one more support is left.
        """
        available = self._available()
        remaining = list(others)
        chosen = list(unsupported[: available - available % 2])
        if len(chosen) % 2 and self._odd_set == "partner":
            # the slowest other device that has never received completes the pair, if a recipient remains
            partner = next((device for device in others if device not in self._received), None)
            if partner is not None and len(others) > 1:
                chosen.append(partner)
                remaining.remove(partner)
        return chosen, remaining

    def _pair(self, granted: Sequence[int], others: Sequence[int]) -> list[Handover]:
        pairs = [granted[start : start + 2] for start in range(0, len(granted), 2)]
        recipients = self._recipients(len(pairs), others)
        first = 0 if self._supply == "reissued" else self._issued
        numbers = itertools.count(first)
        handovers: list[Handover] = []
        for pair, recipient in zip(pairs, recipients, strict=True):
            alone = len(pair) == 1 and self._odd_set == "two-errors"
            for sender in pair:
                supports = itertools.islice(numbers, 2 if alone else 1)
                handovers.append(self._move(Handover(sender, recipient, *supports)))
        self._issued += sum(len(handover.supports) for handover in handovers)
        return handovers

    def _recipients(self, count: int, others: Sequence[int]) -> list[int]:
        """Return recipients: slowest that never received, then fastest; repeat from the start if there are too few."""
        fresh = [device for device in others if device not in self._received]
        used = [device for device in reversed(others) if device in self._received]
        order = fresh + used
        return [order[number % len(order)] for number in range(count)]

    def _move(self, handover: Handover) -> Handover:
        carried = self._held.pop(handover.sender) + len(handover.supports)
        self._held[handover.recipient] += carried
        self._received.discard(handover.sender)
        self._received.add(handover.recipient)
        return handover
