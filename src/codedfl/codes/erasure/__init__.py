"""Erasure decoders behind one contract: ``prepare(code, erased) -> plan``, ``plan.decode(words)``."""

from collections.abc import Mapping
from types import MappingProxyType

from codedfl.codes.erasure.contract import ErasureDecoder
from codedfl.codes.erasure.inactivation import Inactivation
from codedfl.codes.erasure.least_squares import LeastSquares
from codedfl.codes.erasure.peeling import Peeling

__all__ = ["DECODERS"]

DECODERS: Mapping[str, ErasureDecoder] = MappingProxyType(
    {decoder.name: decoder for decoder in (Peeling(), Inactivation(), LeastSquares())}
)
"""Every decoder by name."""
