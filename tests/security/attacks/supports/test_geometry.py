"""The geometry of a public G: messages are read from their codewords."""

import numpy as np
import pytest

from codedfl.security.attacks.supports.geometry import KeyGeometry


@pytest.mark.parametrize("step", [1.0, 2.0**-20, 3.0])
def test_words_of_residues_are_read_by_their_scale(step: float, rng: np.random.Generator) -> None:
    """G is the identity over the step, so that messages are words times the step, one rounding off at most."""
    geometry = KeyGeometry.prepare(np.eye(12) / step)
    assert geometry.plain
    words = rng.integers(-1000, 1000, (5, 12)).astype(np.float64)
    assert geometry.messages(geometry.coordinates(words)) == pytest.approx(words * step, rel=2e-16, abs=0)


def test_messages_are_read_from_their_codewords(rng: np.random.Generator) -> None:
    """Also where G has no redundancy and is no identity."""
    for n in (12, 20):
        G, messages = rng.standard_normal((12, n)), rng.standard_normal((7, 12))
        geometry = KeyGeometry.prepare(G)
        assert not geometry.plain
        error = np.finfo(np.float64).eps * 12 * geometry.condition * np.abs(messages).max()
        assert geometry.messages(geometry.coordinates(messages @ G)) == pytest.approx(messages, abs=error)


def test_other_than_the_identity_is_not_plain() -> None:
    """Neither a permutation nor a G whose columns have unit length."""
    assert not KeyGeometry.prepare(np.eye(4)[::-1].copy()).plain
    assert not KeyGeometry.prepare(np.array([[1.0, 0.6], [0.0, 0.8]])).plain
