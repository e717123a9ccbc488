"""MDS codes over the prime field: any K rows invert, and coded products decode."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.codes.mds import MdsCode
from codedfl.codes.modular import PRIME_31 as PRIME
from codedfl.codes.modular import PRIME_48, PRIME_61, WORD_BITS
from codedfl.errors import CodeError, UndecodableError


def exact(left: np.ndarray, right: np.ndarray, prime: int = PRIME) -> np.ndarray:
    """The product in Python's integers."""
    return (left.astype(object) @ right.astype(object)) % prime


def determinant(matrix: np.ndarray) -> int:
    """By Laplace's expansion, which divides by nothing."""
    rows = [[int(entry) for entry in row] for row in matrix]
    if len(rows) == 1:
        return rows[0][0] % PRIME
    minors = (np.array([row[:j] + row[j + 1 :] for row in rows[1:]], object) for j in range(len(rows)))
    return sum((-1) ** j * rows[0][j] * determinant(minor) for j, minor in enumerate(minors)) % PRIME


@st.composite
def codes_and_choices(draw: st.DrawFn) -> tuple[MdsCode, list[int]]:
    K = draw(st.integers(1, 12))
    code = MdsCode(draw(st.integers(K, 30)), K, draw(st.sampled_from([PRIME, PRIME_48, PRIME_61])))
    return code, draw(st.permutations(range(code.W)))[:K]


@given(codes_and_choices())
@settings(max_examples=60)
def test_any_k_rows_have_the_inverse_that_is_given(chosen: tuple[MdsCode, list[int]]) -> None:
    code, which = chosen
    assert (exact(code.decoder(which), code.generator[which], code.prime) == np.eye(code.K, dtype=int)).all()


@pytest.mark.parametrize(("W", "K"), [(1, 1), (6, 3), (7, 4)])
def test_every_square_submatrix_is_regular(W: int, K: int) -> None:
    """So every coded block depends on every block, and any K of them determine all."""
    generator = MdsCode(W, K).generator
    for size in range(1, K + 1):
        for rows in combinations(range(W), size):
            for columns in combinations(range(K), size):
                assert determinant(generator[np.ix_(rows, columns)])


@given(codes_and_choices(), st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_coding_commutes_with_linear_maps(chosen: tuple[MdsCode, list[int]], seed: int) -> None:
    """decode(theta @ encode(blocks)) = theta @ blocks, which is what devices and the server do."""
    code, which = chosen
    rng, prime, word = np.random.default_rng(seed), code.prime, np.dtype(f"uint{WORD_BITS[code.prime]}")
    blocks = [rng.integers(0, prime, (5, 3), dtype=word) for _ in range(code.K)]
    blocks[0][0] = prime - 1
    theta = rng.integers(0, prime, (2, 5), dtype=word)
    replies = [exact(theta, code.encode_block(w, blocks), prime).astype(word) for w in which]
    for block, found in zip(blocks, code.decode(which, replies), strict=True):
        np.testing.assert_array_equal(found, exact(theta, block, prime).astype(word))


def test_the_generator_by_hand() -> None:
    """Entry (w, k) times (K + w - k) is 1."""
    code = MdsCode(3, 2, PRIME_48)
    differences = [[2, 1], [3, 2], [4, 3]]
    assert [
        [int(entry) * by % PRIME_48 for entry, by in zip(*rows, strict=True)]
        for rows in zip(code.generator, differences, strict=True)
    ] == [[1, 1]] * 3
    assert code.generator.dtype == np.uint64
    assert MdsCode(3, 2).generator.dtype == np.uint32


def test_points_and_factors_by_hand() -> None:
    """Points 3, 4, 5 and factors 1 / (x (x - 1) (x - 2)) = 1/6, 1/24, 1/60."""
    code = MdsCode(3, 3).reed_solomon
    assert (code.K, code.prime, code.points) == (3, PRIME, (3, 4, 5))
    assert [factor * by % PRIME for factor, by in zip(code.factors, (6, 24, 60), strict=True)] == [1, 1, 1]


@pytest.mark.parametrize("words", [0, 1, 4096, 4097])
@pytest.mark.parametrize("prime", [PRIME, PRIME_48])
def test_blocks_of_any_size_are_coded_and_decoded(prime: int, words: int) -> None:
    """Also blocks that are too large to be copied together, and whose columns are not next to each other."""
    code, dtype = MdsCode(4, 2, prime), np.dtype(f"uint{WORD_BITS[prime]}")
    blocks = [np.random.default_rng(k).integers(0, prime, (words, 2), dtype)[:, 0] for k in range(2)]
    coded = [code.encode_block(w, blocks) for w in (3, 0)]
    for w, found in zip((3, 0), coded, strict=True):
        a, b = (int(weight) for weight in code.generator[w])
        expected = (a * blocks[0].astype(object) + b * blocks[1].astype(object)) % prime
        np.testing.assert_array_equal(found, expected.astype(dtype))
        assert found.dtype == dtype
    for block, found in zip(blocks, code.decode([3, 0], coded), strict=True):
        np.testing.assert_array_equal(found, block)


def test_what_cannot_be_coded_is_refused() -> None:
    for W, K in ((2, 3), (2, 0), (0, 0)):
        with pytest.raises(CodeError, match=rf"\({W}, {K}\) code"):
            MdsCode(W, K)
    code = MdsCode(5, 2)
    with pytest.raises(UndecodableError, match=r"\[1, 1\]"):
        code.decoder([1, 1])
    with pytest.raises(UndecodableError, match="2 different numbers from 0 to 4"):
        code.decoder([1, 5])
    with pytest.raises(CodeError, match="no coded block 5"):
        code.encode_block(5, [np.zeros(1, np.uint32)] * 2)
    with pytest.raises(CodeError, match="no coded block -1: number them from 0 to 4"):
        code.encode_block(-1, [np.zeros(1, np.uint32)] * 2)
    for which in ([-1, 0], [0], [0, 1, 2]):
        with pytest.raises(UndecodableError, match="2 different numbers from 0 to 4"):
            code.decoder(which)
    with pytest.raises(CodeError, match=r"2 blocks of shapes \[\(1,\), \(2,\)\] do not fit"):
        code.encode_block(0, [np.zeros(1, np.uint32), np.zeros(2, np.uint32)])
    with pytest.raises(CodeError, match="give 2 of one shape"):
        code.encode_block(0, [np.zeros(1, np.uint32)])
    with pytest.raises(ValueError, match="read-only"):
        code.generator[0, 0] = 1


def test_the_largest_code() -> None:
    """W + K = 2^16 is there; its last row is 1 / (x_w - y_0) with x_w = 2^16 - 1. One more is refused."""
    assert int(MdsCode(2**16 - 1, 1).generator[-1, 0]) * (2**16 - 1) % PRIME == 1
    for W, K in ((2**16, 1), (2**16 - 1, 2)):
        with pytest.raises(CodeError, match="at most 65536"):
            MdsCode(W, K)
