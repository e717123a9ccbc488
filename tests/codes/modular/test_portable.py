"""Arithmetic in NumPy has the bits of the compiled kernels, for all residues and shapes."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.codes.modular import _MODULES, PRIME_31, PRIME_48, PRIME_61, portable

FIELDS = {31: (PRIME_31, np.uint32), 48: (PRIME_48, np.uint64), 61: (PRIME_61, np.uint64)}
seeds = st.integers(0, 2**32 - 1)


def compiled(name: str) -> Callable[..., Any]:
    module = next((module for module, names in _MODULES.items() if name in names), "kernels")
    return getattr(import_module(f"codedfl.codes.modular.{module}"), name)  # type: ignore[no-any-return]


def residues(rng: np.random.Generator, prime: int, dtype: Any, *shape: int) -> np.ndarray:
    """Random residues, half of them at the ends of the range, where sums are largest."""
    found = rng.integers(0, prime, shape, np.uint64)
    ends = np.where(rng.random(shape) < 0.5, np.uint64(prime - 1), np.uint64(0))
    return np.where(rng.random(shape) < 0.5, ends, found).astype(dtype)


def both(name: str, *arguments: np.ndarray | Any, changed: int) -> None:
    """Compute both ways, each on copies; what is returned and written must be equal."""
    outcomes = []
    for function in (compiled(name), getattr(portable, name)):
        copies = [each.copy() if isinstance(each, np.ndarray) else each for each in arguments]
        outcomes.append((function(*copies), copies[changed]))
    assert outcomes[0][0] == outcomes[1][0]
    assert outcomes[0][1].dtype == outcomes[1][1].dtype
    assert np.array_equal(outcomes[0][1], outcomes[1][1])


@pytest.mark.parametrize("bits", FIELDS)
@given(seed=seeds, c=st.integers(1, 4), d=st.integers(0, 40), columns=st.integers(1, 300), cut=st.floats(0, 1))
def test_products_in_fields(bits: int, seed: int, c: int, d: int, columns: int, cut: float) -> None:
    rng, (prime, dtype) = np.random.default_rng(seed), FIELDS[bits]
    left, right = residues(rng, prime, dtype, c, d), residues(rng, prime, dtype, d, columns)
    both(f"product_{bits}", left, right, np.zeros((c, columns), dtype), int(cut * columns), columns, changed=2)


@pytest.mark.parametrize(("name", "dtype"), [("product_wrapping", np.uint32), ("product_64", np.uint64)])
@given(seed=seeds, c=st.integers(1, 4), d=st.integers(0, 40), columns=st.integers(1, 300), cut=st.floats(0, 1))
def test_products_that_wrap(name: str, dtype: Any, seed: int, c: int, d: int, columns: int, cut: float) -> None:
    rng, modulus = np.random.default_rng(seed), 2 ** (8 * np.dtype(dtype).itemsize) - 1
    left, right = residues(rng, modulus, dtype, c, d), residues(rng, modulus, dtype, d, columns)
    both(name, left, right, np.zeros((c, columns), dtype), int(cut * columns), columns, changed=2)


def test_long_sums_are_joined(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """More rows than are summed in float64 at a time."""
    monkeypatch.setattr(portable, "_ROWS", 7)
    for bits, (prime, dtype) in FIELDS.items():
        left, right = residues(rng, prime, dtype, 3, 40), residues(rng, prime, dtype, 40, 20)
        both(f"product_{bits}", left, right, np.zeros((3, 20), dtype), 0, 20, changed=2)


def test_the_largest_sums_are_exact() -> None:
    """All residues p - 1, over as many rows as one sum takes here: no rounding of float64."""
    rows = 5000
    for bits, (prime, dtype) in FIELDS.items():
        left, right, out = (
            np.full((1, rows), prime - 1, dtype),
            np.full((rows, 2), prime - 1, dtype),
            np.zeros((1, 2), dtype),
        )
        getattr(portable, f"product_{bits}")(left, right, out, 0, 2)
        assert out.tolist() == [[rows * (prime - 1) ** 2 % prime] * 2]
    assert 4 * (2**16 - 1) ** 2 * portable._ROWS < 2**53


@pytest.mark.parametrize("bits", FIELDS)
@pytest.mark.parametrize("size", [0, 1, 7, 8, 14, 20])
def test_elements_in_several_blocks(monkeypatch: pytest.MonkeyPatch, bits: int, size: int) -> None:
    """Against Python's integers: multiples of the ends of the range, and of limbs that are full or empty."""
    monkeypatch.setattr(portable, "_BLOCK", 7)
    prime, dtype = FIELDS[bits]
    ends = [0, 1, 2, prime - 2, prime - 1, prime // 2, 2 ** (bits // 2) - 1, 2 ** (bits // 2), 2 ** (bits - 1) + 1]
    for shift, factor in enumerate(ends):
        x, y = [ends[i % 9] for i in range(size)], [ends[(i + shift) % 9] for i in range(size)]
        left, right, out = np.array(x, dtype), np.array(y, dtype), np.full(size, 77, dtype)
        getattr(portable, f"add_{bits}")(left, right, out)
        assert out.tolist() == [(a + b) % prime for a, b in zip(x, y, strict=True)]
        getattr(portable, f"subtract_{bits}")(left, right, out)
        assert out.tolist() == [(a - b) % prime for a, b in zip(x, y, strict=True)]
        getattr(portable, f"add_multiple_{bits}")(left, dtype(factor), right)
        assert left.tolist() == [(a + factor * b) % prime for a, b in zip(x, y, strict=True)]


@pytest.mark.parametrize("bits", FIELDS)
def test_words_are_cut_and_those_that_are_no_residues_are_counted(bits: int) -> None:
    prime, dtype = FIELDS[bits]
    low = [0, prime - 1, prime, 2**bits - 1]
    words = np.array([*low, *(number + 2**bits for number in low)], dtype)
    assert getattr(portable, f"reduce_{bits}")(words) == 4
    assert words.tolist() == low * 2


def test_three_words_of_a_residue_stand_lowest_first() -> None:
    residues = np.array([0x123456789ABC, PRIME_48 - 1, PRIME_48, 2**48 - 1], np.uint64)
    words = np.empty(12, np.uint16)
    portable.pack_48(residues, words)
    assert words[:6].tolist() == [0x9ABC, 0x5678, 0x1234, 2**16 - 60, 2**16 - 1, 2**16 - 1]
    again = np.empty(4, np.uint64)
    assert portable.unpack_48(words, again) == 2
    assert again.tolist() == residues.tolist()


@pytest.mark.parametrize("name", ["product_31", "product_48", "product_61", "product_wrapping", "product_64"])
def test_products_in_tiles_and_parts_of_rows(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Against Python's integers, in a range of columns, with few columns a tile and few rows a sum."""
    monkeypatch.setattr(portable, "_TILE", 4)
    monkeypatch.setattr(portable, "_ROWS", 3)
    modulus, dtype = {
        **{f"product_{bits}": field for bits, field in FIELDS.items()},
        "product_wrapping": (2**32, np.uint32),
        "product_64": (2**64, np.uint64),
    }[name]
    for c, d, first, last in ((2, 7, 1, 10), (1, 6, 0, 11), (3, 3, 2, 6), (2, 0, 0, 5), (0, 3, 0, 5), (2, 4, 5, 5)):
        left = np.array([[modulus - 1 - i * j for j in range(d)] for i in range(c)], dtype).reshape(c, d)
        right = np.array([[(modulus - 1) // (1 + i + j) for j in range(11)] for i in range(d)], dtype).reshape(d, 11)
        out = np.full((c, 11), 77, dtype)
        getattr(portable, name)(left, right, out, first, last)
        expected = np.full((c, 11), 77, dtype)
        if c and d:
            expected[:, first:last] = (left.astype(object) @ right[:, first:last].astype(object)) % modulus
        else:
            expected[:, first:last] = 0
        assert np.array_equal(out, expected)


@pytest.mark.parametrize("bits", FIELDS)
@given(seed=seeds, size=st.integers(0, 50))
def test_elements(bits: int, seed: int, size: int) -> None:
    rng, (prime, dtype) = np.random.default_rng(seed), FIELDS[bits]
    left, right = (residues(rng, prime, dtype, size) for _ in range(2))
    both(f"add_{bits}", left, right, np.empty_like(left), changed=2)
    both(f"subtract_{bits}", left, right, np.empty_like(left), changed=2)
    factor = residues(rng, prime, dtype, 1)[0]
    both(f"add_multiple_{bits}", left, factor, right, changed=0)
    words = rng.integers(0, 2 ** (8 * np.dtype(dtype).itemsize), size, dtype, endpoint=False)
    words[: size // 3] |= dtype(2**bits - 1)
    both(f"reduce_{bits}", words, changed=0)


@given(seed=seeds, size=st.integers(0, 50))
def test_packing(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    both("pack_48", residues(rng, PRIME_48, np.uint64, size), np.empty(3 * size, np.uint16), changed=1)
    words = rng.integers(0, 2**16, 3 * size, np.uint16)
    words[: size // 3] = 2**16 - 1
    both("unpack_48", words, np.empty(size, np.uint64), changed=1)
