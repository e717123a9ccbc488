"""Simulated runs of prepared columns: when they begin, in every draw, and what is refused of shards."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

import codedfl
from codedfl.errors import ScenarioError
from codedfl.runs.backend import SimulationBackend
from codedfl.runs.directory import Run
from codedfl.scenario import Scenario
from runs.test_selection import DEVICES, scenario, table
from tiny import is_one_sentence, problem

LINKS = ("down", "up", "d2d")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("table")
    table(made / "t.npz")
    return made


def wanted(folder: Path, **changes: Any) -> Scenario:
    """Five epochs on columns that are prepared, in the second of four draws."""
    base = {"scheme": "sealed-coded", "task.ridge": 0.1, "training.epochs": 5, "training.tolerance": 0.0}
    return scenario(folder / "t.npz", **{**base, "timing.draws": 4, "timing.draw": 1, **changes})


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return codedfl.run(wanted(folder), folder / "run")


def test_the_training_begins_after_the_sums_in_every_draw(run: Run, folder: Path) -> None:
    """The own draw among all has the times of the epochs, each of which is that of the bare training and the sums."""
    before = run.summary["preparation"]["seconds"]
    assert before > 0
    assert run.timings.shape == (4, 5)
    np.testing.assert_allclose(run.timings[1], run.epochs["time"], rtol=2e-7)
    assert (np.diff(run.timings, axis=1) > 0).all()
    assert (run.timings[:, 0] > 0.5 * before).all()
    assert run.summary["virtual_seconds"] == run.epochs["time"][-1] > before
    bare = codedfl.run(wanted(folder, **{"features.scale": "none", "features.intercept": False}), folder / "bare")
    assert "preparation" not in bare.summary
    np.testing.assert_allclose(bare.timings[1], bare.epochs["time"], rtol=2e-7)


def test_the_timeline_lasts_from_the_sums_to_the_end_of_the_run(run: Run) -> None:
    steps = pyarrow.parquet.read_table(run.path / "timeline.parquet").to_pydict()
    assert min(steps["begin"]) >= run.summary["preparation"]["seconds"]
    assert max(steps["end"]) == pytest.approx(run.summary["virtual_seconds"], rel=1e-9)


def test_sums_are_of_one_epoch_each_and_no_part_of_the_training(run: Run) -> None:
    before = run.summary["preparation"]
    assert before["epochs"] >= 1
    assert set(before["bits_sent"]) == set(LINKS)
    assert run.summary["epochs"] == 5
    assert run.summary["bits_sent"] == {link: int(run.epochs[f"{link}_bits"].sum()) for link in LINKS}


def test_a_choice_of_weights_takes_a_training_for_each_fold(folder: Path) -> None:
    """For each of two folds: sums of its columns, five epochs on its rows, and a sum and a download of its errors."""
    one = codedfl.run(wanted(folder, scheme="conventional"), folder / "one").summary["preparation"]["epochs"]
    both = wanted(folder, scheme="conventional", **{"task.ridge": [0.1, 1.0], "task.folds": 2})
    found = codedfl.run(both, folder / "both")
    before = found.summary["preparation"]
    assert before["epochs"] > one + 2 * 5
    assert before["seconds"] < found.epochs["time"][0]
    np.testing.assert_allclose(found.timings[1], found.epochs["time"], rtol=2e-7)
    assert before["bits_sent"]["down"] >= 2 * (5 - 1) * DEVICES * 25 * 64


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task.ridge": [0.1, 1.0]}, r"task\.ridge must be a number"),
        ({"data.held_out": 0.25}, r"data\.held_out must be 0"),
    ],
)
def test_what_needs_rows_is_refused_of_shards(changes: dict[str, Any], words: str, folder: Path) -> None:
    given = problem([5] * DEVICES, features=4, outputs=1, kind="regression")
    raw = {"scheme": "conventional", "features.scale": "none", "features.intercept": False}
    made = SimulationBackend(wanted(folder, **raw), given)
    assert made.problem is made.objective is given
    with pytest.raises(ScenarioError, match=words) as error:
        SimulationBackend(wanted(folder, **raw, **changes), given)
    assert is_one_sentence(str(error.value))
    assert "given as shards" in str(error.value)
