"""The softmax loss: against SciPy, finite differences and scikit-learn."""

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp
from scipy.special import softmax as reference
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import codedfl
from codedfl.errors import ScenarioError, UsageError
from codedfl.security.audit import attack_scenario
from codedfl.task import Problem, Shard
from codedfl.task.losses import SOFTMAX, SQUARED, check_kind, residuals, softmax, softmax_terms
from codedfl.task.model import Model
from codedfl.testing.small import problem, scenario, trained

RIDGE = 0.01


def small_problem() -> Problem:
    made = problem((30, 20, 10), dtype="float64", ridge=RIDGE)
    return Problem(made.shards, made.x_test, made.y_test, made.kind, RIDGE, loss="softmax")


def loss_of(made: Problem, model: np.ndarray) -> float:
    """The loss, from all rows together."""
    x, y = (np.concatenate([getattr(shard, name) for shard in made.shards]) for name in "xy")
    return float(-np.sum(log_softmax(x @ model, axis=1) * y) / 60 + RIDGE / 2 * np.sum(model**2))


def test_large_scores_do_not_overflow() -> None:
    scores = np.array([[1e5, 1e5 - 1, -1e300], [0.0, 1.0, 2.0]])
    np.testing.assert_allclose(softmax(scores), reference(scores, axis=1), rtol=1e-12)


def test_large_scores_of_rows_do_not_overflow() -> None:
    """Scores x Theta are 3000 and -3000, so the loss of the second class is 6000, and that of the first nothing."""
    shards = [Shard(np.array([[3.0]]), np.eye(2)[:1]), Shard(np.array([[3.0]]), np.eye(2)[1:])]
    losses, gradients = softmax_terms(shards, np.array([[[1000.0, -1000.0]], [[0.0, 0.0]]]))
    assert losses == pytest.approx([3000.0, np.log(2)])
    assert gradients[0].tolist() == [[1.5, -1.5]]
    assert gradients[1].tolist() == [[0.0, 0.0]]


def test_slopes_of_both_losses_with_respect_to_scores() -> None:
    scores, targets = np.array([[0.0, np.log(3.0)]]), np.array([[1.0, 0.0]])
    assert residuals(SQUARED, scores, targets) == pytest.approx(np.array([[-1.0, np.log(3.0)]]))
    assert residuals(SOFTMAX, scores, targets) == pytest.approx(np.array([[0.25 - 1, 0.75]]))


def test_only_the_loss_of_classes_needs_classes() -> None:
    for loss, kind in ((SOFTMAX, "classification"), (SQUARED, "classification"), (SQUARED, "regression")):
        check_kind(loss, kind)
    with pytest.raises(ScenarioError, match=r"task\.loss = 'softmax' needs classes"):
        check_kind(SOFTMAX, "regression")


def test_scores_of_a_problem_are_the_loss_and_its_slope() -> None:
    made, rng = small_problem(), np.random.default_rng(0)
    models, points = rng.normal(size=(3, 6, 3)), rng.normal(size=(2, 6, 3))
    found = made.score(models, points)
    np.testing.assert_allclose(found.loss, [loss_of(made, model) for model in models], rtol=1e-12)
    step = 1e-5
    for at, gradient in zip([*models, *points], found.gradient, strict=True):
        way = rng.normal(size=(6, 3))
        slope = (loss_of(made, at + step * way) - loss_of(made, at - step * way)) / (2 * step)
        assert np.vdot(gradient + RIDGE * at, way) == pytest.approx(slope, rel=1e-6)
        np.testing.assert_allclose(made.gradient(at), gradient, rtol=1e-12, atol=1e-15)


def test_the_first_model_has_the_loss_of_guessing() -> None:
    made = small_problem()
    assert made.zero_loss == pytest.approx(loss_of(made, np.zeros((6, 3)))) == pytest.approx(logsumexp(np.zeros(3)))
    np.testing.assert_allclose(made.zero_gradient, made.score(np.zeros((1, 6, 3))).gradient[0], rtol=1e-12)


