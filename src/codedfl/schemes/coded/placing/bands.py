"""Partition of a symmetric matrix for a reduce-scatter: all devices add it up, each adder a few pieces.

Coded column x of a code with K column blocks of width w combines columns x, x + w, ..., x + (K - 1) w: a *unit*. The
units are divided into Q chunks, one after the other. The rows of a chunk are divided into Z bands of nearly equal
height, one for each of the Z adders; from the second chunk on, a band consists of whole units. So the order of rows
(``order``) is that of chunks, and in them of bands. With one chunk it is the order of the matrix.

Block (a, b) is the transpose of block (b, a), so each pair of bands needs only one of the two. A band holds its blocks
with all bands of earlier chunks, and about half of those with the other bands of its own chunk (``held_by``), so all
pieces of a chunk have nearly the same size. When a chunk is added up and its bands have exchanged blocks, band a has
all blocks with its own chunk and earlier ones. From these follow coded rows (its rows, all coded columns so far) and,
because a band of a later chunk consists of whole units, coded columns (its own, the rows of earlier chunks): together
every entry of a coded block once, and none waits for a later chunk.

A *piece* is one vector: the upper triangle of the diagonal block, the blocks with earlier chunks, the assigned blocks
of the same chunk in order of their distance, then the band's rows of a second matrix (the right-hand side). The pieces
of a chunk follow each other in one vector (``pieces``), so that a chunk is sealed and masked as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import Bool, Int, Shaped

_MOST_KEPT = 1 << 22
"""Entries of a triangle up to which it is remembered where each of them stands in the pieces."""


@final
@dataclass(frozen=True)
class Bands:
    """Z bands in each of Q chunks of d rows, and of a second matrix with the same rows and ``outputs`` columns.

    >>> Bands(rows=6, adders=2, outputs=1).rows_of(1).tolist()
    [3, 4, 5]
    >>> Bands(rows=8, adders=2, outputs=1, threshold=2, chunks=2).rows_of(3).tolist()
    [3, 7]
    """

    rows: int
    adders: int
    outputs: int
    threshold: int = 1
    """Number K of column blocks of the code."""
    chunks: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.adders <= self.rows or self.outputs < 0:
            raise ValueError(
                f"need 1 <= adders <= rows and outputs >= 0; got {self.adders} adders, {self.rows} rows, "
                f"{self.outputs} outputs"
            )
        if self.chunks < 1 or (self.chunks > 1 and self.width < self.chunks * self.adders):
            raise ValueError(f"{self.chunks} chunks of {self.adders} bands need as many units; there are {self.width}")

    @property
    def width(self) -> int:
        """Columns of a coded block, the number of units."""
        return -(-self.rows // self.threshold)

    @property
    def count(self) -> int:
        """Number of bands in all chunks."""
        return self.adders * self.chunks

    def chunk(self, number: int) -> range:
        """Return the bands of the chunk that a band belongs to."""
        first = number - number % self.adders
        return range(first, first + self.adders)

    def units(self, number: int) -> slice:
        """Return the coded columns of a band of a later chunk, which consists of whole units."""
        first = self._ends[number // self.adders]
        count, place = self._ends[number // self.adders + 1] - first, number % self.adders
        return slice(first + place * count // self.adders, first + (place + 1) * count // self.adders)

    def coded_after(self, number: int) -> int:
        """Return how many coded columns there are up to the chunk of a band."""
        return self._ends[number // self.adders + 1]

    @cached_property
    def _ends(self) -> list[int]:
        """Where chunks end, after a zero: ever smaller ones, so little is left to do when the last has arrived.

        Chunks are multiples of the number of adders where they can be, so that all adders have as many units.
        """
        shares = np.cumsum([0, *range(self.chunks, 0, -1)]) / (self.chunks * (self.chunks + 1) // 2)
        most = max(0, self.width // self.adders - self.chunks)
        ends = [min(round(share * (most + self.chunks)), most + chunk) for chunk, share in enumerate(shares)]
        return [*(int(end) * self.adders for end in ends[:-1]), self.width]

    @cached_property
    def _stops(self) -> list[int]:
        """Where each band ends in ``order``, after a zero."""
        stops = [0]
        for number in range(self.count):
            if number < self.adders:
                whole = int(self._indices(slice(0, self._ends[1])).size)
                stops.append((number + 1) * whole // self.adders)
            else:
                stops.append(stops[-1] + int(self._indices(self.units(number)).size))
        return stops

    def _indices(self, units: slice) -> Int[np.ndarray, "rows"]:
        grid, inside = self.grid(units)
        return np.asarray(grid[inside])

    def grid(self, units: slice) -> tuple[Int[np.ndarray, "K units"], Bool[np.ndarray, "K units"]]:
        """Return the rows of units by column block, and which of them exist: the last block may be narrower."""
        rows = np.arange(self.threshold)[:, None] * self.width + np.arange(units.start, units.stop)
        return rows, rows < self.rows

    @cached_property
    def order(self) -> Int[np.ndarray, "rows"]:
        """The rows in the order of chunks and bands."""
        later = [self._indices(self.units(number)) for number in range(self.adders, self.count)]
        return np.concatenate([self._indices(slice(0, self._ends[1])), *later])

    @cached_property
    def places(self) -> Int[np.ndarray, "rows"]:
        """Where each row stands in ``order``."""
        return np.argsort(self.order)

    def band(self, number: int) -> slice:
        """Return where the rows of a band stand in ``order``."""
        return slice(self._stops[number], self._stops[number + 1])

    def rows_of(self, number: int) -> Int[np.ndarray, "rows"]:
        """Return the rows of a band."""
        return np.asarray(self.order[self.band(number)])

    def height(self, number: int) -> int:
        """Return how many rows a band has."""
        return self._stops[number + 1] - self._stops[number]

    def before(self, number: int) -> int:
        """Return how many rows the chunks before that of a band have."""
        return self._stops[self.chunk(number).start]

    def after(self, number: int) -> int:
        """Return how many rows there are up to the chunk of a band."""
        return self._stops[self.chunk(number).stop]

    def held_by(self, number: int) -> tuple[int, ...]:
        """Return the other bands b of the same chunk whose block (number, b) is in the piece of a band."""
        half, odd = divmod(self.adders, 2)
        first, place = self.chunk(number).start, number % self.adders
        found = [first + (place + distance) % self.adders for distance in range(1, half + odd)]
        if not odd and place < half:  # of two opposite bands, the first holds their block
            found.append(number + half)
        return tuple(found)

    def size(self, number: int) -> int:
        """Return the number of entries of a piece."""
        return self._sizes[number]

    @cached_property
    def _sizes(self) -> list[int]:
        sizes = []
        for number in range(self.count):
            own = self.height(number)
            others = self.before(number) + sum(self.height(other) for other in self.held_by(number))
            sizes.append(own * (own + 1) // 2 + own * others + own * self.outputs)
        return sizes

    def within(self, number: int) -> slice:
        """Return where the piece of a band stands in the vector of its chunk."""
        start = sum(self._sizes[self.chunk(number).start : number])
        return slice(start, start + self._sizes[number])

    def chunk_size(self, chunk: int) -> int:
        """Return the number of entries of all pieces of a chunk."""
        return sum(self._sizes[chunk * self.adders : (chunk + 1) * self.adders])

    def natural(self, matrix: Shaped[np.ndarray, "d d"]) -> Shaped[np.ndarray, "d d"]:
        """Return a matrix whose rows and columns are in ``order`` in the order of its rows."""
        return matrix if self.chunks == 1 else matrix[np.ix_(self.places, self.places)]

    def pieces(
        self, chunk: int, triangle: Shaped[np.ndarray, "entries"], second: Shaped[np.ndarray, "d c"]
    ) -> Shaped[np.ndarray, "size"]:
        """Return the pieces of a chunk, from the upper triangle of a symmetric matrix, row by row, and a second matrix.

        >>> Bands(rows=3, adders=2, outputs=1).pieces(0, np.arange(6), np.array([[6], [7], [8]]))
        array([0, 1, 2, 6, 3, 4, 5, 7, 8])
        """
        made = np.empty(self.chunk_size(chunk), triangle.dtype)
        for number in self.chunk(chunk * self.adders):
            entries, piece = self._places_of(number), made[self.within(number)]
            np.take(triangle, entries, out=piece[: len(entries)], mode="clip")  # others would copy; none is outside
            piece[len(entries) :] = second[self.rows_of(number)].ravel()
        return made

    def _places_of(self, number: int) -> Int[np.ndarray, "entries"]:
        """Return where the entries of a piece stand in the upper triangle."""
        return self._kept_places[number] if self._kept_places else self._found_places(number)

    @cached_property
    def _kept_places(self) -> list[Int[np.ndarray, "entries"]]:
        few = self.rows * (self.rows + 1) // 2 <= _MOST_KEPT
        return [self._found_places(number) for number in range(self.count)] if few else []

    def _found_places(self, number: int) -> Int[np.ndarray, "entries"]:
        rows, upper = self.rows_of(number), np.triu_indices(self.height(number))
        earlier = self.order[: self.before(number)]
        blocks = [
            np.meshgrid(rows, other, indexing="ij") for other in (earlier, *map(self.rows_of, self.held_by(number)))
        ]
        pairs = [(rows[upper[0]], rows[upper[1]]), *((a.ravel(), b.ravel()) for a, b in blocks)]
        first, second = (np.concatenate(each) for each in zip(*pairs, strict=True))
        row, column = np.minimum(first, second), np.maximum(first, second)
        return np.asarray(row * (2 * self.rows - row - 1) // 2 + column)

    def unpack(
        self, number: int, piece: Shaped[np.ndarray, "size"]
    ) -> tuple[dict[int, Shaped[np.ndarray, "rows _"]], Shaped[np.ndarray, "rows c"]]:
        """Return the blocks of a piece by band, with the full diagonal block, and the rows of the second matrix."""
        own = self.height(number)
        upper, entries = np.triu_indices(own), own * (own + 1) // 2
        diagonal = np.empty((own, own), piece.dtype)
        diagonal[upper] = diagonal.T[upper] = piece[:entries]
        start = entries + own * self.before(number)
        earlier = piece[entries:start].reshape(own, self.before(number))
        blocks = {other: earlier[:, self.band(other)] for other in range(self.chunk(number).start)}
        blocks[number] = diagonal
        for other in self.held_by(number):
            width = self.height(other)
            blocks[other] = piece[start : start + own * width].reshape(own, width)
            start += own * width
        return blocks, piece[start:].reshape(own, self.outputs)

    def joined(
        self, number: int, blocks: Mapping[int, Shaped[np.ndarray, "rows _"]]
    ) -> Shaped[np.ndarray, "rows known"]:
        """Concatenate the blocks of a band, one for each band up to its chunk, to its rows."""
        bands = range(self.chunk(number).stop)
        missing = [other for other in bands if other not in blocks]
        if missing:
            raise ValueError(f"band {number} lacks the blocks of {missing}; pass one block for each band")
        return np.concatenate([blocks[other] for other in bands], axis=1)
