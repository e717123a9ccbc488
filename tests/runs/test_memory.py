"""Runs in memory: what a run in a directory finds, the same reports, and the same refusals."""

import time
from pathlib import Path

import numpy as np
import pytest

from codedfl.errors import CodedflError
from codedfl.runs.memory import run_in_memory
from codedfl.task import RawData
from rundirs import small, small_run

EPOCHS = 24


def test_a_run_in_memory_is_that_in_a_directory(tmp_path: Path) -> None:
    """Models and times to the last bit that a directory keeps; the model knows no scenario that could be loaded."""
    chosen, reports = small(), list[tuple[str, int, int]]()
    run = small_run(tmp_path / "run")
    began = time.perf_counter()
    found = run_in_memory(chosen, RawData.load(chosen), lambda *report: reports.append(report))
    assert np.array_equal(found.model.theta, run.model)
    assert np.array_equal(found.timings.astype(np.float32), run.timings)
    apart = {"wall_seconds", "scenario_id"}
    assert {name: each for name, each in found.summary.items() if name not in apart} == {
        name: each for name, each in run.summary.items() if name not in apart
    }
    assert 0 < found.summary["wall_seconds"] <= time.perf_counter() - began
    stored = run.load_model()
    for name in ("kind", "samples", "scheme", "ridge", "classes"):
        assert getattr(found.model, name) == getattr(stored, name), name
    assert found.model.scenario_id == ""
    trained = [(done, total) for stage, done, total in reports if stage == "training minibatch"]
    assert trained == [(epoch, EPOCHS) for epoch in range(1, EPOCHS + 1)]


def test_what_a_run_refuses_is_refused_before_work_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = small({"training.solver": "conjugate-gradients"})  # needs exact gradients, and minibatches are not
    monkeypatch.setattr("codedfl.task.problem.make_shard", lambda *_: pytest.fail("features were computed"))
    with pytest.raises(CodedflError, match="conjugate-gradients"):
        run_in_memory(chosen, RawData.load(small()))
