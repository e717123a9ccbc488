"""The run directory where things go wrong or nearly so: marks, leftovers, errors of engines, and what was there."""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.engines import VirtualEngine
from codedfl.errors import EngineError, LostDevicesError, MissingExtraError, RunDirectoryError
from codedfl.runs import directory as runs
from rundirs import results, small, small_problem, small_run, tree
from tiny import is_one_sentence

FEW = {"training.epochs": 5, "timing.draws": 3}


def test_hidden_files_beside_others_make_no_run_directory(tmp_path: Path) -> None:
    (tmp_path / ".hidden").write_text("kept")
    (tmp_path / "notes.txt").write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        small_run(tmp_path)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("marks", "on_sites"),
    [
        ("# scenario id {}\n", False),
        ("# scenario id {}\n# on sites\n", True),
        ("#  a word of its owner\n", False),
        ("# on sites\n", False),
        ("", False),
    ],
)
def test_the_first_lines_tell_the_scenario_and_whether_it_ran_on_sites(
    marks: str, on_sites: bool, tmp_path: Path
) -> None:
    """Without an id in the first line, it is that of the scenario that is stored."""
    (tmp_path / "scenario.toml").write_text(marks.format(small().id()) + small().to_toml())
    assert not runs.finished(small(), tmp_path, on_sites=on_sites)
    with pytest.raises(RunDirectoryError, match="virtual time" if not on_sites else "a deployment on sites") as found:
        runs.finished(small(), tmp_path, on_sites=not on_sites)
    assert is_one_sentence(str(found.value))
    with pytest.raises(RunDirectoryError, match="another scenario"):
        runs.finished(small({"links.loss": 0.3}), tmp_path, on_sites=on_sites)


def test_the_id_at_the_creation_counts_and_not_that_of_the_stored_words(tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text("# scenario id 0123abcd\n" + small().to_toml())
    with pytest.raises(RunDirectoryError, match=rf"\(id 0123abcd, not {small().id()}\)"):
        runs.finished(small(), tmp_path)


@pytest.mark.parametrize("when", ["finished", "stopped"])
def test_what_a_killed_process_left_goes(when: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue("copy" if when == "finished" else "stopped")
    (path / ".summary.json.x1y2").write_text("half of it")
    run = small_run(path)
    assert not (path / ".summary.json.x1y2").exists()
    assert run.summary["epochs"] == 24


def stopping(monkeypatch: pytest.MonkeyPatch, error: Exception, epoch: int) -> None:
    """Let the engine fail when it is asked in an epoch."""
    ask = VirtualEngine.ask

    def failing(self: VirtualEngine, question: Any, *, offline: bool) -> Any:
        if question.epoch == epoch:
            raise error
        return ask(self, question, offline=offline)

    monkeypatch.setattr(VirtualEngine, "ask", failing)


@pytest.mark.parametrize("error", [EngineError("it is off"), LostDevicesError("they are off")], ids=["engine", "lost"])
@pytest.mark.parametrize("epoch", [1, 2, 4])
def test_a_run_that_an_engine_ends_goes_on_where_it_was(
    epoch: int, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the second epoch on there is something to save; the directory stays whatever the epoch."""
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", 1e9)
    whole = results(small_run(tmp_path / "whole", FEW).path)
    with monkeypatch.context() as patch:
        stopping(patch, error, epoch)
        with pytest.raises(type(error), match="off"):
            small_run(tmp_path / "run", FEW)
    left = {path.name for path in (tmp_path / "run").iterdir()} - {".lock"}
    assert left == {"scenario.toml"} | ({"checkpoint.npz"} if epoch > 1 else set())
    reports: list[tuple[str, int, int]] = []
    small_run(tmp_path / "run", FEW, progress=lambda *report: reports.append(report))
    assert [done for stage, done, _ in reports if stage.startswith("training")] == list(range(epoch, 6))
    assert {total for stage, _, total in reports if stage.startswith("training")} == {5}
    assert results(tmp_path / "run") == whole


def test_wall_seconds_are_those_of_the_training(tmp_path: Path) -> None:
    small_problem()
    began = time.perf_counter()
    run = small_run(tmp_path / "run", FEW)
    assert 0 < run.summary["wall_seconds"] <= time.perf_counter() - began


def test_wall_seconds_of_a_resumed_run_hold_those_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        stopping(patch, EngineError("it is off"), 3)
        with pytest.raises(EngineError):
            small_run(tmp_path / "run", FEW)
    with np.load(tmp_path / "run/checkpoint.npz") as arrays:
        kept = dict(arrays)
    kept["wall_seconds"] = np.array(1000.0)
    np.savez(tmp_path / "run/checkpoint.npz", allow_pickle=False, **kept)
    began = time.perf_counter()
    run = small_run(tmp_path / "run", FEW)
    assert 0 < run.summary["wall_seconds"] - 1000 <= time.perf_counter() - began


def test_results_that_could_not_be_written_are_not_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr(runs, "train", lambda *_: pytest.fail("it was trained"))
    with pytest.raises(MissingExtraError, match="pyarrow"):
        small_run(tmp_path / "run", FEW)
    assert tree(tmp_path) == {}


def test_a_place_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunDirectoryError, match=r"choose another --out|fix it and run again") as found:
        small_run(tmp_path / "file" / "run", FEW)
    assert is_one_sentence(str(found.value))
    assert tree(tmp_path) == {"file": b"mine"}
