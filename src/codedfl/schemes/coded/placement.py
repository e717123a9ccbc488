"""Partition of a symmetric matrix for a reduce-scatter: all devices add it up, each device one piece.

The d rows are divided into Z bands of nearly equal height, one for each of the Z devices. Block (a, b) is the transpose
of block (b, a), so each pair of bands needs only one of the two. ``held_by`` assigns every band about half of its
off-diagonal blocks, so all pieces have nearly the same size: d^2 / (2 Z) numbers instead of d^2 / Z.

A *piece* is one vector: the upper triangle of the diagonal block, the assigned blocks of the band in order of their
distance, then the band's rows of a second matrix (the right-hand side).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Shaped


@final
@dataclass(frozen=True)
class Bands:
    """Z bands of d rows, and of a second matrix with the same rows and ``outputs`` columns."""

    rows: int
    bands: int
    outputs: int

    def __post_init__(self) -> None:
        if not 1 <= self.bands <= self.rows or self.outputs < 0:
            raise ValueError(
                f"need 1 <= bands <= rows and outputs >= 0; got {self.bands} bands, {self.rows} rows, "
                f"{self.outputs} outputs"
            )

    def band(self, number: int) -> slice:
        """Return the rows of a band."""
        return slice(number * self.rows // self.bands, (number + 1) * self.rows // self.bands)

    def height(self, number: int) -> int:
        """Return how many rows a band has."""
        rows = self.band(number)
        return int(rows.stop) - int(rows.start)

    def held_by(self, number: int) -> tuple[int, ...]:
        """Return the other bands b whose block (number, b) is in the piece of a band."""
        half, odd = divmod(self.bands, 2)
        near = range(1, half + odd)
        found = [(number + distance) % self.bands for distance in near]
        if not odd and number < half:  # of two opposite bands, the first holds their block
            found.append(number + half)
        return tuple(found)

    def size(self, number: int) -> int:
        """Return the number of entries of a piece."""
        own = self.height(number)
        others = sum(self.height(other) for other in self.held_by(number))
        return own * (own + 1) // 2 + own * others + own * self.outputs

    def piece(
        self, number: int, matrix: Shaped[np.ndarray, "d d"], second: Shaped[np.ndarray, "d c"]
    ) -> Shaped[np.ndarray, "size"]:
        """Return the piece of a band, from a symmetric matrix and a second matrix."""
        rows = self.band(number)
        own = matrix[rows, rows][np.triu_indices(self.height(number))]
        others = [matrix[rows, self.band(other)].ravel() for other in self.held_by(number)]
        return np.concatenate([own, *others, second[rows].ravel()])

    def unpack(
        self, number: int, piece: Shaped[np.ndarray, "size"]
    ) -> tuple[dict[int, Shaped[np.ndarray, "rows columns"]], Shaped[np.ndarray, "rows c"]]:
        """Return the blocks of a piece by band, with the full diagonal block, and the rows of the second matrix."""
        own = self.height(number)
        upper = np.triu_indices(own)
        diagonal = np.empty((own, own), piece.dtype)
        diagonal[upper] = piece[: len(upper[0])]
        diagonal.T[upper] = piece[: len(upper[0])]
        blocks = {number: diagonal}
        start = len(upper[0])
        for other in self.held_by(number):
            width = self.height(other)
            blocks[other] = piece[start : start + own * width].reshape(own, width)
            start += own * width
        return blocks, piece[start:].reshape(own, self.outputs)

    def joined(
        self, number: int, blocks: Mapping[int, Shaped[np.ndarray, "rows columns"]]
    ) -> Shaped[np.ndarray, "rows d"]:
        """Concatenate the blocks of a band, one for each band, to its rows."""
        missing = [other for other in range(self.bands) if other not in blocks]
        if missing:
            raise ValueError(f"band {number} lacks the blocks of {missing}; pass one block for each band")
        return np.concatenate([blocks[other] for other in range(self.bands)], axis=1)
