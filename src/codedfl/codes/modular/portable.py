"""Modular arithmetic in NumPy, for machines without a compiler: the functions of the compiled kernels, bit for bit.

A product is computed on limbs of 16 bits in float64, where sums of 2^20 products of limbs are exact; the sums of limbs
whose places add up to k count 2^(16 k). Columns are taken in tiles, so that limbs take little memory.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64, UInt64
from numpy.typing import NDArray

from codedfl.codes.modular import PRIME_31, PRIME_48, PRIME_61

_LIMB_BITS = np.uint64(16)
_LIMB = np.uint64(2**16 - 1)
_TILE = 256
_ROWS = 1 << 18
"""Rows after which sums are joined: four products of limbs a row stay below 2^53."""
_BLOCK = 1 << 16
"""Numbers that are worked on at a time, so that they stay in the cache."""
_P_61 = np.uint64(PRIME_61)
_P_48 = np.uint64(PRIME_48)
_P_31 = np.uint64(PRIME_31)
Words = NDArray[np.unsignedinteger]
Join = Callable[[list[UInt64[np.ndarray, "c b"]]], UInt64[np.ndarray, "c b"]]


def _limbs(words: Words, count: int) -> list[Float64[np.ndarray, "..."]]:
    wide = words.astype(np.uint64)
    return [((wide >> np.uint64(16 * place)) & _LIMB).astype(np.float64) for place in range(count)]


def _product(
    left: Words, right: Words, out: Words, columns: tuple[int, int], limbs: int, places: int, join: Join
) -> None:
    """Write the columns of left @ right: ``join`` makes residues of the sums by place, of which ``places`` count."""
    c, d = left.shape
    out[:, slice(*columns)] = 0
    for top in range(0, d, _ROWS):
        factors = np.concatenate(_limbs(left[:, top : top + _ROWS], limbs))
        for start in range(*columns, _TILE):
            tile = slice(start, min(start + _TILE, columns[1]))
            sums = [np.zeros((c, tile.stop - start), np.uint64) for _ in range(places)]
            for place, limb in enumerate(_limbs(right[top : top + _ROWS, tile], limbs)):
                count = min(limbs, places - place)
                found = (factors[: c * count] @ limb).astype(np.uint64)
                for other in range(count):
                    sums[place + other] += found[c * other : c * (other + 1)]
            sums.append(out[:, tile].astype(np.uint64))
            out[:, tile] = join(sums)


def _wrapped(sums: list[UInt64[np.ndarray, "c b"]]) -> UInt64[np.ndarray, "c b"]:
    total = sums[-1]
    for place, each in enumerate(sums[:-1]):
        total = total + (each << np.uint64(16 * place))
    return total


def _joined_31(sums: list[UInt64[np.ndarray, "c b"]]) -> UInt64[np.ndarray, "c b"]:
    *places, before = sums
    total = places[-1] % _P_31
    for each in reversed(places[:-1]):
        total = ((total << _LIMB_BITS) + each % _P_31) % _P_31
    return np.asarray((total + before) % _P_31)


def _joined_48(sums: list[UInt64[np.ndarray, "c b"]]) -> UInt64[np.ndarray, "c b"]:
    *places, before = sums
    total = places[-1] % _P_48
    for each in reversed(places[:-1]):
        total = ((total << _LIMB_BITS) % _P_48 + each % _P_48) % _P_48  # a residue of 48 bits, shifted, fits 64
    return np.asarray((total + before) % _P_48)


def _turned_61(residues: UInt64[np.ndarray, "..."], bits: int) -> UInt64[np.ndarray, "..."]:
    """Multiply residues by 2^bits: their 61 bits turn."""
    return np.asarray(((residues << np.uint64(bits)) & _P_61) | (residues >> np.uint64(61 - bits)))


def _joined_61(sums: list[UInt64[np.ndarray, "c b"]]) -> UInt64[np.ndarray, "c b"]:
    *places, before = sums
    total = _residue_61(places[-1])
    for each in reversed(places[:-1]):
        total = _residue_61(_turned_61(total, 16) + _residue_61(each))
    return _residue_61(total + before)


def _residue_61(words: UInt64[np.ndarray, "..."]) -> UInt64[np.ndarray, "..."]:
    folded = (words & _P_61) + (words >> np.uint64(61))
    return np.asarray(np.minimum(folded, folded - _P_61))


def product_wrapping(left: Words, right: Words, out: Words, first: int, last: int) -> None:
    """Columns first..last-1 of left @ right into ``out``, modulo 2^32 or 2^64 as the words of all three wrap."""
    limbs = out.dtype.itemsize // 2
    _product(left, right, out, (first, last), limbs, limbs, _wrapped)


product_64 = product_wrapping


def product_31(left: Words, right: Words, out: Words, first: int, last: int) -> None:
    """Columns first..last-1 of left @ right modulo 2^31 - 1 into ``out``."""
    _product(left, right, out, (first, last), 2, 3, _joined_31)


def product_48(left: Words, right: Words, out: Words, first: int, last: int) -> None:
    """Columns first..last-1 of left @ right modulo 2^48 - 59 into ``out``."""
    _product(left, right, out, (first, last), 3, 5, _joined_48)


def product_61(left: Words, right: Words, out: Words, first: int, last: int) -> None:
    """Columns first..last-1 of left @ right modulo 2^61 - 1 into ``out``."""
    _product(left, right, out, (first, last), 4, 7, _joined_61)


def _add(left: Words, right: Words, out: Words, prime: int) -> None:
    modulus = out.dtype.type(prime)
    for at in range(0, out.size, _BLOCK):
        part = slice(at, at + _BLOCK)
        total = left[part] + right[part]
        np.minimum(total, total - modulus, out=out[part])


def _subtract(left: Words, right: Words, out: Words, prime: int) -> None:
    modulus = out.dtype.type(prime)
    for at in range(0, out.size, _BLOCK):
        part = slice(at, at + _BLOCK)
        total = left[part] - right[part]
        np.minimum(total, total + modulus, out=out[part])


def _reduce(words: Words, bits: int, prime: int) -> int:
    words &= words.dtype.type(2**bits - 1)
    return int(np.count_nonzero(words >= words.dtype.type(prime)))


def add_31(left: Words, right: Words, out: Words) -> None:
    """left + right modulo 2^31 - 1; ``out`` may be either."""
    _add(left, right, out, PRIME_31)


def add_48(left: Words, right: Words, out: Words) -> None:
    """left + right modulo 2^48 - 59; ``out`` may be either."""
    _add(left, right, out, PRIME_48)


def add_61(left: Words, right: Words, out: Words) -> None:
    """left + right modulo 2^61 - 1; ``out`` may be either."""
    _add(left, right, out, PRIME_61)


def subtract_31(left: Words, right: Words, out: Words) -> None:
    """left - right modulo 2^31 - 1; ``out`` may be either."""
    _subtract(left, right, out, PRIME_31)


def subtract_48(left: Words, right: Words, out: Words) -> None:
    """left - right modulo 2^48 - 59; ``out`` may be either."""
    _subtract(left, right, out, PRIME_48)


def subtract_61(left: Words, right: Words, out: Words) -> None:
    """left - right modulo 2^61 - 1; ``out`` may be either."""
    _subtract(left, right, out, PRIME_61)


def add_multiple_31(total: Words, factor: np.uint32, block: Words) -> None:
    """Add factor * block to ``total`` modulo 2^31 - 1, in place."""
    for at in range(0, total.size, _BLOCK):
        part = slice(at, at + _BLOCK)
        total[part] = (total[part] + np.uint64(factor) * block[part].astype(np.uint64)) % _P_31


def add_multiple_48(total: Words, factor: np.uint64, block: Words) -> None:
    """Add factor * block to ``total`` modulo 2^48 - 59, in place."""
    low, high = int(factor) & (2**24 - 1), int(factor) >> 24
    for at in range(0, total.size, _BLOCK):
        part = slice(at, at + _BLOCK)
        x = block[part]
        x0, x1 = x & np.uint64(2**24 - 1), x >> np.uint64(24)
        middle = (np.uint64(low) * x1 + np.uint64(high) * x0) % _P_48
        outer = (np.uint64(high) * x1) % _P_48
        for _ in range(2):  # twelve bits at a time: a residue of 48 bits stays below 2^60
            middle, outer = (middle << np.uint64(12)) % _P_48, (outer << np.uint64(12)) % _P_48
        for _ in range(2):
            outer = (outer << np.uint64(12)) % _P_48
        total[part] = (total[part] + (np.uint64(low) * x0) % _P_48 + middle + outer) % _P_48


def add_multiple_61(total: Words, factor: np.uint64, block: Words) -> None:
    """Add factor * block to ``total`` modulo 2^61 - 1, in place."""
    t0, t1 = np.uint64(int(factor) & (2**30 - 1)), np.uint64(int(factor) >> 30)
    for at in range(0, total.size, _BLOCK):
        part = slice(at, at + _BLOCK)
        x0, x1 = block[part] & np.uint64(2**31 - 1), block[part] >> np.uint64(31)
        outer = _residue_61(t0 * x0 + t1 * x1)
        first, second = _turned_61(_residue_61(t1 * x0), 30), _turned_61(_residue_61(t0 * x1), 31)
        product = _residue_61(outer + first + second)
        added = total[part] + product
        np.minimum(added, added - _P_61, out=total[part])


def reduce_31(words: Words) -> int:
    """Keep the low 31 bits of every word, in place; the number of words that then equal p, which is no residue."""
    return _reduce(words, 31, PRIME_31)


def reduce_48(words: Words) -> int:
    """Keep the low 48 bits of every word, in place; the number of words that then are p or more: no residues."""
    return _reduce(words, 48, PRIME_48)


def reduce_61(words: Words) -> int:
    """Keep the low 61 bits of every word, in place; the number of words that then equal p, which is no residue."""
    return _reduce(words, 61, PRIME_61)


def pack_48(residues: Words, words: Words) -> None:
    """Three words of 16 bits for each residue, the lowest first."""
    for place in range(3):
        words[place::3] = (residues >> np.uint64(16 * place)).astype(np.uint16)


def unpack_48(words: Words, residues: Words) -> int:
    """The residues of packed words; how many of them are p or more, and so are none."""
    residues[:] = words[2::3]
    for place in (1, 0):
        residues <<= _LIMB_BITS
        residues |= words[place::3]
    return int(np.count_nonzero(residues >= _P_48))
