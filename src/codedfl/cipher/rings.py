"""The rings that sealed sharing computes in: Z_2^32, Z_2^64 and the field of 2^31 - 1 elements.

Residues are unsigned integers 0 .. modulus-1. The centred lift takes a residue to the signed integer of least
magnitude that is congruent to it, and is the inverse of ``residues`` on -modulus/2 .. modulus/2. Everything here is
exact.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, final

import numpy as np
from jaxtyping import Int64, UInt

from codedfl.codes import modular_kernels as kernels
from codedfl.codes.wrapping_64_kernels import product_64
from codedfl.errors import CipherError

__all__ = ["FIELD_31", "RINGS", "Z_32", "Z_64", "PowerOfTwoRing", "PrimeField", "Ring"]

Residues = UInt[np.ndarray, "..."]
Kernel = Callable[[np.ndarray, np.ndarray, np.ndarray, int, int], None]

# below this many multiplications, waking a second thread costs more than it saves
_WORTH_A_THREAD = 200_000


class Ring(ABC):
    """A finite ring of residues: ``modulus``, the ``dtype`` they are held in and the ``bits`` of one on the wire."""

    modulus: int
    dtype: "np.dtype[Any]"
    bits: int
    name: str

    @property
    def largest(self) -> int:
        """The largest centred value: integers of magnitude up to it are told apart."""
        return (self.modulus - 1) // 2

    def residues(self, integers: Int64[np.ndarray, "..."]) -> Residues:
        """The residues of signed integers."""
        return np.asarray(np.mod(integers, self.modulus)).astype(self.dtype)

    @abstractmethod
    def centred(self, residues: Residues) -> Int64[np.ndarray, "..."]:
        """The signed integers of least magnitude. Law: centred(residues(x)) = x for |x| <= largest."""

    @abstractmethod
    def add(self, left: Residues, right: Residues, out: Residues | None = None) -> Residues:
        """left + right, into ``out`` if given, which may be ``left`` or ``right``."""

    @abstractmethod
    def subtract(self, left: Residues, right: Residues, out: Residues | None = None) -> Residues:
        """left - right, into ``out`` if given, which may be ``left`` or ``right``."""

    def negate(self, residues: Residues, out: Residues | None = None) -> Residues:
        """Minus the residues."""
        return self.subtract(np.zeros_like(residues), residues, out)

    def product(
        self, left: UInt[np.ndarray, "c d"], right: UInt[np.ndarray, "d b"], *, workers: int | None = None
    ) -> UInt[np.ndarray, "c b"]:
        """left @ right in the ring, on all cores unless ``workers`` says otherwise."""
        self.check(left, right)
        out = np.empty((left.shape[0], right.shape[1]), self.dtype)
        left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
        if left.size * right.shape[1] < _WORTH_A_THREAD:
            workers = 1
        _by_columns(self._kernel(), left, right, out, workers or _cores())
        return out

    @abstractmethod
    def _kernel(self) -> Kernel:
        """The compiled product on a range of columns."""

    def check(self, *arrays: Residues) -> None:
        """Refuse arrays that do not hold residues of this ring's format."""
        for array in arrays:
            if array.dtype != self.dtype:
                raise CipherError(
                    f"Residues of {self.name} are {self.dtype} and these are {array.dtype}: encode them in this ring."
                )

    def __repr__(self) -> str:
        return self.name


