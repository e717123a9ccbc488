"""The idx format of MNIST and Fashion-MNIST: a small header, then unsigned bytes."""

import math
import struct

import numpy as np
from jaxtyping import UInt8

from codedfl.errors import DataError

UNSIGNED_BYTE = 0x08


def read_idx(raw: bytes, name: str, rank: int) -> UInt8[np.ndarray, "..."]:
    """Return the array of an uncompressed idx file; ``name`` is used in errors only."""
    # two zero bytes, the element type, the number of dimensions, and each dimension as a big-endian 32-bit number
    header = 4 + 4 * rank
    if len(raw) < header:
        raise DataError(
            f"{name} is truncated: it has {len(raw)} bytes where the idx header alone needs {header}; fetch it again."
        )
    if raw[:4] != bytes((0, 0, UNSIGNED_BYTE, rank)):
        raise DataError(
            f"{name} is not an idx file of unsigned bytes with {rank} dimensions:"
            f" it begins with 0x{raw[:4].hex()}; fetch it again or give an uncompressed idx file."
        )
    shape = struct.unpack(f">{rank}I", raw[4:header])
    expected = header + math.prod(shape)
    if len(raw) != expected:
        raise DataError(
            f"{name} has {len(raw)} bytes where its header promises {expected};"
            " it is truncated or altered, so fetch it again."
        )
    return np.frombuffer(raw, dtype=np.uint8, offset=header).reshape(shape)
