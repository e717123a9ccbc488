"""Messages between the parties, and the count of operations.

A message is a table of arrays, and every multiplication is counted in a :class:`Work`. So an engine derives the bits
and the multiply-accumulate operations (MACs) of an epoch from the arrays that are really sent and multiplied.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float, Shaped

Message = Mapping[str, Shaped[np.ndarray, "..."]]
"""Entries whose names begin with ``@`` are signatures and what they are about. Only real sites have them."""

Layout = Mapping[str, tuple["np.dtype[Any]", tuple[int, ...]]]
"""Number format and shape of every array of a message."""


class Deferred(Mapping[str, Shaped[np.ndarray, "..."]]):
    """Abstract: a message in virtual time that is computed when somebody reads it, once."""

    promised: Layout
    """Its layout, which is known before."""

    @abstractmethod
    def compute(self) -> Message:
        """Return the message itself, of the promised layout."""

    @final
    @cached_property
    def _computed(self) -> Message:
        return self.compute()

    @final
    @property
    def is_computed(self) -> bool:
        """Whether somebody has read it."""
        return "_computed" in vars(self)

    @final
    def __getitem__(self, name: str) -> Shaped[np.ndarray, "..."]:
        return self._computed[name]

    @final
    def __iter__(self) -> Iterator[str]:
        return iter(self.promised)

    @final
    def __len__(self) -> int:
        return len(self.promised)


def layout(message: Message) -> Layout:
    """Return the layout of a message."""
    return {name: (array.dtype, array.shape) for name, array in message.items()}


def message_bits(message: Message) -> int:
    """Return the payload of a message in bits, without signatures: costs are those of virtual time."""
    return payloads([message])[0]


def payloads(messages: Iterable[Message]) -> list[int]:
    """Return the payload of each message in bits."""
    return [_promised_bits(each) if isinstance(each, Deferred) else _bits(each) for each in messages]


def _bits(message: Message) -> int:
    return sum([8 * array.nbytes for name, array in message.items() if not name.startswith("@")])


def _promised_bits(message: Deferred) -> int:
    return sum([8 * dtype.itemsize * math.prod(shape) for dtype, shape in message.promised.values()])


@dataclass
class Work:
    """Counts multiply-accumulate operations; ``beforehand`` are those done in advance, which take no time of a run.

    >>> work = Work()
    >>> product = work.product(np.ones((2, 3)), np.ones((3, 4)))
    >>> work.add(5)
    >>> work.macs
    29
    """

    macs: int = 0
    beforehand: int = 0

    def product(
        self, left: Float[np.ndarray, "rows inner"], right: Float[np.ndarray, "inner columns"]
    ) -> Float[np.ndarray, "rows columns"]:
        """Return the matrix product, and count rows * inner * columns operations."""
        self.macs += left.shape[0] * left.shape[1] * right.shape[1]
        return np.asarray(left @ right)

    def add(self, operations: int) -> None:
        """Count other operations, such as additions."""
        self.macs += operations
