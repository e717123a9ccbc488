"""The task: Gram matrices, gradient and loss against independent routes, scores, learning rate, limits."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, r2_score

from codedfl.errors import DataError
from codedfl.scenario import Training
from codedfl.schemes import Work
from codedfl.schemes.plain.conventional import GradientDevice
from codedfl.task import Problem, Shard, gram, learning_rate
from tiny import gamma, is_one_sentence, plain_gradient, problem, scenario

# --- Gram matrices ---

small_integers = arrays(np.float32, st.tuples(st.integers(1, 12), st.integers(1, 9)), elements=st.integers(-50, 50))


def within(x: np.ndarray, step: int) -> np.ndarray:
    """The same matrix as a part of a larger one: its first rows and columns, or every second."""
    larger = np.zeros((2 * x.shape[0], 2 * x.shape[1]), x.dtype)
    part = larger[: step * x.shape[0] : step, : step * x.shape[1] : step]
    part[:] = x
    return part


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "part": lambda x: within(x, 1),
    "gaps": lambda x: within(x, 2),
}


@given(small_integers, st.sampled_from(list(LAYOUTS)))
def test_the_gram_matrix_of_integers_is_exact(x: np.ndarray, layout: str) -> None:
    """Sums of at most 12 products up to 2500 are far below 2^24, so float32 holds every one of them."""
    exact = [[sum(Fraction(int(a)) * int(b) for a, b in zip(p, q, strict=True)) for q in x.T] for p in x.T]
    assert gram(LAYOUTS[layout](x)).tolist() == [[int(value) for value in row] for row in exact]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_gram_matrix_is_symmetric_to_the_last_bit_and_near_the_truth(dtype: str, layout: str) -> None:
    """Each entry is a sum of n products: gamma_n times the sum of their absolute values."""
    for shape in [(1, 1), (1, 7), (5, 1), (40, 17), (17, 40), (300, 33)]:
        x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
        truth, size = (np.asarray(z.T @ z) for z in (x.astype(np.longdouble), abs(x.astype(np.longdouble))))
        found = gram(LAYOUTS[layout](x))
        assert found.dtype == dtype
        assert np.array_equal(found, found.T)
        assert np.all(abs(found - truth) <= gamma(shape[0], dtype) * size)


def test_a_shard_holds_gram_matrix_and_moments_of_its_samples() -> None:
    x, y = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.array([[1.0], [0.0], [2.0]])
    shard = Shard(x, y)
    assert shard.samples == 3
    assert shard.gram.tolist() == [[1 + 9 + 25, 2 + 12 + 30], [2 + 12 + 30, 4 + 16 + 36]]
    assert shard.moments.tolist() == [[1 + 0 + 10], [2 + 0 + 12]]
    assert shard.gram is shard.gram, "computed once"


@pytest.mark.parametrize(("samples", "compact"), [(1, False), (3, False), (4, True), (20, True)])
def test_the_cheaper_product_is_taken(samples: int, compact: bool) -> None:
    """d = 7, c = 3: through A it is 7*7*3 = 147 multiplications, through X it is 2*n*7*3 = 42 n; 42*4 > 147 > 42*3."""
    given_problem = problem([samples], features=7, outputs=3)
    (shard,) = given_problem.shards
    assert shard.compact is compact
    work = Work()
    model = np.random.default_rng(1).standard_normal((7, 3))
    reply = GradientDevice(shard).reply(1, {"model": model}, work)["gradient"]
    assert work.macs == min(147, 42 * samples)
    expected, bound = plain_gradient(given_problem.shards, model)
    assert np.all(abs(reply / samples - expected) <= bound)


def test_both_products_agree() -> None:
    """One shard of 40 samples, and the same samples as 20 shards too small for a Gram matrix (2 * 2 < 7)."""
    (whole,) = problem([40], features=7).shards
    parts = [Shard(x, y) for x, y in zip(np.split(whole.x, 20), np.split(whole.y, 20), strict=True)]
    assert whole.compact
    assert not any(part.compact for part in parts)
    model = np.random.default_rng(1).standard_normal((7, 3))
    one = GradientDevice(whole).reply(1, {"model": model}, Work())["gradient"] / 40
    many = sum(GradientDevice(part).reply(1, {"model": model}, Work())["gradient"] for part in parts) / 40
    _, bound = plain_gradient([whole], model)
    _, bound_of_parts = plain_gradient(parts, model)
    assert np.all(abs(one - many) <= bound + bound_of_parts)


@pytest.mark.parametrize("sizes", [[40], [40, 30], [2] * 30, [1, 50, 2, 3, 60, 1]])
def test_the_totals_are_those_of_all_samples_together(sizes: list[int]) -> None:
    """Small shards are taken together on the way; gamma of all m samples bounds any order of adding."""
    given_problem = problem(sizes, features=7)
    x, y = (np.concatenate([getattr(shard, name) for shard in given_problem.shards]) for name in "xy")
    assert given_problem.samples == len(x) == sum(sizes)
    bound = 2 * gamma(len(x) + len(sizes), float)
    assert np.all(abs(given_problem.total_gram - x.T @ x) <= bound * (abs(x).T @ abs(x)))
    assert np.all(abs(given_problem.total_moments - x.T @ y) <= bound * (abs(x).T @ abs(y)))
    assert given_problem.target_energy == len(x), "one-hot rows"


# --- loss and gradient ---


def absolute_loss(given_problem: Problem, model: np.ndarray) -> float:
    """The loss with every term taken by its absolute value: what rounding errors are relative to."""
    size = sum(np.sum((abs(s.x) @ abs(model) + abs(s.y)) ** 2) for s in given_problem.shards)
    return float(size / (2 * given_problem.samples) + given_problem.ridge / 2 * np.sum(model**2))


def roundings(given_problem: Problem) -> int:
    """Along a chain to the loss: m for Gram matrix or energy, d for its product, d*c to add up, N and 6 single ones."""
    d, c = given_problem.shape
    return given_problem.samples + d + d * c + len(given_problem.shards) + 6


shapes = st.fixed_dictionaries(
    {
        "sizes": st.lists(st.integers(1, 12), min_size=1, max_size=4),
        "features": st.integers(1, 6),
        "outputs": st.integers(2, 3),
        "ridge": st.sampled_from([0.0, 0.01, 3.0]),
        "seed": st.integers(0, 1000),
    }
)


@given(shapes, st.integers(0, 1000))
def test_the_loss_is_its_definition(shape: dict[str, Any], seed: int) -> None:
    given_problem = problem(**shape)
    model = np.random.default_rng(seed).standard_normal(given_problem.shape)
    direct = sum(np.sum((s.x @ model - s.y) ** 2) for s in given_problem.shards) / (2 * given_problem.samples)
    direct += given_problem.ridge / 2 * np.sum(model**2)
    found = given_problem.score(model[None]).loss[0]
    assert abs(found - direct) <= 2 * gamma(roundings(given_problem), float) * absolute_loss(given_problem, model)


@given(shapes, st.integers(0, 1000), st.data())
def test_the_gradient_is_the_slope_of_the_loss(shape: dict[str, Any], seed: int, chosen: st.DataObject) -> None:
    """The loss is quadratic, so (f(Theta + h e) - f(Theta - h e)) / 2h is the slope for any h, here 1.

    Both losses are off by at most gamma times their absolute size, which bounds the difference of the slopes.
    """
    given_problem = problem(**shape)
    evaluator = given_problem
    model = np.random.default_rng(seed).standard_normal(given_problem.shape)
    step = np.zeros_like(model)
    step[tuple(chosen.draw(st.integers(0, size - 1)) for size in model.shape)] = 1.0
    scores = evaluator.score(np.stack([model, model + step, model - step]))
    slope = (scores.loss[1] - scores.loss[2]) / 2
    gradient = np.sum((scores.gradient[0] + given_problem.ridge * model) * step)
    bound = 2 * gamma(roundings(given_problem), float) * absolute_loss(given_problem, abs(model) + step)
    assert abs(slope - gradient) <= 2 * bound


@given(shapes, st.integers(0, 1000))
def test_the_gradient_is_that_of_the_samples(shape: dict[str, Any], seed: int) -> None:
    given_problem = problem(**shape)
    models = np.random.default_rng(seed).standard_normal((3, *given_problem.shape))
    for model, found in zip(models, given_problem.score(models).gradient, strict=True):
        expected, bound = plain_gradient(given_problem.shards, model)
        # the total Gram matrix adds over all samples, not over those of one device: m instead of the largest n_i
        assert np.all(abs(found - expected) <= bound * given_problem.samples)


@given(shapes)
def test_loss_and_gradient_of_the_zero_model(shape: dict[str, Any]) -> None:
    """One-hot rows have the energy 1 each, and the ridge says nothing of zeros: the loss is 1/2 for any data."""
    given_problem = problem(**shape)
    zeros = np.zeros(given_problem.shape)
    assert given_problem.zero_loss == 0.5
    expected, bound = plain_gradient(given_problem.shards, zeros)
    assert np.all(abs(given_problem.zero_gradient - expected) <= bound * given_problem.samples)


def test_a_block_of_models_scores_as_each_alone() -> None:
    given_problem = problem([30, 20])
    models = np.random.default_rng(0).standard_normal((5, *given_problem.shape))
    together = given_problem.score(models)
    for number, model in enumerate(models):
        alone = given_problem.score(model[None])
        assert together.accuracy[number] == alone.accuracy[0]
        size = absolute_loss(given_problem, model)
        assert abs(together.loss[number] - alone.loss[0]) <= 2 * gamma(roundings(given_problem), float) * size


def test_weights_of_features_are_those_of_scaled_columns() -> None:
    """By another way: with z = sqrt(p) Theta and columns x / sqrt(p), the ridge term is lambda/2 ||z||^2."""
    weights = np.geomspace(0.1, 10, 6)[:, None]
    rng = np.random.default_rng(0)
    x, y, theta, start = (rng.standard_normal(shape) for shape in ((40, 6), (40, 2), (6, 2), (6, 2)))
    root = np.sqrt(weights)
    ours = Problem((Shard(x, y),), x, y, "regression", 0.3 * weights, start)
    theirs = Problem((Shard(x / root.T, y),), x, y, "regression", 0.3, root * start)
    found, expected = ours.score(theta[None]).loss[0], theirs.score((root * theta)[None]).loss[0]
    assert found == pytest.approx(expected, rel=1e-13)
    assert ours.zero_loss == pytest.approx(theirs.zero_loss, rel=1e-13)
    assert np.allclose(ours.ridge_solution(), theirs.ridge_solution() / root, rtol=1e-12)
    curvatures = np.linalg.eigvalsh(x.T @ x / 40 + np.diag(0.3 * weights[:, 0]))
    assert ours.largest_stable_rate() == pytest.approx(2 / curvatures[-1], rel=1e-13)


# --- accuracy and R^2 ---


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_accuracy_is_that_of_scikit_learn(dtype: str) -> None:
    given_problem = problem([30], outputs=4, dtype=dtype)
    models = np.random.default_rng(3).standard_normal((6, *given_problem.shape)).astype(dtype)
    found = given_problem.score(models).accuracy
    expected = [accuracy_score(given_problem.y_test, np.argmax(given_problem.x_test @ m, axis=1)) for m in models]
    assert found.tolist() == expected
    assert len(set(expected)) > 1


def test_r_squared_is_that_of_scikit_learn() -> None:
    """Integers and 2^k samples: residuals and spreads are exact, and only 1 - r/s and the mean over c are rounded."""
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-9, 9, (16, columns)).astype(float) for columns in (3, 2))
    given_problem = Problem((Shard(x, y),), x, y, "regression", 0.0)
    models = rng.integers(-2, 3, (4, 3, 2)).astype(float)
    found = given_problem.score(models).accuracy
    for model, value in zip(models, found, strict=True):
        ratios = np.sum((y - x @ model) ** 2, axis=0) / np.sum((y - y.mean(axis=0)) ** 2, axis=0)
        expected = r2_score(y, x @ model)
        assert abs(value - expected) <= 2 * gamma(4, float) * np.mean(1 + ratios)


def test_r_squared_of_a_perfect_and_of_a_constant_model() -> None:
    x = np.array([[1.0], [-1.0], [3.0], [-3.0]])
    given_problem = Problem((Shard(x, 2 * x),), x, 2 * x, "regression", 0.0)
    found = given_problem.score(np.array([[[2.0]], [[0.0]]])).accuracy
    assert found.tolist() == [1.0, 0.0]  # zero is the mean of these targets


def test_a_constant_test_target_is_refused() -> None:
    x = np.eye(3)
    y = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    with pytest.raises(DataError) as error:
        Problem((Shard(x, y),), x, y, "regression", 0.0)
    assert "constant" in str(error.value)
    assert is_one_sentence(str(error.value))


# --- learning rate ---


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(1, 6.0), (199, 6.0), (200, 4.8), (201, 4.8), (349, 4.8), (350, 3.84), (351, 3.84), (10**6, 3.84)],
)
def test_the_papers_schedule(epoch: int, expected: float) -> None:
    """6, times 0.8 from epoch 200 on, times 0.8 again from epoch 350 on; two roundings each here and in the decimal."""
    assert abs(learning_rate(Training(), epoch) - expected) <= gamma(4, float) * expected


def test_without_milestones_the_rate_stays() -> None:
    training = Training(learning_rate=0.3, decay_epochs=())
    assert {learning_rate(training, epoch) for epoch in (1, 200, 1000)} == {0.3}


# --- limits ---


@given(shapes.filter(lambda shape: shape["ridge"] > 0))
def test_the_ridge_solution_has_no_gradient(shape: dict[str, Any]) -> None:
    """Cholesky is backward stable: the residual is at most d * gamma_(3d+1) * ||A|| * ||Theta|| (Higham, theorem 10.4).

    Evaluating the gradient adds its own rounding, gamma of its chain times its absolute size.
    """
    given_problem = problem(**shape)
    d = given_problem.shape[0]
    solution = given_problem.ridge_solution()
    gradient = given_problem.score(solution[None]).gradient[0] + given_problem.ridge * solution
    system = given_problem.total_gram / given_problem.samples + given_problem.ridge * np.eye(d)
    solving = d * gamma(3 * d + 1, float) * np.linalg.norm(system, 2) * np.linalg.norm(solution)
    size = abs(system) @ abs(solution) + abs(given_problem.total_moments) / given_problem.samples
    assert np.linalg.norm(gradient) <= solving + 2 * gamma(d + 5, float) * np.linalg.norm(size)


def test_the_ridge_solution_is_that_of_scikit_learn() -> None:
    """Ridge minimises ||y - x w||^2 + alpha ||w||^2, so alpha = m * lambda; both solve to eps times the condition."""
    given_problem = problem([40, 30], ridge=0.1)
    x, y = (np.concatenate([getattr(shard, name) for shard in given_problem.shards]) for name in "xy")
    expected = Ridge(alpha=70 * 0.1, fit_intercept=False, solver="svd").fit(x, y).coef_.T
    found = given_problem.ridge_solution()
    condition = np.linalg.cond(x.T @ x / 70 + 0.1 * np.eye(6))
    bound = 2 * 6 * gamma(3 * 6 + 1 + 70, float) * condition * np.linalg.norm(expected)
    assert np.linalg.norm(found - expected) <= bound


@pytest.mark.parametrize("seed", range(3))
def test_without_ridge_the_smallest_of_many_minimisers_is_taken(seed: int) -> None:
    """Two equal columns: any split between them fits alike, and the even one is the smallest."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((20, 3))
    x = np.column_stack([x, x[:, 0]])
    y = rng.standard_normal((20, 2))
    solution = Problem((Shard(x, y),), x, y, "regression", 0.0).ridge_solution()
    expected = np.linalg.pinv(x) @ y
    # the normal equations square the condition number of the three independent columns
    error = 4 * gamma(20 + 3 * 4, float) * np.linalg.cond(x[:, :3]) ** 2
    assert np.linalg.norm(solution - expected) <= 4 * error * np.linalg.norm(expected)


