"""Who adds up what: groups of devices, and a binary tree of groups, so that a device sends few parcels in any fleet.

Device i is member i // G of group i % G, and the first Z members of each group are its adders. A device sends its
pieces to the adders of its own group. Adder z of a group adds up the pieces of all members, and the sums of adder z of
up to two child groups, and sends the result to adder z of the parent group. The adders of group 0 have the sum over all
devices. A fleet of fewer than two groups is group 0.
"""

from dataclasses import dataclass
from typing import final

GROUP = 32
"""Least number of members of a group, where there are that many devices."""


@final
@dataclass(frozen=True)
class Groups:
    """The groups of N devices with Z adders each.

    >>> groups = Groups(devices=64, adders=20)
    >>> groups.count, list(groups.members(1))[:3], groups.parent(3), groups.parent(2)
    (2, [1, 3, 5], 2, None)
    """

    devices: int
    adders: int

    def __post_init__(self) -> None:
        if not 1 <= self.adders <= self.devices // self.count:
            raise ValueError(f"{self.adders} adders do not fit groups of {self.devices // self.count} devices")

    @property
    def count(self) -> int:
        """Number G of groups."""
        return max(1, self.devices // GROUP)

    def members(self, group: int) -> range:
        """Return the devices of a group."""
        return range(group, self.devices, self.count)

    def adder(self, device: int) -> int | None:
        """Return which of its group's adders a device is; None if it is none."""
        place = device // self.count
        return place if place < self.adders else None

    def device(self, adder: int, group: int = 0) -> int:
        """Return the device that is an adder of a group."""
        return adder * self.count + group

    def parent(self, device: int) -> int | None:
        """Return the adder of the parent group that takes an adder's sums; None in group 0."""
        group = device % self.count
        return None if group == 0 else self.device(device // self.count, (group - 1) // 2)

    def children(self, device: int) -> tuple[int, ...]:
        """Return the adders of child groups whose sums an adder takes."""
        group, place = device % self.count, device // self.count
        return tuple(self.device(place, child) for child in (2 * group + 1, 2 * group + 2) if child < self.count)

    def levels(self) -> list[range]:
        """Return the groups below group 0 by level of the tree, the deepest level first."""
        found, first = [], 1
        while first < self.count:
            found.append(range(first, min(2 * first + 1, self.count)))
            first = 2 * first + 1
        return found[::-1]
