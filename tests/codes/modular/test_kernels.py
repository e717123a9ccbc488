"""Modular products against Python's integers, at shapes that meet every edge of the tiles."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import codedfl
from codedfl.cipher.seals import RINGS, Z_64, Ring
from codedfl.codes.modular import PRIME_31 as PRIME
from codedfl.codes.modular import kernels
from codedfl.codes.modular.kernels import TILE, add_multiple_31, reduce_31
from codedfl.codes.modular.wrapping_64_kernels import COLUMNS, DEPTH, product_64
from codedfl.errors import CipherError

every_ring = pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS.keys())


def drawn(ring: Ring, rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, ring.modulus - 1, shape, dtype=ring.dtype, endpoint=True)


def exact(left: np.ndarray, right: np.ndarray, ring: Ring) -> np.ndarray:
    return ((left.astype(object) @ right.astype(object)) % ring.modulus).astype(ring.dtype)


@given(
    st.sampled_from(list(RINGS.values())),
    st.integers(1, 7),
    st.integers(1, 13),
    st.integers(1, 9),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=120)
def test_small_products(ring: Ring, c: int, d: int, b: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = drawn(ring, rng, c, d), drawn(ring, rng, d, b)
    np.testing.assert_array_equal(ring.product(left, right), exact(left, right, ring))


@every_ring
@pytest.mark.parametrize("columns", [TILE - 1, TILE, 2 * TILE + 3])
def test_columns_at_the_edges_of_tiles(ring: Ring, columns: int) -> None:
    rng = np.random.default_rng(5)
    left, right = drawn(ring, rng, 3, 11), drawn(ring, rng, 11, columns)
    for workers in (1, 3):
        np.testing.assert_array_equal(ring.product(left, right, workers=workers), exact(left, right, ring))


@every_ring
def test_the_largest_residues_never_wrap(ring: Ring) -> None:
    """(-1) (-1) d = d: the longest sums of the largest products, over more rows than the paper's 2000."""
    d = 2051
    largest = np.full((3, d), ring.modulus - 1, ring.dtype)
    np.testing.assert_array_equal(ring.product(largest, largest[:1].T), np.full((3, 1), d, ring.dtype))


# signed words at which a half changes its sign, fills up or carries into the other
edges_64 = st.sampled_from([sign * (1 << bit) + by for sign in (1, -1) for bit in (0, 31, 32, 63) for by in (-1, 0, 1)])
words_64 = st.one_of(edges_64, st.integers(-(2**15), 2**15), st.integers(-(2**31), 2**31), st.integers(0, 2**64 - 1))


@given(st.data(), st.integers(1, 5), st.integers(1, DEPTH + 3), st.integers(1, 2 * COLUMNS + 1))
@settings(max_examples=100)
def test_halves_of_words_at_their_edges(data: st.DataObject, c: int, d: int, b: int) -> None:
    """Narrow, wide, negative and mixed words; few are drawn and repeated, because many examples matter more."""
    few = [data.draw(st.lists(words_64, min_size=1, max_size=11)) for _ in range(2)]
    left, right = (
        np.resize(np.array([word % 2**64 for word in words], np.uint64), shape)
        for words, shape in zip(few, ((c, d), (d, b)), strict=True)
    )
    np.testing.assert_array_equal(Z_64.product(left, right), exact(left, right, Z_64))


@pytest.mark.parametrize("depth", [1, DEPTH - 1, DEPTH, DEPTH + 1, 3 * DEPTH])
@pytest.mark.parametrize("first, last", [(0, COLUMNS), (3, 3 + 2 * COLUMNS), (5, 29), (7, 7), (21, 24)])
def test_ranges_of_columns_leave_the_others_alone(depth: int, first: int, last: int) -> None:
    rng = np.random.default_rng(9)
    left, right = drawn(Z_64, rng, 3, depth), drawn(Z_64, rng, depth, 29)
    out = np.full((3, 29), 77, np.uint64)
    product_64(left, right, out, first, last)
    expected = np.full((3, 29), 77, np.uint64)
    expected[:, first:last] = exact(left, right[:, first:last], Z_64)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", ["product_wrapping", "product_31"])
