"""Who masks with whom: every two devices, or, of many devices, each with k neighbours.

With N devices, masks of every two take N^2 key agreements and shares. A graph of degree k suffices (Bell, Bonawitz,
Gascon, Lepoint, Raykova, "Secure single-server aggregation with (poly)logarithmic overhead", CCS 2020). Here it is a
circulant: devices stand on a ring, and each is joined to the k/2 before it and the k/2 after it, which is k-connected
(Harary, "The maximum connectivity of a graph", 1962). Place p of the ring has device p g mod N, with g near N times the
golden ratio, so devices of one kind, which have consecutive numbers and fail together, are spread evenly over the ring.

The graph follows from N and k, which are public. No party chooses it.

A device's *circle* is itself with its neighbours, k + 1 devices. It shares its secrets within its circle.
"""

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import final

import numpy as np
from jaxtyping import Bool, Int

COMPLETE = 257
"""Devices up to which every two share a mask, unless a number of neighbours is given."""
DEGREE = 64
"""Neighbours of a device in a larger fleet, unless their number is given."""


@final
@dataclass(frozen=True)
class MaskGraph:
    """N devices, each with k neighbours (an even number); complete if k is 0 or at least N - 1.

    >>> MaskGraph(9, 4).circle(0), MaskGraph(4).circle(1)
    ((0, 2, 4, 5, 7), (0, 1, 2, 3))
    """

    devices: int
    degree: int = 0

    @classmethod
    def of(cls, devices: int, neighbours: int | None) -> "MaskGraph":
        """Return the graph for the option ``neighbours``; odd numbers are rounded up."""
        degree = (0 if devices <= COMPLETE else DEGREE) if neighbours is None else neighbours + neighbours % 2
        return cls(devices, 0 if degree >= devices - 1 else degree)

    @property
    def complete(self) -> bool:
        """Whether every two devices are neighbours."""
        return self.degree == 0

    @property
    def size(self) -> int:
        """Devices in a circle."""
        return self.devices if self.complete else self.degree + 1

    def circle(self, device: int) -> tuple[int, ...]:
        """Return a device and its neighbours, by number."""
        return _everyone(self.devices) if self.complete else _circles(self.devices, self.degree)[device]

    @cached_property
    def ring(self) -> Int[np.ndarray, "n"]:
        """The device at each place of the ring."""
        return np.arange(self.devices) * _step(self.devices) % self.devices

    def present(self, among: Set[int] | Sequence[int]) -> Int[np.ndarray, "n"]:
        """Return how many devices of each device's circle are among the given ones."""
        there = np.zeros(self.devices, bool)
        there[list(among)] = True
        if self.complete:
            return np.full(self.devices, int(there.sum()))
        counts = np.empty(self.devices, np.int64)
        counts[self.ring] = _windows(there[self.ring], self.degree // 2)
        return counts


def _windows(there: Bool[np.ndarray, "n"], half: int) -> Int[np.ndarray, "n"]:
    """Return how many places are taken from ``half`` before each place to ``half`` after it."""
    wrapped = np.concatenate([there[-half:], there, there[:half]])
    sums = np.concatenate([[0], np.cumsum(wrapped)])
    return np.asarray(sums[2 * half + 1 :] - sums[: -2 * half - 1])


@lru_cache(maxsize=8)
def _everyone(devices: int) -> tuple[int, ...]:
    return tuple(range(devices))


@lru_cache(maxsize=4)
def _step(devices: int) -> int:
    """Return the number nearest to N times the golden ratio's fraction that has no divisor in common with N."""
    wanted = round(devices * (math.sqrt(5) - 1) / 2)
    near = (wanted + sign * distance for distance in range(devices) for sign in (1, -1))
    return next(step for step in near if math.gcd(step, devices) == 1)


@lru_cache(maxsize=4)
def _circles(devices: int, degree: int) -> tuple[tuple[int, ...], ...]:
    """Return the circle of every device."""
    offsets = np.arange(-(degree // 2), degree // 2 + 1) * _step(devices)
    around = np.sort((np.arange(devices)[:, None] + offsets) % devices, axis=1)
    return tuple(map(tuple, around.tolist()))
