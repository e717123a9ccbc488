"""The whole Gram matrix falls, whatever it is, in both number formats, and nothing is claimed where nothing can be."""

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.cipher.mceliece.messages import Ciphertext
from codedfl.security.attacks.left_kernel import LeftKernel, robust_regression
from codedfl.security.attacks.supports.geometry import KeyGeometry, geometry_of
from codedfl.security.contract import Finding
from codedfl.security.scoring import relative_error, score
from codedfl.security.views.kinds import ParcelView
from security.ciphertexts import Case, encrypted, gram_matrix, parameters, small_keys


def attack(view: ParcelView, seed: int = 0) -> Finding:
    return LeftKernel().run(view, np.random.default_rng(seed))


def falls(case: Case, seed: int = 0) -> None:
    result = score(attack(case.view, seed), case.truth)
    assert result.support_recovered
    assert result.relative_error <= case.limits()[1]
    assert result.verdict == "falls"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("beta", [1, 4, 8])
def test_errors_of_any_rank_fall(dtype: str, beta: int) -> None:
    keys = small_keys(parameters(beta=beta), dtype)
    falls(encrypted(keys, gram_matrix(70, 200, np.random.default_rng(1))))


@settings(max_examples=25)
@given(
    st.binary(min_size=32, max_size=32),
    st.sampled_from(["float32", "float64"]),
    st.integers(1, 10),
    st.integers(1, 150),
    st.sampled_from([1e-6, 1.0, 1e6]),
    st.sampled_from([0.1, 1.0, 30.0]),
)
def test_every_gram_matrix_falls(seed: bytes, dtype: str, t: int, points: int, scale: float, noise: float) -> None:
    rng = np.random.default_rng(list(seed))
    keys = small_keys(parameters(n=130, k=60, t=t, beta=min(4, t), noise=noise), dtype, seed)
    falls(encrypted(keys, scale * gram_matrix(60, points, rng), seed), seed[0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_attacker_reads_as_exactly_as_the_server(dtype: str) -> None:
    keys = small_keys(parameters(n=300, k=150, t=10), dtype)
    case = encrypted(keys, gram_matrix(150, 400, np.random.default_rng(2)))
    server = keys.private.decrypt(Ciphertext(keys.public.fingerprint, case.view.words))
    assert relative_error(attack(case.view).gram, case.A) <= 2 * relative_error(server, case.A)


def test_a_rank_above_the_public_one_is_found() -> None:
    keys = small_keys(parameters(n=200, k=90, t=20, beta=20))
    case = encrypted(keys, gram_matrix(90, 200, np.random.default_rng(3)))
    understated = ParcelView(case.view.G, case.view.words, case.view.t, beta=0)
    result = score(attack(understated), case.truth)
    assert result.support_recovered
    assert result.remark == "errors of rank 20"


def test_a_zero_matrix_is_found_to_be_zero() -> None:
    keys = small_keys(parameters())
    case = encrypted(keys, np.zeros((70, 70)))
    found = attack(case.view)
    geometry = geometry_of(case.view.G)
    # errors of the attack are those of its own arithmetic on words that are all error
    limit = np.sqrt(geometry.condition) * geometry.rounding(case.view.words)
    assert np.linalg.norm(found.gram) <= limit
    assert found.support.tolist() == case.positions.tolist()


def test_words_without_errors_are_read_and_no_support_is_named() -> None:
    keys = small_keys(parameters(), "float32")
    A = gram_matrix(70, 100, np.random.default_rng(4)).astype(np.float32)
    case = Case(ParcelView(keys.public.G, keys.public.encode(A).words, t=0, beta=0), A, np.array([], dtype=np.int64))
    found = attack(case.view)
    assert found.support.size == 0
    assert relative_error(found.gram, A) <= case.limits()[0]


def test_without_redundancy_words_are_read_as_they_are() -> None:
    rng = np.random.default_rng(5)
    A = rng.integers(-(2**20), 2**20, (40, 40)).astype(np.float64)
    scale = 2.0**12
    G = scale * np.eye(40)
    assert np.array_equal(attack(ParcelView(G, scale * A, 0, 0)).gram, A)
    padded = (scale * A + rng.integers(0, 2**48, (40, 40))) % 2**48
    found = attack(ParcelView(G, padded, 0, 0))
    assert "no redundancy" in found.remark
    assert found.support is None
    assert relative_error(found.gram, padded / scale) == 0


def test_noise_of_full_rank_is_no_prey() -> None:
    keys = small_keys(parameters())
    case = encrypted(keys, gram_matrix(70, 100, np.random.default_rng(6)))
    noise = 1e3 * np.std(case.view.words) * np.random.default_rng(7).standard_normal(case.view.words.shape)
    found = attack(ParcelView(case.view.G, case.view.words + noise, 8, 4))
    assert "no row combination" in found.remark
    assert found.support is None
    assert score(found, case.truth).verdict == "holds"


def test_part_of_a_parcel_is_no_symmetric_matrix() -> None:
    case = encrypted(small_keys(parameters()), gram_matrix(70, 100, np.random.default_rng(8)))
    found = attack(ParcelView(case.view.G, case.view.words[:30], 8, 4))
    assert found.gram is None
    assert "30 rows" in found.remark


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(0, 40))
def test_regression_ignores_a_fifth_of_wild_columns(seed: int, r: int, wild: int) -> None:
    rng = np.random.default_rng(seed)
    M, x = rng.standard_normal((r, r)), rng.standard_normal((r, 200))
    chosen = rng.permutation(200)[:wild]
    y = M @ x
    y[:, chosen] += rng.choice([-1, 1], (r, wild)) * rng.uniform(0.1, 1e3, (r, wild))
    found, outliers = robust_regression(y, x, floor=1e-9)
    assert np.flatnonzero(outliers).tolist() == sorted(chosen)
    assert np.linalg.norm(found - M) < 200 * np.finfo(np.float64).eps * np.linalg.norm(y)


@given(st.integers(0, 2**32), st.integers(1, 20), st.integers(0, 20))
def test_geometry_splits_words_into_codewords_and_the_rest(seed: int, k: int, redundancy: int) -> None:
    rng = np.random.default_rng(seed)
    G = rng.standard_normal((k, k + redundancy)) * 10.0 ** rng.integers(-3, 4, k + redundancy)
    A = rng.standard_normal((7, k))
    geometry = KeyGeometry.prepare(G)
    scaled = G / np.linalg.norm(G, axis=0)
    values = np.linalg.svd(scaled, compute_uv=False)
    tolerance = 50 * (k + redundancy) * np.finfo(np.float64).eps * (values[0] / values[-1]) ** 2
    assert np.abs(geometry.frame @ geometry.frame.T - np.eye(k)).max() <= tolerance
    assert relative_error(geometry.messages(geometry.coordinates(A @ G)), A) <= tolerance * values[0] / values[-1]
    assert np.abs(geometry.free_part(scaled.T)).max() <= tolerance
    P = np.eye(k + redundancy) - np.linalg.pinv(scaled) @ scaled
    assert np.abs(geometry.freedom - np.diag(P)).max() <= tolerance
    assert np.abs(geometry.atom(0) - P[0]).max() <= tolerance


def test_a_column_without_data_is_no_trouble() -> None:
    G = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 1.0]])
    geometry = KeyGeometry.prepare(G)
    assert geometry.freedom[1] == 1
    assert np.allclose(geometry.messages(geometry.coordinates(G)), np.eye(2), atol=1e-14)


def test_rows_that_depend_on_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="depend on each other"):
        KeyGeometry.prepare(np.zeros((3, 5)))


def test_geometry_is_kept_as_long_as_the_key() -> None:
    G = np.random.default_rng(9).standard_normal((5, 9))
    kept = geometry_of(G)
    assert geometry_of(G) is kept
    assert geometry_of(G.copy()) is not kept
    watch = weakref.ref(kept)
    del G, kept
    gc.collect()
    assert watch() is None
