"""What travels between the parties, and what computing costs.

A message is a table of arrays, and every multiplication is counted in a :class:`Work`, so that an engine derives the
bits and the multiply-accumulate operations of an epoch from the arrays themselves.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

Message = Mapping[str, Shaped[np.ndarray, "..."]]

Layout = Mapping[str, tuple["np.dtype[Any]", tuple[int, ...]]]
"""Format and shape of every array of a message."""


def layout(message: Message) -> Layout:
    """Return the layout of a message."""
    return {name: (array.dtype, array.shape) for name, array in message.items()}


def message_bits(message: Message) -> int:
    """Return the payload of a message in bits."""
    return payloads([message])[0]


def payloads(messages: Iterable[Message]) -> list[int]:
    """Return the payload of each message in bits."""
    return [sum([8 * array.nbytes for array in message.values()]) for message in messages]


@dataclass
class Work:
    """Counts multiply-accumulate operations."""

    macs: int = 0

    def product(
        self, left: Float[np.ndarray, "rows inner"], right: Float[np.ndarray, "inner columns"]
    ) -> Float[np.ndarray, "rows columns"]:
        """Multiply, and count rows * inner * columns."""
        self.macs += left.shape[0] * left.shape[1] * right.shape[1]
        return np.asarray(left @ right)

    def add(self, operations: int) -> None:
        """Count operations that are no matrix product, such as additions."""
        self.macs += operations