@final
class PowerOfTwoRing(Ring):
    """Z_2^32 or Z_2^64: unsigned integers of the machine, which wrap by themselves."""

    def __init__(self, bits: int) -> None:
        if bits not in (32, 64):
            raise ValueError(f"the ring Z_2^{bits} is not built: choose 32 or 64 bits")
        self.modulus, self.bits, self.name = 2**bits, bits, f"Z_2^{bits}"
        self.dtype = np.dtype(np.uint32 if bits == 32 else np.uint64)
        self._signed = np.int32 if bits == 32 else np.int64

    def residues(self, integers: Int64[np.ndarray, "..."]) -> Residues:
        """The residues of signed integers."""
        return integers.astype(self.dtype)

    def centred(self, residues: Residues) -> Int64[np.ndarray, "..."]:
        """The signed integers of least magnitude; of +-modulus/2, the negative one."""
        self.check(residues)
        return residues.view(self._signed).astype(np.int64)

    def add(self, left: Residues, right: Residues, out: Residues | None = None) -> Residues:
        """left + right, into ``out`` if given, which may be ``left`` or ``right``."""
        self.check(left, right)
        return np.asarray(np.add(left, right, out=out))

    def subtract(self, left: Residues, right: Residues, out: Residues | None = None) -> Residues:
        """left - right, into ``out`` if given, which may be ``left`` or ``right``."""
        self.check(left, right)
        return np.asarray(np.subtract(left, right, out=out))

    def _kernel(self) -> Kernel:
        return kernels.product_wrapping if self.bits == 32 else product_64


@final
class PrimeField(Ring):
    """The field of p = 2^31 - 1 elements: every residue but zero has an inverse, so codes can be built over it."""

    def __init__(self) -> None:
        self.modulus, self.bits, self.name = kernels.PRIME, 31, "GF(2^31-1)"
        self.dtype = np.dtype(np.uint32)

    def centred(self, residues: Residues) -> Int64[np.ndarray, "..."]:
        """The signed integers of least magnitude."""
        self.check(residues)
        signed = residues.astype(np.int64)
        signed[signed > self.largest] -= self.modulus
        return signed

    def add(self, left: Residues, right: Residues, out: Residues | None = None) -> Residues:
        """left + right, into ``out`` if given, which may be ``left`` or ``right``."""
        return self._elementwise(kernels.add_31, left, right, out)

    def subtract(self, left: Residues, right: Residues, out: Residues | None = None) -> Residues:
        """left - right, into ``out`` if given, which may be ``left`` or ``right``."""
        return self._elementwise(kernels.subtract_31, left, right, out)

    def inverse(self, residues: Residues) -> Residues:
        """1 / residue for each residue, which must not be zero."""
        self.check(residues)
        if not np.all(residues):
            raise CipherError("Zero has no inverse in a field: give residues that are not zero.")
        inverses = [pow(int(residue), -1, self.modulus) for residue in residues.reshape(-1)]
        return np.array(inverses, self.dtype).reshape(residues.shape)

    def _elementwise(
        self, kernel: Callable[..., None], left: Residues, right: Residues, out: Residues | None
    ) -> Residues:
        self.check(left, right)
        if left.shape != right.shape:
            raise CipherError(f"Residues of shapes {left.shape} and {right.shape} do not fit: give equal shapes.")
        result = np.empty(left.shape, self.dtype) if out is None else out
        if not all(array.flags.c_contiguous for array in (left, right, result)):
            total = np.empty(left.shape, self.dtype)
            kernel(np.ravel(left), np.ravel(right), total.reshape(-1))
            result[...] = total
            return result
        kernel(left.reshape(-1), right.reshape(-1), result.reshape(-1))
        return result

    def _kernel(self) -> Kernel:
        return kernels.product_31


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_cores(), thread_name_prefix="ring")


# a forked child inherits the object and none of its threads
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def _by_columns(kernel: Kernel, left: np.ndarray, right: np.ndarray, out: np.ndarray, workers: int) -> None:
    columns = right.shape[1]
    share = -(-columns // workers)
    ranges = [(first, min(columns, first + share)) for first in range(0, columns, share)] if share else []
    others = [_pool().submit(kernel, left, right, out, first, last) for first, last in ranges[1:]]
    if ranges:
        kernel(left, right, out, *ranges[0])
    for other in others:
        other.result()


Z_32 = PowerOfTwoRing(32)
Z_64 = PowerOfTwoRing(64)
FIELD_31 = PrimeField()
RINGS: dict[str, Ring] = {ring.name: ring for ring in (Z_32, Z_64, FIELD_31)}