def test_rates_below_the_stable_one_converge() -> None:
    made = small_problem()
    stable = made.largest_stable_rate()
    assert stable > 1.9 * problem((30, 20, 10), ridge=RIDGE).largest_stable_rate()
    model, losses = np.zeros((6, 3)), []
    for _ in range(50):
        model = model - 0.5 * stable * (made.gradient(model) + RIDGE * model)
        losses.append(loss_of(made, model))
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("scheme", ["conventional", "secagg"])
@pytest.mark.parametrize("solver", ["gradient-descent", "nesterov"])
def test_gradients_of_a_training_are_those_of_the_loss(scheme: str, solver: str) -> None:
    made = small_problem()
    wanted = {"scheme": scheme, "task.loss": "softmax", "training.solver": solver, "training.learning_rate": 0.5}
    state = trained(made, scenario(wanted).with_devices(3))
    assert max(state.history.columns["gradient_error"]) < 1e-13
    assert state.history.columns["loss"][-1] == pytest.approx(loss_of(made, state.model), rel=1e-12)
    assert state.history.columns["loss"][-1] < state.history.columns["loss"][0] < made.zero_loss


class TestModels:
    def test_probabilities_are_those_of_logistic_regression(self, tmp_path) -> None:
        x, y = load_digits(return_X_y=True)
        x, y = x[:500] / 16, y[:500]
        ours = codedfl.FederatedRidgeClassifier(
            scheme="conventional",
            scale="none",
            fit_intercept=False,
            ridge=0.01,
            solver="nesterov",
            settings={"task.loss": "softmax", "training.epochs": 400, "training.learning_rate": 0.25},
        ).fit(x, y)
        theirs = LogisticRegression(C=1 / (0.01 * 500), fit_intercept=False, tol=1e-10, max_iter=10_000).fit(x, y)
        np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-4)
        np.testing.assert_array_equal(ours.predict(x), theirs.predict(x))
        ours.model_.save(tmp_path)
        loaded = Model.load(tmp_path)
        assert loaded.loss == "softmax"
        np.testing.assert_array_equal(loaded.predict_proba(x), ours.model_.predict_proba(x))
        np.testing.assert_array_equal(loaded.predict(x), ours.predict(x))

    def test_the_squared_loss_has_no_probabilities(self) -> None:
        x, y = load_digits(return_X_y=True)
        ours = codedfl.FederatedRidgeClassifier(scheme="conventional").fit(x[:60], y[:60])
        assert not hasattr(ours, "predict_proba")
        with pytest.raises(UsageError, match="softmax"):
            ours.model_.predict_proba(x[:2])

    def test_a_regression_has_no_classes(self) -> None:
        ours = codedfl.FederatedRidge(
            scheme="conventional",
            solver="gradient-descent",
            scale="none",
            fit_intercept=False,
            settings={"task.loss": "softmax"},
        )
        with pytest.raises(ValueError, match="needs classes"):
            ours.fit(np.ones((4, 2)) * [[1], [2], [3], [4]], [1.0, 2.0, 3.0, 4.0])


def test_the_squared_loss_changes_no_id() -> None:
    plain = scenario({"scheme": "conventional"})
    assert plain.with_settings({"task.loss": "softmax"}).id() != plain.id()
    table = plain.to_table()
    del table["task"]["loss"]
    assert type(plain).from_table(table).id() == plain.id()


def test_attacks_that_do_not_fit_give_no_verdict() -> None:
    wanted = scenario({"scheme": "conventional", "task.loss": "softmax"}).with_devices(3)
    with pytest.raises(ScenarioError, match=r"they say nothing of task\.loss = 'softmax'"):
        attack_scenario(wanted, small_problem())


def test_an_unknown_loss_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"task\.loss"):
        scenario({"task.loss": "absolute"})
