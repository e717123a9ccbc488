"""Public sizes of the sealed and coded scheme: who adds up which bands, and which part of a coded block follows."""

from collections.abc import Sequence
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import UInt

from codedfl.cipher.masks.graph import MaskGraph
from codedfl.cipher.masks.pairwise import KEY_BYTES
from codedfl.cipher.seals import PrimeField
from codedfl.codes.mds import MdsCode
from codedfl.schemes.coded.placing.bands import Bands
from codedfl.schemes.coded.placing.groups import GROUP, Groups
from codedfl.schemes.messages import Layout
from codedfl.schemes.public import Public

PIECE, BLOCK, PART, REPAIR, KEY, SUM = range(6)
"""The kinds of parcels: a sealed piece, a block of a band, a part of a coded block, a whole coded block, a mask key, a
sum of pieces over some groups."""
CHUNKS = 4
"""Into how many chunks the matrix is cut, where devices send on what is complete while the rest arrives."""
MOST_CHUNKED = 256
"""Devices up to which there are several chunks, each of which takes a parcel for every two devices of a group."""


@final
class BlockLayout:
    """Bands of rows, the groups that add them up, K column blocks of equal width (zeros fill the last), and the code.

    ``graph`` says which devices share a mask; None: there are no masks.
    """

    def __init__(
        self, public: Public, threshold: int, field: PrimeField, graph: MaskGraph | None, *, overlap: bool
    ) -> None:
        d, n = public.features, public.devices
        self._graph = graph
        adders = min(d, n if n < 2 * GROUP else GROUP)
        width = -(-d // threshold)
        self.overlaps = overlap and public.delays is not None
        fitting = width // adders if self.overlaps and n <= MOST_CHUNKED else 1
        self.bands = Bands(d, adders, public.outputs, threshold, max(1, min(CHUNKS, fitting)))
        self.groups = Groups(n, adders)
        self.code = MdsCode(n, threshold, field.modulus)
        self.width = width
        self._field = field

    @property
    def masked(self) -> bool:
        """Whether devices put masks under their seals."""
        return self._graph is not None

    @property
    def neighbours(self) -> int:
        """With how many others each device shares a mask."""
        return 0 if self._graph is None else self._graph.size - 1

    def sharing_masks(self, device: int) -> frozenset[int]:
        """Return the devices that share a mask with a device."""
        return frozenset(() if self._graph is None else self._graph.circle(device)) - {device}

    def owner(self, number: int) -> int:
        """Return the device that has a band of the sum over all devices."""
        return self.groups.device(number % self.bands.adders)

    def added_by(self, device: int) -> range:
        """Return the bands that a device adds up, over its group and those below."""
        adder = self.groups.adder(device)
        return range(0) if adder is None else range(adder, self.bands.count, self.bands.adders)

    def owned_by(self, device: int) -> range:
        """Return the bands that a device has of the sum over all devices."""
        return self.added_by(device) if device % self.groups.count == 0 else range(0)

    def part_size(self, number: int) -> int:
        """Return the number of entries of the part of a coded block that follows from a band."""
        bands = self.bands
        rows = bands.height(number) * bands.coded_after(number)
        return rows + bands.before(number) * self._columns(number)

    def _columns(self, number: int) -> int:
        if number < self.bands.adders:
            return 0
        units = self.bands.units(number)
        return int(units.stop) - int(units.start)

    def spread(self, number: int, rows: UInt[np.ndarray, "rows columns"]) -> list[UInt[np.ndarray, "K ..."]]:
        """Arrange the joined rows of a band by the K column blocks: for coded rows, then for coded columns if any."""
        bands, K = self.bands, self.code.K
        grid, inside = bands.grid(slice(0, bands.coded_after(number)))
        by_rows = np.zeros((K, grid.shape[1], len(rows)), rows.dtype)
        by_rows[inside] = rows.T[bands.places[grid[inside]]]
        if not self._columns(number):
            return [by_rows]
        grid, inside = bands.grid(bands.units(number))
        by_columns = np.zeros((*grid.shape, bands.before(number)), rows.dtype)
        by_columns[inside] = rows[:, : bands.before(number)]
        return [by_rows, by_columns]

    def part(self, worker: int, spread: Sequence[UInt[np.ndarray, "K ..."]]) -> UInt[np.ndarray, "size"]:
        """Return the part of a worker's coded block that follows from a band."""
        return np.concatenate([self.code.encode_block(worker, list(blocks)).ravel() for blocks in spread])

    def place(self, coded: UInt[np.ndarray, "d width"], number: int, part: UInt[np.ndarray, "size"]) -> None:
        """Write the part of a band into a coded block."""
        bands = self.bands
        width = bands.coded_after(number)
        end = bands.height(number) * width
        coded[bands.rows_of(number), :width] = part[:end].reshape(width, -1).T
        if columns := self._columns(number):
            coded[bands.order[: bands.before(number)], bands.units(number)] = part[end:].reshape(columns, -1).T

    def part_operations(self, number: int) -> int:
        """Return how many multiplications a part takes: one for each entry of the band that goes into each side."""
        return self.bands.height(number) * (self.bands.after(number) + self.bands.before(number))

    @property
    def word_bits(self) -> int:
        """Bits of a residue in a message."""
        return self._field.wire_bits

    @cached_property
    def sizes(self) -> dict[str, list[int]]:
        """Number of entries of the piece and of the part of each band."""
        numbers = range(self.bands.count)
        return {"piece": [*map(self.bands.size, numbers)], "part": [*map(self.part_size, numbers)]}

    def parcels(self, index: int) -> list[Layout]:
        """Return the layouts of parcels that a device may receive."""
        bands, wire = self.bands, self._field.wire_layout
        kind: Layout = {"kind": (np.dtype(np.int8), ())}
        named: Layout = {**kind, "band": (np.dtype(np.int32), ())}
        found: list[Layout] = [{**kind, "coded": wire(bands.rows, self.width)}]
        if self.masked:
            found.append({**kind, "key": (np.dtype(np.uint8), (KEY_BYTES,))})
        found += [{**named, "part": wire(size)} for size in sorted(set(self.sizes["part"]))]
        own = self.added_by(index)
        found += [{**named, "piece": wire(size)} for size in sorted({self.sizes["piece"][each] for each in own})]
        blocks = {
            (bands.height(other), bands.height(each)) for each in self.owned_by(index) for other in bands.chunk(each)
        }
        return found + [{**named, "block": wire(*shape)} for shape in sorted(blocks)]