def descend(given_problem: Problem, rate: float, steps: int) -> float:
    """Distance to the minimiser after plain gradient descent from zero, relative to that of zero."""
    goal = given_problem.ridge_solution()
    x, y = (np.concatenate([getattr(shard, name) for shard in given_problem.shards]) for name in "xy")
    model = np.zeros_like(goal)
    for _ in range(steps):
        model = model - rate * (x.T @ (x @ model - y) / len(x) + given_problem.ridge * model)
    return float(np.linalg.norm(model - goal) / np.linalg.norm(goal))


def test_descent_converges_below_the_largest_stable_rate_and_diverges_above() -> None:
    """Errors along the steepest direction are multiplied by 1 - rate * L: -0.9 at 0.95 * 2/L, and -1.2 at 1.1 * 2/L.

    In the flattest direction (smallest eigenvalue s) by 1 - 1.9 s/L. So 200 steps leave at most the larger factor q to
    the 200th, and the roundings of all steps, m + d + 5 each, which fade by q: together at most 1 / (1 - q) times
    those of one, whose terms are at most rate * (|X|^T |X| |Theta| + |X|^T |Y|) / m with |Theta| <= 2 |goal|.
    Above, the steepest part of the first error, share p, grows to p * 1.2^200; half of it leaves room for rounding.
    """
    given_problem = problem([40, 30], ridge=0.05)
    rate = given_problem.largest_stable_rate()
    x = np.concatenate([shard.x for shard in given_problem.shards])
    values, vectors = np.linalg.eigh(x.T @ x / 70 + 0.05 * np.eye(6))
    assert abs(rate - 2 / values[-1]) <= 2 / values[-1] * 6 * gamma(70, float)
    slowest = max(0.9, 1 - 1.9 * values[0] / values[-1])
    goal = given_problem.ridge_solution()
    y = np.concatenate([shard.y for shard in given_problem.shards])
    terms = 2 * np.linalg.norm(abs(x), 2) ** 2 + np.linalg.norm(abs(x).T @ abs(y)) / np.linalg.norm(goal)
    rounding = gamma(70 + 6 + 5, float) * rate * terms / 70 / (1 - slowest)
    assert descend(given_problem, 0.95 * rate, 200) <= slowest**200 + 2 * rounding
    share = np.linalg.norm(vectors[:, -1] @ goal) / np.linalg.norm(goal)
    assert descend(given_problem, 1.1 * rate, 200) >= share * 1.2**200 / 2


