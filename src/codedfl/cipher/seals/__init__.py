"""Seals: one-time pads on fixed-point residues."""

from codedfl.cipher.seals.fixed_point import EncodedModel, FixedPoint
from codedfl.cipher.seals.pads import Domain, Pad, PadLedger, Seed, pad_product, seal, symmetric_pad_product
from codedfl.cipher.seals.rings import FIELD_31, FIELD_48, RINGS, Z_32, Z_64, PowerOfTwoRing, PrimeField, Ring
from codedfl.cipher.seals.triangles import pack_upper, packed_size, unpack_upper

__all__ = [
    "FIELD_31",
    "FIELD_48",
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
    "pad_product",
    "seal",
    "symmetric_pad_product",
    "unpack_upper",
]
