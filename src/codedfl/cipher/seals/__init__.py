"""Seals: one-time pads from AES-256 on fixed-point residues.

>>> import numpy as np
>>> A, theta = np.eye(3), np.ones((3, 1))
>>> numbers = FixedPoint.choose(Z_32, entry_bound=2.0, summands=1, dimension=3)
>>> pad = Pad(Z_32, Seed(), Domain(device=7, export=0))  # device and server share the seed over a secure channel
>>> C = seal(numbers.encode_symmetric(A), pad, PadLedger())  # device: upper triangle
>>> model = numbers.encode_model(theta)  # server
>>> reply = Z_32.product(model.residues, unpack_upper(C))  # another device, on sealed data
>>> mask = Z_32.product(model.residues, unpack_upper(pad.residues(C.size)))  # server, from the seed
>>> numbers.decode_product(Z_32.subtract(reply, mask), model).tolist()  # theta^T A, both rounded
[[1.0, 1.0, 1.0]]
"""

from codedfl.cipher.seals.fixed_point import EncodedModel, FixedPoint
from codedfl.cipher.seals.pads import Domain, Pad, PadLedger, Seed, seal
from codedfl.cipher.seals.rings import (
    FIELD_31,
    FIELD_48,
    FIELD_61,
    RINGS,
    Z_32,
    Z_64,
    PowerOfTwoRing,
    PrimeField,
    Ring,
)
from codedfl.cipher.seals.triangles import pack_upper, packed_size, unpack_upper

__all__ = [
    "FIELD_31",
    "FIELD_48",
    "FIELD_61",
    "RINGS",
    "Z_32",
    "Z_64",
    "Domain",
    "EncodedModel",
    "FixedPoint",
    "Pad",
    "PadLedger",
    "PowerOfTwoRing",
    "PrimeField",
    "Ring",
    "Seed",
    "pack_upper",
    "packed_size",
    "seal",
    "unpack_upper",
]