# --- from a scenario ---


@pytest.fixture(scope="module")
def digits() -> Problem:
    changes = {"features.dimension": 20, "features.gamma": 0.1, "features.seed": 3, "task.precision": "float64"}
    return Problem.build(scenario({**changes, "task.ridge": 0.5}))


def test_digits_are_dealt_to_the_fleet(digits: Problem) -> None:
    assert digits.kind == "classification"
    assert digits.ridge == 0.5
    assert digits.shape == (20, 10)
    assert digits.dtype == np.float64
    assert len(digits.shards) == 25
    sizes = [shard.samples for shard in digits.shards]
    assert max(sizes) - min(sizes) <= 1
    assert digits.samples + len(digits.x_test) == 1797
    for shard in digits.shards:
        assert np.array_equal(np.sort(shard.y, axis=1)[:, ::9], np.tile([0.0, 1.0], (shard.samples, 1)))


def test_digits_are_embedded_as_by_scikit_learn_each_sample_once(digits: Problem) -> None:
    """Sums over all samples do not depend on who holds them: training and test together are the whole data set.

    A feature is cos of a sum of 64 products and an offset: its error is that of the angle, gamma_66 times its
    absolute size, and two roundings more. The sums add over 1797 samples.
    """
    pixels, labels = load_digits(return_X_y=True)
    sampler = RBFSampler(gamma=0.1, n_components=20, random_state=3).fit(pixels)
    expected = sampler.transform(pixels / 16)
    angle = abs(pixels / 16) @ abs(sampler.random_weights_) + abs(sampler.random_offset_)
    each = np.sqrt(2 / 20) * (gamma(66, float) * angle.max() + gamma(2, float))
    found = digits.total_gram + digits.x_test.T @ digits.x_test
    bound = 2 * 1797 * (2 * np.sqrt(2 / 20) * each + gamma(1797, float) * 2 / 20)
    assert np.all(abs(found - expected.T @ expected) <= bound)
    of_class = np.sum([shard.y.sum(axis=0) for shard in digits.shards], axis=0) + np.bincount(digits.y_test)
    assert of_class.tolist() == np.bincount(labels).tolist()


def test_features_as_they_are() -> None:
    built = Problem.build(scenario({"features.kind": "none"}))
    assert built.shape == (64, 10)
    assert built.dtype == np.float32
    total = sum(shard.x.sum(dtype=float) for shard in built.shards) + built.x_test.sum(dtype=float)
    assert total * 16 == load_digits().data.sum(), "sixteenths are exact"
