"""Gradient codes: the support of every row, and any N - alpha + 1 coded sums give the sum of all parts."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.codes.gradient_code import GradientCode
from codedfl.codes.modular import PRIME_31 as PRIME
from codedfl.codes.modular import PRIME_48, PRIME_61
from codedfl.errors import CodeError, UndecodableError

primes = st.sampled_from([43, 257, PRIME, PRIME_48, PRIME_61])


def decoded(code: GradientCode, which: list[int]) -> list[int]:
    """decoder(which) @ matrix[which], which must be all ones."""
    factors = code.decoder(which)
    return [
        sum(factor * code.matrix[i][j] for factor, i in zip(factors, which, strict=True)) % code.prime
        for j in range(code.N)
    ]


@st.composite
def codes(draw: st.DrawFn) -> GradientCode:
    N = draw(st.integers(1, 42))
    return GradientCode(N, draw(st.integers(1, N)), draw(primes))


@given(codes(), st.data())
@settings(max_examples=80)
def test_any_set_of_devices_that_is_large_enough_decodes(code: GradientCode, data: st.DataObject) -> None:
    """In any order, over small primes as over large ones."""
    which = data.draw(st.permutations(range(code.N)))[: code.K]
    assert decoded(code, which) == [1] * code.N


@pytest.mark.parametrize("prime", [11, PRIME_48])
@pytest.mark.parametrize("N", range(1, 8))
def test_every_set_of_up_to_seven_devices(N: int, prime: int) -> None:
    for alpha in range(1, N + 1):
        code = GradientCode(N, alpha, prime)
        for which in combinations(range(N), N - alpha + 1):
            assert decoded(code, list(which)) == [1] * N


@given(codes())
@settings(max_examples=60)
def test_rows_and_columns_have_alpha_coefficients_on_cyclic_windows(code: GradientCode) -> None:
    for i, row in enumerate(code.matrix):
        assert {j for j, coefficient in enumerate(row) if coefficient} == set(code.window(i))
        assert set(code.window(i)) == {j for j in range(code.N) if (j - i) % code.N < code.alpha}
        assert all(0 <= coefficient < code.prime for coefficient in row)


def test_fewer_sums_than_that_cannot_decode() -> None:
    """A device outside of all windows is missed: N - alpha neighbours in a row hold no part of some device."""
    code = GradientCode(7, 3, PRIME)
    held = {part for i in range(7 - 3) for part in code.window(i)}
    assert len(held) == 6


def test_no_code_and_full_copies() -> None:
    """alpha = 1 is one coefficient each; with alpha = N every reply is the sum."""
    alone = GradientCode(5, 1, PRIME)
    assert [sum(coefficient > 0 for coefficient in row) for row in alone.matrix] == [1] * 5
    everything = GradientCode(5, 5, PRIME)
    assert everything.matrix == ((1,) * 5,) * 5
    assert everything.decoder([3]) == (1,)


@pytest.mark.parametrize(("N", "alpha", "prime"), [(5, 0, PRIME), (5, 6, PRIME), (0, 0, PRIME), (7, 2, 7)])
def test_codes_that_do_not_exist_are_refused(N: int, alpha: int, prime: int) -> None:
    with pytest.raises(CodeError, match=f"no gradient code of {N} devices with {alpha} parts"):
        GradientCode(N, alpha, prime)


@pytest.mark.parametrize("which", [[0, 1], [0, 1, 1], [0, 1, 5], [-1, 1, 2], [0, 1, 2, 3]])
def test_sets_that_do_not_decode_are_refused(which: list[int]) -> None:
    with pytest.raises(UndecodableError, match="give 3 different numbers from 0 to 4"):
        GradientCode(5, 3, PRIME).decoder(which)


def rank(rows: list[list[int]], prime: int) -> int:
    """By elimination modulo a prime."""
    rows, found = [list(row) for row in rows], 0
    for column in range(len(rows[0])):
        pivot = next((row for row in rows if row[column] % prime), None)
        if pivot is not None:
            rows.remove(pivot)
            found += 1
            scale = pow(pivot[column], -1, prime)
            rows = [[(a - row[column] * scale * b) % prime for a, b in zip(row, pivot, strict=True)] for row in rows]
    return found


@pytest.mark.parametrize(("N", "alpha"), [(5, 2), (6, 3), (7, 7), (12, 5), (25, 2), (25, 16), (25, 25)])
def test_all_coded_sums_tell_so_many_combinations_and_no_single_part(N: int, alpha: int) -> None:
    """Rank K, also without any one column: so that column is a combination of the others."""
    code = GradientCode(N, alpha, PRIME_48)
    assert rank([list(row) for row in code.matrix], PRIME_48) == code.K
    for part in range(N):
        others = [[entry for j, entry in enumerate(row) if j != part] for row in code.matrix]
        assert rank(others, PRIME_48) == code.K


@given(codes().filter(lambda code: code.alpha >= code.K), st.data())
@settings(max_examples=40)
def test_parts_that_differ_by_small_numbers_have_the_same_coded_sums(code: GradientCode, data: st.DataObject) -> None:
    """The zeros of h_j are the K - 1 points after j, so that h_j(x) is a polynomial in j, which K-th differences annul.

    For parts from -1 (the last one) to alpha - 1 no zero is beyond the last point.
    """
    K = code.K
    first = data.draw(st.integers(-1, code.alpha - 1 - K))
    difference = {(first + k) % code.N: (-1) ** k * comb(K, k) for k in range(K + 1)}
    if len(difference) == K + 1:  # else the window is the whole circle
        for row in code.matrix:
            assert sum(row[j] * change for j, change in difference.items()) % code.prime == 0


@pytest.mark.parametrize(("N", "alpha"), [(1, 1), (5, 1), (5, 2), (6, 4), (9, 9), (25, 16)])
def test_the_best_guess_is_a_projection(N: int, alpha: int) -> None:
    """Symmetric, idempotent, of trace K, and it keeps a part that all have in common.

    float() of the exact fractions is off by 2^-53 relative; products of N of them by N times that and a bit.
    """
    code = GradientCode(N, alpha, PRIME_48)
    projection = np.array([code.visible(j) for j in range(N)])
    slack = 4 * N * 2**-53
    assert np.all(abs(projection - projection.T) <= slack)
    assert np.all(abs(projection @ projection - projection) <= slack)
    assert np.all(abs(projection.sum(axis=1) - 1) <= slack)
    assert abs(np.trace(projection) - code.K) <= slack * N
    if alpha == 1:
        assert np.array_equal(projection, np.eye(N))
    if alpha == N:
        assert np.all(abs(projection - 1 / N) <= slack)
    for row in code.matrix:  # what is seen of the parts gives every coded sum
        signed = np.array([entry - (entry > code.prime // 2) * code.prime for entry in row], float)
        if np.abs(signed).max() < 2**40:  # else the integer is beyond the prime, and its residue says less
            assert np.all(abs(projection @ signed - signed) <= slack * np.abs(signed).max() * N)
