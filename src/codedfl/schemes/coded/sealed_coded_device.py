"""The device's side of ``sealed-coded``: owner of data, adder of one band of rows, and perhaps a worker."""

from typing import final

import numpy as np
from jaxtyping import UInt32

from codedfl.cipher.seals import FIELD_31, PadLedger, seal, unpack_upper
from codedfl.codes.mds import MdsCode
from codedfl.schemes.coded.placement import Bands
from codedfl.schemes.contract import Device, Public
from codedfl.schemes.messages import Message, Work
from codedfl.schemes.sealing import Formats
from codedfl.schemes.sharing.sealed import pad_of
from codedfl.task import Shard

PIECE, BLOCK, PART, REPAIR = range(4)
"""The kinds of parcels: a sealed piece, a block of a band, a part of a coded block, a whole coded block."""


@final
class Layout:
    """The sizes that everybody knows: bands of rows, K column blocks of equal width (zeros fill the last), the code."""

    def __init__(self, public: Public, threshold: int) -> None:
        self.bands = Bands(public.features, min(public.devices, public.features), public.outputs)
        self.code = MdsCode(public.devices, threshold)
        self.width = -(-public.features // threshold)

    def coded_rows(self, worker: int, rows: UInt32[np.ndarray, "rows d"]) -> UInt32[np.ndarray, "rows width"]:
        """Return rows of a worker's coded block, from the same rows of the whole matrix."""
        padded = np.zeros((len(rows), self.width * self.code.K), rows.dtype)
        padded[:, : rows.shape[1]] = rows
        blocks = [padded[:, k * self.width : (k + 1) * self.width] for k in range(self.code.K)]
        return self.code.encode_block(worker, blocks)


@final
class SealedCodedDevice(Device):
    """Owner of data, adder of one band, and perhaps a worker."""

    def __init__(self, index: int, shard: Shard, formats: Formats, layout: Layout) -> None:
        self._index = index
        self._formats = formats
        self._layout = layout
        self._shard: Shard | None = shard
        self._ledger = PadLedger()
        self._pieces: dict[int, UInt32[np.ndarray, "size"]] = {}
        self._sum: UInt32[np.ndarray, "size"] | None = None
        self._blocks: dict[int, UInt32[np.ndarray, "rows columns"]] = {}
        self._moments: UInt32[np.ndarray, "rows c"] | None = None
        self._coded: UInt32[np.ndarray, "d width"] | None = None

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Answer the first epoch with the own band of the summed moments, every other with a coded product."""
        if epoch == 1:
            self._unpack()
            return {} if self._moments is None else {"moments": self._moments}
        if self._coded is None:
            raise RuntimeError(f"device {self._index} is no worker")
        model = request["model"]
        work.macs += model.size * self._coded.shape[1]
        return {"product": FIELD_31.product(model, self._coded)}

    def export(self, grant: Message, work: Work) -> Message:
        """Return what the grant asks for: a sealed piece, a block, a part of a coded block, or a whole one."""
        kind, target = int(grant["kind"]), int(grant["target"])
        if kind == PIECE:
            if not self._pieces:
                self._seal(grant, work)
            return {"kind": grant["kind"], "piece": self._pieces.pop(target)}
        if kind == BLOCK:
            self._unpack()
            return {"kind": grant["kind"], "band": np.array(self._index, np.int32), "block": self._blocks[target]}
        if kind == PART:
            return {"kind": grant["kind"], "band": np.array(self._index, np.int32), "part": self._part(target, work)}
        return {"kind": grant["kind"], "coded": self._scaled(grant["factor"], work)}

    def absorb(self, parcel: Message, work: Work) -> None:
        """Take in one parcel of any kind."""
        kind = int(parcel["kind"])
        if kind == PIECE:
            work.add(parcel["piece"].size)
            self._add(parcel["piece"])
        elif kind == BLOCK:
            self._unpack()
            self._blocks[int(parcel["band"])] = np.ascontiguousarray(parcel["block"].T)
        elif kind == PART:
            self._place(int(parcel["band"]), parcel["part"], work)
        else:
            work.add(parcel["coded"].size)
            total = parcel["coded"]
            self._coded = total if self._coded is None else FIELD_31.add(self._coded, total)

    def _seal(self, grant: Message, work: Work) -> None:
        """Seal everything once; the own piece goes straight into the own sum."""
        if self._shard is None:
            raise RuntimeError(f"device {self._index} has sealed its data before")
        bands, shard, self._shard = self._layout.bands, self._shard, None
        gram, moments = (
            unpack_upper(self._formats.gram.encode_symmetric(shard.gram)),
            self._formats.moments.encode(-shard.moments),
        )
        for number in range(bands.bands):
            piece = bands.piece(number, gram, moments)
            work.add(piece.size)
            self._pieces[number] = seal(piece, pad_of(FIELD_31, self._index, grant, number), self._ledger)
        if self._index in self._pieces:
            self._add(self._pieces.pop(self._index))

    def _add(self, piece: UInt32[np.ndarray, "size"]) -> None:
        self._sum = piece if self._sum is None else FIELD_31.add(self._sum, piece)

    def _unpack(self) -> None:
        """Turn the sum of pieces into blocks; nothing can be added after that."""
        if self._sum is not None:
            blocks, self._moments = self._layout.bands.unpack(self._index, self._sum)
            self._blocks.update(blocks)
            self._sum = None

    def _part(self, worker: int, work: Work) -> UInt32[np.ndarray, "rows width"]:
        rows = self._layout.bands.joined(self._index, self._blocks)
        work.add(rows.size)
        return self._layout.coded_rows(worker, rows)

    def _place(self, band: int, part: UInt32[np.ndarray, "rows width"], work: Work) -> None:
        bands = self._layout.bands
        if self._coded is None:
            self._coded = np.zeros((bands.rows, self._layout.width), np.uint32)
            if self._index < bands.bands:  # the own band is not sent
                self._coded[bands.band(self._index)] = self._part(self._index, work)
        self._coded[bands.band(band)] = part

    def _scaled(self, factor: UInt32[np.ndarray, ""], work: Work) -> UInt32[np.ndarray, "d width"]:
        if self._coded is None:
            raise RuntimeError(f"device {self._index} is no worker")
        work.add(self._coded.size)
        scaled = np.zeros_like(self._coded)
        FIELD_31.add_multiple(scaled, int(factor), self._coded)
        return scaled
