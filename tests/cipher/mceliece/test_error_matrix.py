"""The error matrix: rank, support, span, distance and size."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.cipher.mceliece.error_matrix import draw_error_matrix
from codedfl.cipher.mceliece.parameters import Parameters
from codedfl.cipher.mceliece.private_key import generate_keys
from codedfl.cipher.mceliece.public_key import encrypt
from codedfl.cipher.randomness import Stream, fresh_seed
from codedfl.errors import CipherError

SEED = b"seed of thirty-two bytes, fixed."


@given(st.integers(1, 6), st.integers(0, 10), st.integers(1, 40), st.binary(min_size=16, max_size=16))
@settings(max_examples=80)
def test_rank_and_span(beta: int, extra: int, rows: int, seed: bytes) -> None:
    """rank E' = min(beta, rows); beyond beta rows, its row span is that of G'_E."""
    t = beta + extra
    error = draw_error_matrix(rows, beta, np.linspace(1, 3, t), seed)
    E = error.dense()
    assert E.shape == (rows, t)
    assert np.linalg.matrix_rank(E) == min(beta, rows)
    assert np.linalg.matrix_rank(np.concatenate([E, error.generator])) == beta


@given(st.integers(1, 5), st.integers(2, 33), st.binary(min_size=16, max_size=16))
@settings(max_examples=40)
def test_blocks_are_full_rank_and_perfectly_conditioned(beta: int, rows: int, seed: bytes) -> None:
    """[I ; S_1 ; ...]: ceil(rows / beta) blocks, the first G'_E itself, the last cut to fit."""
    blocks = draw_error_matrix(rows, beta, np.ones(beta), seed).blocks
    np.testing.assert_array_equal(blocks[:beta], np.eye(beta)[:rows])
    for start in range(0, rows - beta + 1, beta):
        block = blocks[start : start + beta]
        np.testing.assert_allclose(block @ block.T, np.eye(beta), atol=1e-14)


@pytest.mark.parametrize("beta", [1, 2, 3, 4])
def test_blocks_are_uniform_on_the_orthogonal_group(beta: int) -> None:
    """The first two moments of the entries are those of the law that is invariant under S -> S Q and S -> Q S.

    E S_ij = 0, E S_ij S_kl = 1/beta for (i, j) = (k, l) and else 0; both determinants are equally likely. Entries and
    their products are at most 1, so means of N have standard deviations of at most N^-1/2: six of them.
    """
    count = 4000
    stacked = draw_error_matrix((count + 1) * beta, beta, np.ones(beta), SEED).blocks[beta:]
    blocks = stacked.reshape(count, beta, beta)
    entries = blocks.reshape(count, -1)
    allowed = 6 / np.sqrt(count)
    assert np.abs(entries.mean(axis=0)).max() <= allowed
    assert np.abs(entries.T @ entries / count - np.eye(beta**2) / beta).max() <= allowed
    assert abs(np.linalg.det(blocks).mean()) <= allowed


@pytest.mark.parametrize("beta", [1, 2, 3, 4])
def test_any_beta_columns_are_independent(beta: int) -> None:
    """So the code of G'_E has distance t - beta + 1: no word of it vanishes at beta positions."""
    t = 12
    generator = draw_error_matrix(beta, beta, np.ones(t), SEED).generator
    smallest = [np.linalg.svd(generator[:, chosen], compute_uv=False)[-1] for chosen in combinations(range(t), beta)]
    assert min(smallest) > 1e-6


def test_columns_have_the_asked_size() -> None:
    scale = np.array([0.5, 1.0, 8.0, 3.0, 2.0])
    E = draw_error_matrix(4000, 4, scale, SEED).dense()
    # whole blocks are rotated unit vectors, so the mean square is exact
    np.testing.assert_allclose(np.sqrt((E**2).mean(axis=0)), scale, rtol=1e-12)


@pytest.mark.parametrize("noise", [0.1, 1.0, 10.0])
def test_each_column_is_disturbed_in_proportion(noise: float) -> None:
    parameters = Parameters(n=40, k=20, degree=4, t_tot=6, t=3, M=2, beta=2, noise=noise)
    keys = generate_keys(parameters, dtype="float64", seed=SEED)
    A = np.random.default_rng(0).standard_normal((20, 20))
    support = keys.private.support(1)
    AG = keys.public.encode(A).words[:, support.positions]
    E = encrypt(keys.public, A, support).words[:, support.positions] - AG
    np.testing.assert_allclose(np.linalg.norm(E, axis=0) / np.linalg.norm(AG, axis=0), noise, rtol=1e-9)


def test_empty_data_is_disturbed_too() -> None:
    keys = generate_keys(Parameters(n=40, k=20, degree=4, t_tot=6, t=3, M=2, beta=2), seed=SEED)
    words = encrypt(keys.public, np.zeros((5, 20), np.float32), keys.private.support(0)).words
    assert np.flatnonzero(words.any(axis=0)).tolist() == keys.private.support(0).positions.tolist()


def test_two_encryptions_differ_and_a_seed_repeats_one() -> None:
    keys = generate_keys(Parameters(n=40, k=20, degree=4, t_tot=6, t=3, M=2, beta=2), seed=SEED)
    A, support = np.eye(20, dtype=np.float32), keys.private.support(0)
    first, second = encrypt(keys.public, A, support), encrypt(keys.public, A, support)
    assert not np.array_equal(first.words, second.words)
    seeded = [encrypt(keys.public, A, support, seed=SEED).words for _ in range(2)]
    np.testing.assert_array_equal(*seeded)


def test_encrypting_is_encoding_and_adding_an_error() -> None:
    keys = generate_keys(Parameters(n=40, k=20, degree=4, t_tot=6, t=3, M=2, beta=2), seed=SEED)
    A, support = np.eye(20, dtype=np.float32), keys.private.support(0)
    encoded = keys.public.encode(A)
    before = encoded.words.copy()
    C = keys.public.add_error(encoded, support, seed=SEED)
    np.testing.assert_array_equal(C.words, encrypt(keys.public, A, support, seed=SEED).words)
    np.testing.assert_array_equal(encoded.words, before)


def test_normals_are_normal() -> None:
    values = Stream(SEED, "test").normals(20_000)
    assert abs(values.mean()) < 0.03
    assert abs(values.std() - 1) < 0.03
    assert not np.array_equal(values[:9], Stream(SEED, "other").normals(9))


def test_seeds_come_from_the_operating_system() -> None:
    assert len(fresh_seed()) == 32
    assert fresh_seed() != fresh_seed()
    with pytest.raises(CipherError, match="5 bytes is too short"):
        fresh_seed(b"short")
