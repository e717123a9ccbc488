"""The sharing policy (section IV-B of the paper) as a state machine without clock or keys.

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

import numpy as np
from jaxtyping import Bool, Float, Int

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
        self._active = np.ones(devices, bool)
        self._held = np.zeros(devices, np.int64)  # supports of other devices
        self._received = np.zeros(devices, bool)

    @property
    def delta(self) -> float:
        """A device is a straggler if it replies more than this many seconds after the fastest."""
        return self._delta

    @property
    def active(self) -> tuple[int, ...]:
        """The devices that have not retired, in the order of their numbers."""
        return tuple(np.flatnonzero(self._active).tolist())

    @property
    def is_active(self) -> Bool[np.ndarray, "n"]:
        """Which devices have not retired; not to be changed."""
        return self._active

    @property
    def issued(self) -> int:
        """How many supports were granted so far."""
        return self._issued

    def foreign_supports(self, device: int) -> int:
        """Return how many supports of other devices the data of an active device carry."""
        return int(self._held[device])

    def may_forward(self, device: int) -> bool:
        """Return whether an active device may hand over without a new support, because two others hide its data."""
        return int(self._held[device]) >= 2

    @property
    def forwards(self) -> Bool[np.ndarray, "n"]:
        """Which devices :meth:`may_forward`."""
        return np.asarray(self._held >= 2)

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
        if set(reply_seconds) != set(self.active):
            raise ValueError(f"reply times of {sorted(reply_seconds)} do not fit the active devices {self.active}")
        seconds = np.zeros(len(self._active))
        seconds[list(reply_seconds)] = list(reply_seconds.values())
        return self.after_replies(seconds)

    def after_replies(self, seconds: Float[np.ndarray, "n"]) -> Decision:
        """Decide on hand-overs, given when each device replied; those that have retired are not looked at."""
        active = np.flatnonzero(self._active)
        slowest = active[np.argsort(-seconds[active], kind="stable")]  # of equal ones, the first number first
        count = int(np.count_nonzero(seconds[active] > seconds[slowest[-1]] + self._delta))
        stragglers, others = slowest[:count], slowest[count:]
        forward = self.forwards[stragglers]
        unsupported = stragglers[~forward]
        handovers = self._forward(stragglers[forward], others)
        served, partner = self._grant(unsupported, others)
        if partner is not None:
            others = others[others != partner]
        granted = [*unsupported[:served].tolist(), *(() if partner is None else (partner,))]
        handovers += self._pair(granted, others)
        return Decision(tuple(stragglers.tolist()), tuple(handovers), tuple(unsupported[served:].tolist()))

    def resume(self, moved: Iterable[tuple[int, int, int | None]]) -> None:
        """Repeat the hand-overs (sender, recipient, support) of earlier epochs; two supports are two entries."""
        for sender, recipient, support in moved:
            if self._active[sender]:
                self._move(Handover(sender, recipient, support))
            else:
                self._held[recipient] += 1
            self._issued += support is not None

    def _available(self) -> int:
        if self._supply == "unlimited":
            return 2 * int(np.count_nonzero(self._active))
        return self._supports if self._supply == "reissued" else self._supports - self._issued

    def _forward(self, forwarding: Int[np.ndarray, "k"], others: Int[np.ndarray, "m"]) -> list[Handover]:
        recipients = self._recipients(len(forwarding), others)
        pairs = zip(forwarding.tolist(), recipients, strict=True)
        return [self._move(Handover(sender, recipient, None)) for sender, recipient in pairs]

    def _grant(self, unsupported: Int[np.ndarray, "k"], others: Int[np.ndarray, "m"]) -> tuple[int, int | None]:
        """Return how many stragglers get a support, an even number if possible, and a device that completes a pair.

        Their number is odd only if all unsupported stragglers get one, and then at least one more support is left.
        """
        available = self._available()
        served = min(len(unsupported), available - available % 2)
        if served % 2 and self._odd_set == "partner" and len(others) > 1:
            # the slowest other device that has never received completes the pair, if a recipient remains
            fresh = others[~self._received[others]]
            return served, int(fresh[0]) if len(fresh) else None
        return served, None

    def _pair(self, granted: Sequence[int], others: Int[np.ndarray, "m"]) -> list[Handover]:
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

    def _recipients(self, count: int, others: Int[np.ndarray, "m"]) -> list[int]:
        """Return recipients: slowest that never received, then fastest; repeat from the start if there are too few."""
        if not count:
            return []
        received = self._received[others]
        order = np.concatenate([others[~received], others[received][::-1]])
        return [int(each) for each in order[np.arange(count) % len(order)]]

    def _move(self, handover: Handover) -> Handover:
        sender, recipient = handover.sender, handover.recipient
        self._held[recipient] += self._held[sender] + len(handover.supports)
        self._held[sender], self._active[sender] = 0, False
        self._received[recipient] = True
        return handover
