"""Columns that errors made longer stand out; how far depends on the scale of the errors."""

from collections.abc import Callable

import numpy as np
import pytest

from codedfl.security.attacks.supports.column_norms import ColumnNorms, UnexplainedNorms
from codedfl.security.contract import Attack
from codedfl.security.views.kinds import ParcelView
from security.ciphertexts import encrypted, gram_matrix, parameters, small_keys

SCALES = (1e-3, 1e-1, 1.0, 10.0, 1e3)


def encrypt_at(dtype: str) -> Callable[[float], tuple[ParcelView, np.ndarray]]:
    def encrypt(scale: float) -> tuple[ParcelView, np.ndarray]:
        keys = small_keys(parameters(n=400, k=200, t=16, noise=scale), dtype)
        case = encrypted(keys, gram_matrix(200, 100, np.random.default_rng(1)))
        return case.view, case.positions

    return encrypt


def share_found(attack: Attack[ParcelView], view: ParcelView, positions: np.ndarray) -> float:
    return float(np.isin(positions, attack.run(view, np.random.default_rng(0)).support).mean())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_loud_errors_are_seen_and_quiet_ones_are_not(dtype: str) -> None:
    encrypt = encrypt_at(dtype)
    shares = np.array([share_found(ColumnNorms(), *encrypt(scale)) for scale in SCALES])
    assert shares[-1] == 1
    # 16 named of 400: hypergeometric, mean 0.64 of 16 and deviation 0.77, so four deviations above are 3.7
    assert shares[0] <= 3.7 / 16
    assert (np.diff(shares) >= -1 / 16).all()


def test_unexplained_lengths_do_not_depend_on_the_scale() -> None:
    """C P = E P is proportional to the errors, so the order of its columns is one and the same."""
    encrypt = encrypt_at("float64")
    found = [UnexplainedNorms().run(encrypt(scale)[0], np.random.default_rng(0)).support.tolist() for scale in SCALES]
    assert all(support == found[0] for support in found)


def test_unexplained_lengths_tell_more_than_lengths() -> None:
    view, positions = encrypt_at("float32")(1.0)
    lengths, unexplained = (share_found(attack, view, positions) for attack in (ColumnNorms(), UnexplainedNorms()))
    assert unexplained > lengths + 0.25


def test_a_column_without_data_shows_its_error() -> None:
    rng = np.random.default_rng(2)
    G = rng.standard_normal((10, 30))
    G[:, 4] = 0
    words = rng.standard_normal((10, 10)) @ G
    words[:, 4] = 1e-3
    words[:, 9] += 1e3
    assert ColumnNorms().run(ParcelView(G, words, 2, 1), rng).support.tolist() == [4, 9]


@pytest.mark.parametrize("attack", [ColumnNorms(), UnexplainedNorms()], ids=lambda attack: attack.name)
def test_without_supports_none_is_named(attack: ColumnNorms | UnexplainedNorms) -> None:
    view = ParcelView(np.eye(20), np.random.default_rng(3).standard_normal((20, 20)), 0, 0)
    found = attack.run(view, np.random.default_rng(0))
    assert found.support is None
    assert found.remark
