"""What parity data give away: the span exactly, targets exactly, the Gram matrix to a known error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from codedfl.data import FeatureMap
from codedfl.security.attacks.parity_data import ParityGram, ParitySpan, _span, read_targets
from codedfl.security.contract import Finding
from codedfl.security.scoring import Score, Truth, relative_error, score
from codedfl.security.views.kinds import ParityMembershipView, ParityView

D = 150


@pytest.fixture(scope="module")
def digits() -> np.ndarray:
    """Features of all digits in random order."""
    images = np.random.default_rng(0).permutation(load_digits().data / 16)
    return FeatureMap.create("rbf", inputs=64, dimension=D, gamma=0.1, dtype="float64").transform(images)


def encoded(
    x: np.ndarray, rows: int, seed: int, weights: np.ndarray | None = None, dtype: str = "float64"
) -> ParityView:
    """Parity data as a device makes them; the targets are three random columns."""
    rng = np.random.default_rng(seed)
    weights = np.ones(len(x)) if weights is None else weights
    G = rng.standard_normal((rows, len(x))) / np.sqrt(rows) * weights
    y = targets(len(x))
    mass = float(np.sum(weights**2))
    return ParityView((G @ x).astype(dtype), (G @ y).astype(dtype), int(np.count_nonzero(weights)), mass)


def targets(count: int) -> np.ndarray:
    return np.random.default_rng(9).standard_normal((count, 3))


def ranked(view: ParityView, inside: np.ndarray, outside: np.ndarray) -> tuple[Finding, Score]:
    candidates = np.concatenate([inside, outside])
    asked = ParityMembershipView(view.parity, view.points, candidates)
    found = ParitySpan().run(asked, np.random.default_rng(0))
    return found, score(found, Truth(members=np.arange(len(candidates)) < len(inside)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [60, 100])
def test_as_many_rows_as_points_tell_every_member(digits: np.ndarray, rows: int, dtype: str) -> None:
    """Also with weights: a fifth counts fully, the rest with a hundredth. Not one stranger is nearer than a member."""
    weights = np.where(np.arange(60) < 12, 1.0, 0.01)
    found, scored = ranked(encoded(digits[:60], rows, 1, weights, dtype), digits[:60], digits[60:1000])
    assert (scored.auc, scored.verdict) == (1.0, "falls")
    assert found.remark == "a span of dimension 60 of 150"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lame", [False, True])
def test_the_span_of_many_rows_is_that_of_the_singular_values(digits: np.ndarray, dtype: str, lame: bool) -> None:
    """Also where the first rows say nothing: then they are no random combinations of the points."""
    view = encoded(digits[:40], 130, 1, dtype=dtype)
    if lame:
        view.parity[:60] = 0
    _, sizes, right = np.linalg.svd(view.parity.astype(np.float64))
    basis, found = _span(view.parity, view.points)
    unit = float(np.finfo(np.float64).eps) * sizes[0]
    assert found == pytest.approx(sizes[:40], abs=130 * unit)
    # projections onto spans differ by no more than the noise beside them against the gap (Davis and Kahan)
    assert basis @ basis.T == pytest.approx(right[:40].T @ right[:40], abs=130 * (unit + sizes[40]) / sizes[39])


def test_a_member_lies_in_the_span_up_to_rounding(digits: np.ndarray) -> None:
    """||(I - P) x_j|| <= ||e_j (G W)^+|| times the rounding of X~ (d^(1/2) c units of its largest row)."""
    view = encoded(digits[:60], 100, 1)
    found, _ = ranked(view, digits[:60], digits[60:70])
    assert found.membership is not None
    G = np.random.default_rng(1).standard_normal((100, 60)) / 10
    rounding = 100 * np.sqrt(D) * np.finfo(np.float64).eps * np.linalg.norm(view.parity, axis=1).max()
    assert -found.membership[:60].min() <= np.linalg.norm(np.linalg.pinv(G), 2) * rounding
    assert -found.membership[60:].max() > 0.01


@pytest.mark.parametrize("rows", [30, 50])
def test_fewer_rows_than_points_tell_something(digits: np.ndarray, rows: int) -> None:
    _, scored = ranked(encoded(digits[:100], rows, 2), digits[:100], digits[100:1000])
    assert scored.auc is not None
    assert scored.auc < 1
    assert scored.verdict in ("leaks", "falls")


def test_parity_data_of_others_tell_nothing(digits: np.ndarray) -> None:
    _, scored = ranked(encoded(digits[-60:], 100, 3), digits[:60], digits[60:1000])
    assert scored.verdict == "holds"


def test_a_span_of_everything_leaves_the_leverage(digits: np.ndarray) -> None:
    """400 points of 150 features: no candidate is outside, and members have a smaller leverage than strangers."""
    found, scored = ranked(encoded(digits[:400], 4000, 4), digits[:400], digits[400:1400])
    assert found.remark == "a span of dimension 150 of 150"
    assert scored.verdict == "leaks"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_targets_of_members_are_read(digits: np.ndarray, dtype: str) -> None:
    """Rounding of the parity data, 60 units of it relative to its norm, times the condition of the points."""
    x = digits[:60].astype(dtype).astype(float)
    view = encoded(x, 100, 5, dtype=dtype)
    limit = 60 * np.finfo(dtype).eps * np.linalg.cond(x) * np.linalg.cond(view.parity[:, :60].astype(float))
    np.testing.assert_allclose(read_targets(view, x), targets(60), atol=min(limit, 0.1))


DRAWS = 400


@pytest.mark.parametrize("rows", [20, 80])
def test_the_error_of_the_gram_matrix_is_the_derived_one(digits: np.ndarray, rows: int) -> None:
    """The mean of 400 squared errors against (1 + (tr A)^2 / ||A||^2) / c, within six standard deviations of it."""
    x = digits[:40, :30]
    A = x.T @ x
    expected = (1 + np.trace(A) ** 2 / np.sum(A**2)) / rows
    squares = []
    for seed in range(DRAWS):
        found = ParityGram().run(encoded(x, rows, seed), np.random.default_rng(0)).gram
        assert found is not None
        squares.append(relative_error(found, A) ** 2)
    assert abs(np.mean(squares) - expected) <= 6 * np.std(squares) / np.sqrt(DRAWS)
    assert abs(np.mean(squares) - expected) < 0.2 * expected, "six deviations say something"


@pytest.mark.parametrize("rows", [40, 100])
def test_a_public_guess_makes_the_estimate_better(digits: np.ndarray, rows: int) -> None:
    """Better than either alone in the mean of 100 draws, with fewer rows than points and with more."""
    x, others = digits[:60], digits[60:1000]
    A, guess = x.T @ x, others.T @ others * (60 / len(others))
    by_guess = relative_error(guess, A)
    squares = []
    for seed in range(100):
        view = encoded(x, rows, seed)
        found = [ParityGram(prior).run(view, np.random.default_rng(0)).gram for prior in (None, guess)]
        squares.append([relative_error(gram, A) ** 2 for gram in found if gram is not None])
    alone, both = np.mean(squares, axis=0)
    assert both < 0.9 * min(alone, by_guess**2)


def test_the_scale_is_that_of_all_points(digits: np.ndarray) -> None:
    """Equal weights are public, so they make no difference."""
    light, plain = (
        ParityGram().run(encoded(digits[:60], 80, 7, weights), np.random.default_rng(0)).gram
        for weights in (np.full(60, 0.125), None)
    )
    np.testing.assert_allclose(light, plain, rtol=1e-12)


@given(seed=st.integers(0, 2**31), rows=st.integers(2, 20), points=st.integers(1, 12))
def test_turning_the_parity_data_changes_nothing(seed: int, rows: int, points: int) -> None:
    """What is told is told by X~^T X~: an orthogonal Q in front of X~ makes no difference."""
    rng = np.random.default_rng(seed)
    x, guess = rng.standard_normal((points, 8)), np.eye(8)
    view = encoded(x, rows, seed)
    Q = np.linalg.qr(rng.standard_normal((rows, rows)))[0]
    turned = ParityView(Q @ view.parity, Q @ view.targets, view.points, view.mass)
    for attack in (ParityGram(), ParityGram(guess)):
        one, two = (attack.run(entry, rng).gram for entry in (view, turned))
        assert one is not None
        np.testing.assert_allclose(one, two, atol=1e-9 * np.linalg.norm(one))


def test_nothing_but_zeros_tells_nothing() -> None:
    view = ParityView(np.zeros((5, 4)), np.zeros((5, 2)), 3, 1.0)
    asked = ParityMembershipView(view.parity, 3, np.eye(4))
    np.testing.assert_array_equal(ParitySpan().run(asked, np.random.default_rng(0)).membership, -np.ones(4))
    np.testing.assert_array_equal(
        ParityGram(np.zeros((4, 4))).run(view, np.random.default_rng(0)).gram, np.zeros((4, 4))
    )
