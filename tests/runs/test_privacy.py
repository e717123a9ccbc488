"""What a run under differential privacy leaves: epsilon in its summary and in its model."""

import json
from pathlib import Path

import numpy as np
import pytest

import codedfl
from codedfl.cli.common import epsilon_text
from codedfl.privacy.promise import KNOWN_SEED
from codedfl.runs import Run
from codedfl.task import Problem

CHANGES = {"scheme": "one-shot", "training.solver": "closed-form", "features.dimension": 40, "timing.draws": 5}


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = tmp_path_factory.mktemp("noisy") / "run"
    return codedfl.run("paper-quick", place, {**CHANGES, "privacy.epsilon": 2.0, "privacy.colluding": 4})


def test_summary_and_model_state_the_same_budget(noisy: Run) -> None:
    table = noisy.summary["privacy"]
    assert noisy.summary["epsilon"] == table["epsilon"] == pytest.approx(2.0, rel=1e-3)
    assert noisy.summary["delta"] == 1e-5
    assert "against the server and up to 4 devices" in table["statement"]
    assert json.loads((noisy.path / "model" / "model.json").read_text())["privacy"] == table
    assert noisy.load_model().privacy == table


def test_a_known_seed_is_said_in_summary_and_model(tmp_path: Path) -> None:
    found = codedfl.run("paper-quick", tmp_path / "run", {**CHANGES, "privacy.epsilon": 2.0, "privacy.seed": 7})
    assert found.summary["privacy"]["statement"].startswith(KNOWN_SEED)
    assert found.load_model().privacy["statement"].startswith(KNOWN_SEED)  # type: ignore[index]


def test_without_noise_nothing_is_promised(tmp_path: Path) -> None:
    found = codedfl.run("paper-quick", tmp_path / "run", CHANGES)
    assert [found.summary[key] for key in ("epsilon", "delta", "privacy")] == [None] * 3
    assert found.load_model().privacy is None


def test_losses_of_a_simulation_are_not_covered_and_say_so(noisy: Run) -> None:
    """The loss of the last model on clean rows, by hand: who has the file can tell single rows."""
    given, theta = Problem.build(noisy.scenario), noisy.model
    rows = sum(np.sum((shard.x @ theta - shard.y) ** 2) for shard in given.shards) / (2 * given.samples)
    assert noisy.epochs["loss"][-1] == pytest.approx(rows + given.ridge / 2 * np.sum(theta**2), rel=1e-6)
    assert noisy.summary["without_noise"].startswith("losses, gradient norms and scores")


def test_epsilon_is_never_shown_smaller_than_it_is() -> None:
    assert epsilon_text({"epsilon": 2.3401, "known_seed": False}) == "2.35"