@pytest.mark.parametrize("c", [1, 2, 3])
def test_kernels_stay_within_their_arrays(name: str, c: int) -> None:
    """As interpreted code, which checks every index: compiled code writes beyond an array and may go unnoticed."""
    left, right = np.arange(5 * c, dtype=np.uint32).reshape(c, 5), np.arange(15, dtype=np.uint32).reshape(5, 3)
    kernel = getattr(kernels, name)
    for form in (kernel.py_func, kernel):
        out = np.zeros((c, 3), np.uint32)
        form(left, right, out, 0, 3)
        np.testing.assert_array_equal(out, left @ right)


@every_ring
def test_full_size_samples(ring: Ring) -> None:
    rng = np.random.default_rng(6)
    left, right = drawn(ring, rng, 10, 2000), drawn(ring, rng, 2000, 700)
    columns = rng.choice(700, 4, replace=False)
    np.testing.assert_array_equal(ring.product(left, right)[:, columns], exact(left, right[:, columns], ring))


@every_ring
def test_products_of_views_and_of_nothing(ring: Ring) -> None:
    rng = np.random.default_rng(7)
    left, right = drawn(ring, rng, 4, 9), drawn(ring, rng, 8, 9)
    np.testing.assert_array_equal(ring.product(left[:, 1:], right[:, ::2]), exact(left[:, 1:], right[:, ::2], ring))
    assert ring.product(left[:, :0], right[:0]).tolist() == np.zeros((4, 9)).tolist()
    assert ring.product(left[:, :8], right[:, :0]).shape == (4, 0)


@every_ring
def test_threads_may_multiply_at_once(ring: Ring) -> None:
    rng = np.random.default_rng(8)
    left, right = drawn(ring, rng, 10, 100), drawn(ring, rng, 100, 600)
    expected = ring.product(left, right, workers=1)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: ring.product(left, right), range(16)):
            np.testing.assert_array_equal(found, expected)


@given(st.integers(0, PRIME - 1), st.lists(st.integers(0, PRIME - 1), min_size=1, max_size=30))
@settings(max_examples=60)
def test_multiples_are_added(factor: int, values: list[int]) -> None:
    total, block = np.array(values[::-1], np.uint32), np.array(values, np.uint32)
    add_multiple_31(total, np.uint32(factor), block)
    assert total.tolist() == [(y + factor * x) % PRIME for x, y in zip(values, values[::-1], strict=True)]


def test_words_are_cut_to_31_bits_and_the_one_that_is_no_residue_is_counted() -> None:
    words = np.array([0, PRIME - 1, PRIME, PRIME + 1, 2**32 - 1, 2**32 - 2], np.uint32)
    assert reduce_31(words) == 2
    assert words.tolist() == [0, PRIME - 1, PRIME, 0, PRIME, PRIME - 1]


def test_residues_of_another_ring_are_refused() -> None:
    with pytest.raises(CipherError, match="encode them in this ring"):
        RINGS["Z_2^64"].product(np.zeros((1, 1), np.uint32), np.zeros((1, 1), np.uint64))


FORKED = """
import os
import numpy as np
from codedfl.cipher.seals import Z_32
left, right = np.ones((10, 200), np.uint32), np.ones((200, 600), np.uint32)
Z_32.product(left, right, workers=2)
child = os.fork()
if child == 0:
    os._exit(int(Z_32.product(left, right, workers=2).sum() != 10 * 600 * 200))
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_forked_child_multiplies_on_threads_of_its_own() -> None:
    source = str(Path(codedfl.__file__).parent.parent)
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    subprocess.run(command, check=True, timeout=120, env=os.environ | {"PYTHONPATH": source})
