"""The device's side of ``coded-padded``: it pads its data once, and combines the padded data of its window."""

from typing import final

import numpy as np
from jaxtyping import UInt64

from codedfl.cipher.seals import FIELD_48, PadLedger, packed_size, seal, unpack_upper
from codedfl.codes.gradient_code import GradientCode
from codedfl.schemes.contract import Device
from codedfl.schemes.messages import Message, Work
from codedfl.schemes.sealing import Formats
from codedfl.schemes.sharing.sealed import pad_of
from codedfl.task import Shard

EVERYTHING = 0
"""The block number of the one pad of a device: it covers the triangle of its Gram matrix and then its moments."""


def split(
    vector: UInt64[np.ndarray, "size"], features: int, outputs: int
) -> tuple[UInt64[np.ndarray, "triangle"], UInt64[np.ndarray, "d c"]]:
    """Return the upper triangle and the moments of what travels as one vector."""
    size = packed_size(features)
    return vector[:size], vector[size:].reshape(features, outputs)


@final
class CodedPaddedDevice(Device):
    """Owner of one part, and holder of one combination of the parts of its window."""

    def __init__(self, index: int, shard: Shard, formats: Formats, code: GradientCode) -> None:
        self._index = index
        self._formats = formats
        self._code = code
        self._shape = shard.moments.shape
        self._shard: Shard | None = shard
        self._ledger = PadLedger()
        self._parcel: Message = {}
        self._unsent = code.alpha - 1
        self._coded = np.zeros(packed_size(self._shape[0]) + shard.moments.size, FIELD_48.dtype)
        self._held: UInt64[np.ndarray, "d d"] | None = None

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Answer the first epoch with the coded moments, every other with the coded product."""
        if self._shard is not None and self._code.alpha == 1:  # nobody asked for the data, so they need no pad
            self._add(self._index, self._encoded(self._shard), work)
            self._shard = None
        triangle, moments = split(self._coded, *self._shape)
        if epoch == 1:
            return {"moments": FIELD_48.to_wire(moments)}
        if self._held is None:
            self._held = unpack_upper(triangle)
        model = FIELD_48.from_wire(request["model"])
        work.macs += model.size * self._held.shape[1]
        return {"product": FIELD_48.to_wire(FIELD_48.product(model, self._held))}

    def export(self, grant: Message, work: Work) -> Message:
        """Return the padded data, the same for every recipient; the first grant holds the seed of the pad."""
        if "seed" in grant:
            self._pad(grant, work)
        if not self._unsent:
            raise RuntimeError(f"device {self._index} has sent its data to all that hold them")
        parcel = self._parcel
        self._unsent -= 1
        if not self._unsent:
            self._parcel = {}
        return parcel

    def absorb(self, parcel: Message, work: Work) -> None:
        """Add a multiple of another device's padded data to the own combination."""
        self._add(int(parcel["owner"]), FIELD_48.from_wire(parcel["words"]), work)

    def _pad(self, grant: Message, work: Work) -> None:
        if self._shard is None:
            raise RuntimeError(f"device {self._index} has padded its data before")
        padded, self._shard = self._encoded(self._shard), None
        work.add(padded.size)
        seal(padded, pad_of(FIELD_48, self._index, grant, EVERYTHING), self._ledger)
        self._add(self._index, padded, work)
        self._parcel = {"owner": np.array(self._index, np.int32), "words": FIELD_48.to_wire(padded)}

    def _encoded(self, shard: Shard) -> UInt64[np.ndarray, "size"]:
        moments = self._formats.moments.encode(-shard.moments).reshape(-1)
        return np.concatenate([self._formats.gram.encode_symmetric(shard.gram), moments])

    def _add(self, owner: int, part: UInt64[np.ndarray, "size"], work: Work) -> None:
        factor = self._code.matrix[self._index][owner]
        if not factor or self._held is not None:
            raise RuntimeError(f"the data of device {owner} are none that device {self._index} combines now")
        work.add(part.size)
        FIELD_48.add_multiple(self._coded, factor, part)
