"""The rings that sealed sharing computes in: Z_2^32, Z_2^64 and prime fields of 31, 48 and 61 bits.

Residues are unsigned integers 0 .. modulus-1. The centred lift takes a residue to the signed integer of least
magnitude that is congruent to it, and is the inverse of ``residues`` on -modulus/2 .. modulus/2. Everything here is
exact. What is sent is ``to_wire`` of residues: the words they are held in, or fewer bits where those would be wasted.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, final

import numpy as np
from jaxtyping import Int64, Shaped, UInt

from codedfl.codes.modular import PRIME_31, PRIME_48, PRIME_61, WORD_BITS, arithmetic, kernel
from codedfl.codes.threads import on_all_cores
from codedfl.errors import CipherError

Residues = UInt[np.ndarray, "..."]
Kernel = Callable[[np.ndarray, np.ndarray, np.ndarray, int, int], None]

# below this many multiplications, waking a second thread costs more than it saves
_LEAST_THREADED_WORK = 200_000


class Ring(ABC):
    """A finite ring of residues: ``modulus``, the ``dtype`` they are held in and the ``bits`` that one needs."""

    modulus: int
    dtype: "np.dtype[Any]"
    bits: int
    name: str
    packed: bool = False
    """Whether residues are sent in fewer bits than they are held in."""

    @property
    def largest(self) -> int:
        """The largest centred value: integers of magnitude up to it are told apart."""
        return (self.modulus - 1) // 2

    @property
    def wire_bits(self) -> int:
        """How many bits of a message a residue takes."""
        return 8 * self.dtype.itemsize

    def wire_layout(self, *shape: int) -> tuple["np.dtype[Any]", tuple[int, ...]]:
        """Return number format and shape of residues in a message."""
        return np.dtype(self.dtype), shape

    def residues(self, integers: Int64[np.ndarray, "..."]) -> Residues:
        """Return the residues of signed integers."""
        return np.asarray(np.mod(integers, self.modulus)).astype(self.dtype)

    @abstractmethod
    def centred(self, residues: Residues) -> Int64[np.ndarray, "..."]:
        """Return the signed integers of least magnitude. Law: centred(residues(x)) = x for |x| <= largest."""

    def add(self, left: Residues, right: Residues, out: Residues | None = None) -> Residues:
        """Return left + right, in ``out`` if given, which may be ``left`` or ``right``."""
        self.check(left, right)
        return self._elementwise("add", left, right, out)

    def subtract(self, left: Residues, right: Residues, out: Residues | None = None) -> Residues:
        """Return left - right, in ``out`` if given, which may be ``left`` or ``right``."""
        self.check(left, right)
        return self._elementwise("subtract", left, right, out)

    @abstractmethod
    def _elementwise(self, name: str, left: Residues, right: Residues, out: Residues | None) -> Residues:
        """Add or subtract checked residues."""

    def product(
        self, left: UInt[np.ndarray, "c d"], right: UInt[np.ndarray, "d b"], *, workers: int | None = None
    ) -> UInt[np.ndarray, "c b"]:
        """Return left @ right in the ring, on ``workers`` threads (default: all cores)."""
        self.check(left, right)
        columns, kernel = right.shape[1], self._kernel()
        out = np.empty((left.shape[0], columns), self.dtype)
        left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
        if left.size * columns < _LEAST_THREADED_WORK:
            kernel(left, right, out, 0, columns)
        else:
            on_all_cores(partial(kernel, left, right, out), columns, workers=workers)
        return out

    @abstractmethod
    def _kernel(self) -> Kernel:
        """Return the product on a range of columns."""

    def wire_product(
        self, left: UInt[np.ndarray, "c d"], right: UInt[np.ndarray, "d b"]
    ) -> UInt[np.ndarray, "c b *words"]:
        """Return left @ right as it is sent. Law: from_wire(wire_product(x, y)) = product(x, y)."""
        product = self.product(left, right)
        return self.to_wire(product) if self.packed else product

    def to_wire(self, residues: Residues) -> UInt[np.ndarray, "..."]:
        """Return the words that are sent. Law: from_wire(to_wire(x)) = x."""
        self.check(residues)
        return residues

    def unpack(self, words: UInt[np.ndarray, "..."]) -> tuple[Residues, int]:
        """Return the residues of words that were sent, and how many of them are none."""
        self.check(words)
        return words, 0

    @final
    def from_wire(self, words: UInt[np.ndarray, "..."]) -> Residues:
        """Return the residues of words that were sent; refuse words that are none: kernels would compute with them."""
        residues, outside = self.unpack(words)
        if outside:
            raise CipherError(f"{outside} of {residues.size} numbers that were sent are no residues of {self.name}.")
        return residues

    @final
    def read(
        self, message: Mapping[str, Shaped[np.ndarray, "..."]], name: str, shape: tuple[int, ...], who: str
    ) -> Residues:
        """Return the residues of an array that another party sent; refuse any other shape, and words that are none."""
        if name not in message:
            raise CipherError(f"{who} is refused: it has no array '{name}'.")
        try:
            residues = self.from_wire(message[name])
        except CipherError as error:
            raise CipherError(f"{who} is refused: {error}") from None
        if residues.shape != shape:
            raise CipherError(f"{who} is refused: '{name}' has the shape {residues.shape} instead of {shape}.")
        return residues

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
        """Return the residues of signed integers."""
        return integers.astype(self.dtype)

    def centred(self, residues: Residues) -> Int64[np.ndarray, "..."]:
        """Return the signed integers of least magnitude; of +-modulus/2, the negative one."""
        self.check(residues)
        return residues.view(self._signed).astype(np.int64)

    def _elementwise(self, name: str, left: Residues, right: Residues, out: Residues | None) -> Residues:
        return np.asarray(getattr(np, name)(left, right, out=out))

    def _kernel(self) -> Kernel:
        return kernel("product_wrapping" if self.bits == 32 else "product_64")


_PRIMES = {31: (PRIME_31, "GF(2^31-1)"), 48: (PRIME_48, "GF(2^48-59)"), 61: (PRIME_61, "GF(2^61-1)")}


@final
class PrimeField(Ring):
    """The field of 2^31 - 1, 2^48 - 59 or 2^61 - 1 elements: every residue but zero has an inverse, as codes need.

    On the wire a residue is a word of 32 or 64 bits; of the second field it is three words of 16 bits, the lowest
    first, along a last axis.
    """

    def __init__(self, bits: int) -> None:
        if bits not in _PRIMES:
            raise ValueError(f"no prime field of {bits} bits is built: choose 31, 48 or 61 bits")
        (self.modulus, self.name), self.bits = _PRIMES[bits], bits
        self.dtype = np.dtype(f"uint{WORD_BITS[self.modulus]}")
        self.packed = bits == 48

    def centred(self, residues: Residues) -> Int64[np.ndarray, "..."]:
        """Return the signed integers of least magnitude."""
        self.check(residues)
        signed = residues.astype(np.int64)
        signed[signed > self.largest] -= self.modulus
        return signed

    def add_multiple(self, total: Residues, factor: int, block: Residues) -> None:
        """Add factor * block to ``total``, in place."""
        self.check(total, block)
        if total.shape != block.shape or not total.flags.c_contiguous:
            raise CipherError(
                f"A multiple of shape {block.shape} cannot be added to {total.shape}: give equal shapes, and a total "
                "in one piece of memory."
            )
        residue = self.dtype.type(factor % self.modulus)
        arithmetic(self.modulus)["add_multiple"](total.reshape(-1), residue, np.ascontiguousarray(block).reshape(-1))

    def keep_low_bits(self, words: UInt[np.ndarray, "count"]) -> int:
        """Keep the low ``bits`` bits of every word, in place; return the number of words that are then no residues."""
        self.check(words)
        return int(arithmetic(self.modulus)["reduce"](words))

    @property
    def wire_bits(self) -> int:
        """How many bits of a message a residue takes."""
        return 48 if self.packed else super().wire_bits

    def wire_layout(self, *shape: int) -> tuple["np.dtype[Any]", tuple[int, ...]]:
        """Return number format and shape of residues in a message."""
        return (np.dtype(np.uint16), (*shape, 3)) if self.packed else super().wire_layout(*shape)

    def to_wire(self, residues: Residues) -> UInt[np.ndarray, "..."]:
        """Return the words that are sent. Law: from_wire(to_wire(x)) = x."""
        self.check(residues)
        if not self.packed:
            return residues
        words = np.empty((*residues.shape, 3), np.uint16)
        kernel("pack_48")(np.ascontiguousarray(residues).reshape(-1), words.reshape(-1))
        return words

    def unpack(self, words: UInt[np.ndarray, "..."]) -> tuple[Residues, int]:
        """Return the residues of words that were sent, and how many of them are none."""
        if not self.packed:
            self.check(words)
            return words, int(np.count_nonzero(words >= self.modulus))
        if words.dtype != np.uint16 or words.shape[-1:] != (3,):
            raise CipherError(
                f"Residues of {self.name} are sent as three words of 16 bits each, and these are {words.dtype} of "
                f"shape {words.shape}: send what to_wire gives."
            )
        residues = np.empty(words.shape[:-1], self.dtype)
        outside = kernel("unpack_48")(np.ascontiguousarray(words).reshape(-1), residues.reshape(-1))
        return residues, int(outside)

    def _elementwise(self, name: str, left: Residues, right: Residues, out: Residues | None) -> Residues:
        compute = arithmetic(self.modulus)[name]
        if left.shape != right.shape:
            raise CipherError(f"Residues of shapes {left.shape} and {right.shape} do not fit: give equal shapes.")
        result = np.empty(left.shape, self.dtype) if out is None else out
        target = result if result.flags.c_contiguous else np.empty(left.shape, self.dtype)
        compute(np.ravel(left), np.ravel(right), target.reshape(-1))
        if target is not result:
            result[...] = target
        return result

    def _kernel(self) -> Kernel:
        return arithmetic(self.modulus)["product"]


Z_32 = PowerOfTwoRing(32)
Z_64 = PowerOfTwoRing(64)
FIELD_31 = PrimeField(31)
FIELD_48 = PrimeField(48)
FIELD_61 = PrimeField(61)
RINGS: dict[str, Ring] = {ring.name: ring for ring in (Z_32, Z_64, FIELD_31, FIELD_48, FIELD_61)}
