"""Private keys: every family of supports by name, one support alone, and positions at both ends of the code."""

import dataclasses
from itertools import combinations

import numpy as np
import pytest

from codedfl.cipher.mceliece.parameters import Parameters
from codedfl.cipher.mceliece.private_key import KeyPair, PrivateKey, generate_keys
from codedfl.cipher.mceliece.public_key import encrypt
from codedfl.cipher.mceliece.supports import Support
from codedfl.codes.bounds import least_overlap
from codedfl.errors import CipherError, CodeError

SEED = b"seed of thirty-two bytes, fixed."


def parameters(family: str, t_tot: int, t: int, M: int, n: int = 80) -> Parameters:
    return Parameters(n=n, k=n // 2, degree=5, t_tot=t_tot, t=t, M=M, beta=2 if t > 1 else 1, family=family)


def made(family: str, t_tot: int, t: int, M: int) -> tuple[KeyPair, list[set[int]]]:
    """Keys and their supports, which must lie in the erasure set."""
    keys = generate_keys(parameters(family, t_tot, t, M), dtype="float64", decoder="least-squares", seed=SEED)
    supports = [set(keys.private.support(index).positions.tolist()) for index in range(M)]
    assert all(len(support) == t and support <= set(keys.private.erasures.tolist()) for support in supports)
    return keys, supports


def shared(supports: list[set[int]]) -> set[int]:
    return {len(one & other) for one, other in combinations(supports, 2)}


def test_one_check_suffices_for_a_code_and_none_does_not() -> None:
    sizes = dict.fromkeys(("degree", "t_tot", "t", "M", "beta"), 1)
    assert Parameters(n=10, k=9, **sizes).k == 9
    with pytest.raises(CipherError, match=r"k is 10 .*n - 1"):
        Parameters(n=10, k=10, **sizes)


@pytest.mark.parametrize(("t_tot", "t", "M"), [(12, 4, 3), (13, 4, 3), (12, 4, 2), (6, 1, 6)])
def test_a_partition_gives_disjoint_supports(t_tot: int, t: int, M: int) -> None:
    _, supports = made("partition", t_tot, t, M)
    assert shared(supports) == {0}


@pytest.mark.parametrize(
    ("t_tot", "t", "M", "meeting"),
    [(16, 4, 20, {0, 1}), (27, 9, 39, {0, 3}), (16, 8, 30, {0, 4}), (9, 3, 3, {0})],
    ids=["AG(2, 4)", "AG(3, 3)", "AG(4, 2)", "a parallel class"],
)
def test_hyperplanes_are_parallel_or_meet_in_a_plane_less(t_tot: int, t: int, M: int, meeting: set[int]) -> None:
    """AG(m, q) has q (q^m - 1) / (q - 1) hyperplanes of q^(m-1) points; two of them share 0 or q^(m-2)."""
    _, supports = made("affine", t_tot, t, M)
    assert shared(supports) == meeting


@pytest.mark.parametrize(("t_tot", "t"), [(12, 4), (8, 3), (16, 5), (16, 16), (9, 4)])
def test_what_is_no_affine_geometry_is_refused(t_tot: int, t: int) -> None:
    with pytest.raises(CipherError, match=f"Supports of {t} in {t_tot} positions are no hyperplanes"):
        made("affine", t_tot, t, 1)


@pytest.mark.parametrize(("t_tot", "t", "M"), [(16, 8, 4), (20, 5, 6)])
def test_greedy_supports_meet_in_as_few_positions_as_any_can(t_tot: int, t: int, M: int) -> None:
    _, supports = made("greedy", t_tot, t, M)
    assert max(shared(supports)) == least_overlap(t_tot, t, M) > 0


@pytest.mark.parametrize(("family", "M"), [("partition", 4), ("affine", 13)])
def test_more_supports_than_a_family_has_are_refused(family: str, M: int) -> None:
    with pytest.raises(CodeError, match=f"has {M - 1} subsets, not {M}"):
        made(family, 9 if family == "affine" else 12, 3 if family == "affine" else 4, M)


@pytest.mark.parametrize("family", ["auto", "partition", "affine", "greedy"])
def test_one_support_is_enough(family: str) -> None:
    keys, _ = made(family, 9, 3, 1)
    A = np.random.default_rng(0).standard_normal((7, 40))
    C = encrypt(keys.public, A, keys.private.support(0))
    # the rounding of sums of 40 terms is far below 1e-9, and the error matrix, of the size of A, far above
    assert np.abs(keys.private.decrypt(C) - A).max() < 1e-9
    for index in (1, -1):
        with pytest.raises(CipherError, match=f"no support {index}: this key has 1"):
            keys.private.support(index)


@pytest.fixture(scope="module")
def at_the_ends() -> KeyPair:
    """Keys whose erasure set holds the first and the last position."""
    wanted = parameters("auto", 6, 3, 2, n=16)
    tried = (generate_keys(wanted, dtype="float64", decoder="least-squares", seed=bytes([k] * 32)) for k in range(99))
    return next(keys for keys in tried if {0, 15} <= set(keys.private.erasures.tolist()))


def test_errors_at_the_first_and_the_last_position_are_decrypted(at_the_ends: KeyPair) -> None:
    public, private = at_the_ends.public, at_the_ends.private
    inner = next(position for position in private.erasures.tolist() if 0 < position < 15)
    support = Support(private.key, 0, np.array([0, inner, 15]))
    A = np.random.default_rng(1).standard_normal((4, 8))
    C = encrypt(public, A, support)
    assert np.flatnonzero(np.abs(C.words - public.encode(A).words).max(axis=0)).tolist() == [0, inner, 15]
    assert np.abs(private.decrypt(C) - A).max() < 1e-9
    beyond = Support(private.key, 0, np.array([0, inner, 16]))
    with pytest.raises(CipherError, match="does not hold 3 positions below 16"):
        encrypt(public, A, beyond)


@pytest.mark.parametrize("field", ["erasures", "family"])
@pytest.mark.parametrize("kind", ["beyond", "below", "twice", "too few"])
def test_positions_outside_the_code_or_given_twice_are_refused(at_the_ends: KeyPair, field: str, kind: str) -> None:
    private = at_the_ends.private
    limit = 16 if field == "erasures" else 6
    wrong = getattr(private, field).copy()
    row = np.atleast_2d(wrong)[-1]
    row[np.argmax(row)] = limit - 1  # the last one is allowed
    assert dataclasses.replace(private, **{field: wrong}).support(1).size == 3
    if kind == "too few":
        wrong = wrong[..., 1:]
    else:
        row[np.argmax(row)] = {"beyond": limit, "below": -1, "twice": row[np.argmin(row)]}[kind]
    words = "6 distinct positions below 16" if field == "erasures" else "2 sets of 3 distinct members"
    with pytest.raises(CipherError, match=words):
        dataclasses.replace(private, **{field: wrong})


def test_a_key_belongs_to_its_code(at_the_ends: KeyPair) -> None:
    private = at_the_ends.private
    for change in ({"n": 17}, {"k": 7}):
        other = dataclasses.replace(private.parameters, **change)
        with pytest.raises(CipherError, match="build both with generate_keys"):
            PrivateKey(other, private.key, private.code, private.erasures, private.family)
