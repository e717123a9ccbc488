"""The support of an error matrix of full or of small rank is found, and A follows by least squares outside it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.security.attacks.supports.geometry import geometry_of
from codedfl.security.attacks.supports.metzner_kapturowski import MetznerKapturowski
from codedfl.security.attacks.supports.subspace_matching import SubspaceMatching
from codedfl.security.attacks.supports.syndrome import find_syndrome
from codedfl.security.contract import Attack
from codedfl.security.scoring import score
from codedfl.security.views.kinds import ParcelView
from security.ciphertexts import Case, encrypted, gram_matrix, parameters, small_keys

BOTH = [MetznerKapturowski(), SubspaceMatching()]


def falls(attack: Attack[ParcelView], case: Case) -> None:
    result = score(attack.run(case.view, np.random.default_rng(0)), case.truth)
    assert result.support_recovered
    assert result.relative_error <= case.limits()[0]
    assert result.verdict == "falls"


def case_of(seed: bytes, dtype: str, t: int, beta: int, points: int = 100) -> Case:
    rng = np.random.default_rng(list(seed))
    keys = small_keys(parameters(n=130, k=60, t=t, beta=beta), dtype, seed)
    return encrypted(keys, gram_matrix(60, points, rng), seed)


@settings(max_examples=15)
@given(
    st.binary(min_size=32, max_size=32), st.sampled_from(["float32", "float64"]), st.integers(1, 12), st.integers(1, 90)
)
def test_errors_of_full_rank_fall_to_both(seed: bytes, dtype: str, t: int, points: int) -> None:
    case = case_of(seed, dtype, t, t, points)
    for attack in BOTH:
        falls(attack, case)


@settings(max_examples=15)
@given(st.binary(min_size=32, max_size=32), st.sampled_from(["float32", "float64"]), st.integers(4, 10))
def test_errors_of_small_rank_fall_to_matching(seed: bytes, dtype: str, t: int) -> None:
    falls(SubspaceMatching(), case_of(seed, dtype, t, min(t, 4)))


@pytest.mark.parametrize("beta", [1, 4])
def test_rank_well_below_the_number_of_positions_is_recognised(beta: int) -> None:
    found = MetznerKapturowski().run(case_of(bytes(32), "float32", 8, beta).view, np.random.default_rng(0))
    assert found.support is None
    assert found.gram is None
    assert f"rank {beta}" in found.remark


@pytest.mark.parametrize("attack", BOTH, ids=lambda attack: attack.name)
def test_some_rows_of_a_parcel_suffice(attack: Attack[ParcelView]) -> None:
    whole = case_of(bytes(range(32)), "float64", 8, 8)
    view = ParcelView(whole.view.G, whole.view.words[:20], 8, 8)
    falls(attack, Case(view, whole.A[:20], whole.positions))


@pytest.mark.parametrize("attack", BOTH, ids=lambda attack: attack.name)
def test_a_zero_matrix_hides_no_support(attack: Attack[ParcelView]) -> None:
    case = encrypted(small_keys(parameters(beta=8)), np.zeros((70, 70)))
    assert attack.run(case.view, np.random.default_rng(0)).support.tolist() == case.positions.tolist()


@pytest.mark.parametrize("attack", BOTH, ids=lambda attack: attack.name)
def test_words_without_errors_have_an_empty_support(attack: Attack[ParcelView]) -> None:
    keys = small_keys(parameters(), "float32")
    A = gram_matrix(70, 100, np.random.default_rng(4)).astype(np.float32)
    view = ParcelView(keys.public.G, keys.public.encode(A).words, t=8, beta=4)
    falls(attack, Case(view, A, np.array([], dtype=np.int64)))


@pytest.mark.parametrize("attack", BOTH, ids=lambda attack: attack.name)
def test_without_redundancy_nothing_is_found(attack: Attack[ParcelView]) -> None:
    words = np.random.default_rng(5).integers(0, 2**40, (30, 30)).astype(np.float64)
    found = attack.run(ParcelView(2.0**10 * np.eye(30), words, 0, 0), np.random.default_rng(0))
    assert found.support is None
    assert "no redundancy" in found.remark


@pytest.mark.parametrize("attack", BOTH, ids=lambda attack: attack.name)
def test_noise_of_full_rank_is_no_prey(attack: Attack[ParcelView]) -> None:
    case = case_of(bytes(32), "float64", 8, 4)
    words = 1e3 * np.std(case.view.words) * np.random.default_rng(7).standard_normal(case.view.words.shape)
    found = attack.run(ParcelView(case.view.G, words, 8, 4), np.random.default_rng(0))
    assert found.support is None
    assert "fill the whole space" in found.remark


@given(st.integers(0, 2**32), st.integers(0, 25))
def test_the_syndrome_has_the_rank_and_the_spaces_of_the_errors(seed: int, rank: int) -> None:
    """Against the singular value decomposition of errors that pass through a projection made from QR."""
    rng = np.random.default_rng(seed)
    G = rng.standard_normal((30, 80))
    E = rng.standard_normal((40, rank)) @ rng.standard_normal((rank, 80))
    syndrome = find_syndrome(geometry_of(G), rng.standard_normal((40, 30)) @ G + E, 4, rng)
    assert syndrome.rank == rank
    D = 1 / np.linalg.norm(G, axis=0)
    Q = np.linalg.qr((G * D).T)[0]
    exact = E * D - (E * D) @ Q @ Q.T
    found = (syndrome.left * syndrome.values) @ syndrome.right.T
    assert np.linalg.norm(found - exact, 2) <= 3 * syndrome.rounding
