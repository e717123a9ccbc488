"""Runs with noise in each epoch: resumed, stopped early, predicted, and without clipping beside the ordinary one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.privacy.descent import GradientRelease
from codedfl.runs import directory as runs
from codedfl.runs.backend import SimulationBackend
from codedfl.studies.plan import Shapes, plan, predict, probe, spent_by_device
from codedfl.training import State, train
from rundirs import Stopped, results, small, small_problem, stop_at

FLOAT32 = 1e-6
PRIVATE: dict[str, Any] = {
    "scheme": "secagg",
    "privacy.epsilon": 5.0,
    "privacy.release": "each-epoch",
    "training.targets": [],
    "timing.draws": 5,
}


def run(path: Path, changes: dict[str, Any] | None = None, **options: Any) -> runs.Run:
    return runs.execute(small({**PRIVATE, **(changes or {})}), path, **options)


@pytest.mark.parametrize("loss", ["squared", "softmax"])
def test_a_resumed_run_repeats_its_replies(loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
    changes = {"task.loss": loss, "privacy.seed": 7}
    whole = run(tmp_path / "whole", changes)
    with pytest.raises(Stopped):
        run(tmp_path / "run", changes, progress=stop_at(7))
    run(tmp_path / "run", changes)
    assert results(tmp_path / "run") == results(whole.path)


def test_an_interrupted_epoch_has_the_same_noise_from_the_operating_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second attempt at an epoch gives the same sum, so that nothing more is released."""
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
    found: list[dict[int, np.ndarray]] = []
    steps = runs.train

    def watched(problem: Any, scenario: Any, scheme: Any, engine: Any, state: State, after_epoch: Any) -> State:
        replies: dict[int, np.ndarray] = {}
        found.append(replies)

        def note(current: State) -> None:
            replies[current.epoch] = current.model
            if len(found) == 1 and current.epoch == 9:
                raise Stopped  # after epoch 8 was saved and 9 was answered
            after_epoch(current)

        return steps(problem, scenario, scheme, engine, state, note)

    monkeypatch.setattr(runs, "train", watched)
    with pytest.raises(Stopped):
        run(tmp_path / "run")
    run(tmp_path / "run")
    assert min(found[1]) == 9
    np.testing.assert_array_equal(found[0][9], found[1][9])


def test_a_run_that_stops_early_states_what_was_planned(tmp_path: Path) -> None:
    """When to stop follows from the models, so fewer epochs are no smaller epsilon: stops at a loss that shows would
    exceed delta (at delta 0.01, 80 epochs of mu 0.2, 2.4 times)."""
    stops = {"training.targets": [0.2], "training.stop_at_last_target": True}
    whole, early = run(tmp_path / "whole").summary, run(tmp_path / "early", stops)
    table = early.summary["privacy"]
    assert 0 < early.summary["epochs"] < 24
    assert table["releases"] == 24
    assert table["epsilon"] == early.summary["epsilon"] == whole["epsilon"] <= 5.0
    assert "for this run of at most 24 epochs alone" in table["statement"]
    assert early.load_model().privacy == table


def test_gradients_are_not_held_against_those_without_noise(tmp_path: Path) -> None:
    made = run(tmp_path / "run", {"task.loss": "softmax"})
    assert np.isnan(made.epochs["gradient_error"]).all()
    assert made.summary["gradient_error"] is None
    assert np.isfinite(made.epochs["loss"]).all()


@pytest.mark.parametrize("loss", ["squared", "softmax"])
def test_without_clipping_and_noise_it_is_conventional_learning(loss: str) -> None:
    """Noise of 1e-6 of the gradient's scale, so models agree to the sum of as small steps."""
    ordinary = small({"scheme": "conventional", "task.loss": loss, "task.precision": "float64", "training.targets": []})
    wide = {"privacy.clip_features": 2.0, "privacy.clip_residuals": 8.0, "privacy.epsilon": 1e12}
    models = []
    for wanted in (ordinary, small({**PRIVATE, **wide, "task.loss": loss})):
        backend = SimulationBackend(wanted, runs.Problem.build(wanted))
        state = State.fresh(backend.problem)
        models.append(train(backend.problem, wanted, backend.scheme, backend.engine(state, {}), state).model)
        release = backend.scheme.public.release
    assert isinstance(release, GradientRelease)
    scale = 24 * 4.0 * 6 * release.std / small_problem().samples
    assert scale < 1e-3 * np.abs(models[0]).max()
    np.testing.assert_allclose(models[1], models[0], atol=scale)
    assert not np.array_equal(models[0], models[1])


class TestPlan:
    @pytest.mark.parametrize("changes", [{}, {"task.loss": "softmax"}, {"training.solver": "nesterov"}], ids=str)
    def test_it_agrees_with_the_run(self, changes: dict[str, Any], tmp_path: Path) -> None:
        made = run(tmp_path / "run", changes)
        shapes = Shapes.of_data(made.scenario)
        costs = probe(made.scenario, shapes.hollow(made.scenario))
        np.testing.assert_allclose(predict(costs, made.scenario, epochs=24, draws=5), made.timings, rtol=FLOAT32)
        spent = spent_by_device(costs, made.scenario, 24)
        assert int(spent["macs"].sum()) == made.summary["device_macs"]
        assert int(spent["up"].sum()) == made.summary["bits_sent"]["up"]

    def test_rows_cost_two_products_in_every_epoch(self, tmp_path: Path) -> None:
        """Beside conventional learning under the same masks, which uses Gram matrices; the first epoch is offline."""
        noisy, masked = run(tmp_path / "noisy"), run(tmp_path / "masked", {"privacy.release": "once"})
        shards, d, c = small_problem().shards, 30, 10
        assert all(shard.compact for shard in shards)
        rows = sum(shard.samples for shard in shards)
        expected = 23 * (2 * rows * d * c + 2 * rows * c - len(shards) * d * d * c)
        assert noisy.summary["device_macs"] - masked.summary["device_macs"] == expected

    def test_it_offers_as_many_epochs_as_are_planned(self) -> None:
        wanted = small(PRIVATE)
        found = plan(wanted, Shapes.of_data(wanted), names=["secagg", "one-shot"], draws=5)
        refused, offered = sorted(found.offers, key=lambda offer: not offer.refused)
        assert refused.scheme.name == "one-shot"
        assert "each-epoch" in str(refused.refused)
        assert {each.solver for each in offered.predictions} == {"gradient-descent"}
        assert [each.epochs.count for each in offered.predictions] == [24]
