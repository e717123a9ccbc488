"""A run that was stopped, by whatever, goes on and ends with the same bits as one that was not."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codedfl.errors import RunDirectoryError
from codedfl.runs import directory as runs
from codedfl.training import State
from rundirs import (
    FINISHED,
    SCHEMES,
    SMALL,
    Processes,
    Stopped,
    await_new,
    environment,
    files,
    results,
    small,
    small_run,
    stop_at,
)
from tiny import is_one_sentence

# one hundred devices make an epoch slow enough to be interrupted again and again
LONG = SMALL.replace("count = 3", "count = 98").replace("wait_for = 4", "wait_for = 80")
CONVENTIONAL = LONG.replace('"minibatch"', '"conventional"').replace("epochs = 24", "epochs = 700")
DROPPING = LONG.replace('"minibatch"', '"drop-slowest"').replace("epochs = 24", "epochs = 250")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    found = {}
    for scheme in SCHEMES:
        path = small_run(tmp_path_factory.mktemp("whole") / scheme, {"scheme": scheme, "timing.repeats": 2}).path
        found[scheme] = results(path)
    return found


@pytest.mark.parametrize("scheme", SCHEMES)
@given(stops=st.lists(st.integers(1, 24), min_size=1, max_size=3))
@example(stops=[8, 1])
@example(stops=[24])
@settings(max_examples=4)
def test_stopped_anywhere_it_ends_with_the_same_bits(scheme, stops, uninterrupted, tmp_path_factory) -> None:
    path = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)  # a checkpoint after every epoch
        for report in stops:
            try:
                small_run(path, {"scheme": scheme, "timing.repeats": 2}, progress=stop_at(report))
            except Stopped:
                assert not (path / "summary.json").exists()
        small_run(path, {"scheme": scheme, "timing.repeats": 2})
    assert results(path) == uninterrupted[scheme]
    kept = {Path(name).name for name in FINISHED}
    assert not [name for name in files(path) if Path(name).name not in kept]


@pytest.mark.parametrize("name", ["nesterov", "conjugate-gradients"])
@given(stops=st.lists(st.integers(1, 12), min_size=1, max_size=3))
@example(stops=[1, 1])
@settings(max_examples=4)
def test_stopped_anywhere_every_solver_ends_with_the_same_bits(name, stops, tmp_path_factory) -> None:
    changes = {"scheme": "conventional", "training.solver": name, "training.epochs": 12}
    folder = tmp_path_factory.mktemp("solvers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
        for report in stops:
            with suppress(Stopped):
                small_run(folder / "run", changes, progress=stop_at(report))
        small_run(folder / "run", changes)
    assert results(folder / "run") == results(small_run(folder / "whole", changes).path)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_goes_on_from_the_last_epoch(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
    with pytest.raises(Stopped):
        small_run(tmp_path / "run", {"scheme": scheme, "timing.repeats": 1}, progress=stop_at(13))
    seen = []
    progress = lambda stage, done, total: seen.append(done) if stage.startswith("training") else None  # noqa: E731
    small_run(tmp_path / "run", {"scheme": scheme, "timing.repeats": 1}, progress=progress)
    # epoch 13 was being reported when it stopped, so its state may or may not have been saved
    assert seen in (list(range(13, 25)), list(range(14, 25)))


def test_repetitions_that_are_finished_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
    with pytest.raises(Stopped):
        small_run(tmp_path / "run", {"scheme": "drop-slowest"}, progress=stop_at(24 + 24 + 10))
    kept = (tmp_path / "run/repeats/1/summary.json").read_bytes()
    seen = []
    progress = lambda stage, done, total: seen.append(done)  # noqa: E731
    small_run(tmp_path / "run", {"scheme": "drop-slowest"}, progress=progress)
    assert (tmp_path / "run/repeats/1/summary.json").read_bytes() == kept
    assert seen in (list(range(10, 25)), list(range(11, 25)))


def test_a_run_is_finished_once_it_has_a_summary(stopped: Path, tmp_path: Path) -> None:
    assert not runs.finished(small(), tmp_path / "none")
    assert not runs.finished(small(), stopped)
    small_run(stopped)
    assert runs.finished(small(), stopped)
    for other, on_sites in ((small({"links.loss": 0.3}), False), (small(), True)):
        with pytest.raises(RunDirectoryError, match="choose another --out"):
            runs.finished(other, stopped, on_sites=on_sites)


def test_a_checkpoint_is_written_once_a_second_has_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With epochs of 0.4 s each third one is saved, as the epochs after it find."""
    now, found = [500.0], []
    monkeypatch.setattr(runs, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def progress(stage: str, done: int, total: int) -> None:
        if stage.startswith("training"):
            now[0] += 0.4
            found.append(saved_epoch(tmp_path / "run"))

    small_run(tmp_path / "run", {"training.epochs": 8, "timing.draws": 3}, progress=progress)
    assert found == [0, 0, 0, 3, 3, 3, 6, 6]


def saved_epoch(path: Path) -> int:
    """The epoch of a checkpoint; 0 if there is none."""
    if not (path / "checkpoint.npz").exists():
        return 0
    with np.load(path / "checkpoint.npz") as arrays:
        return State.from_arrays(arrays).epoch


def test_wall_seconds_add_up_over_interruptions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
    with pytest.raises(Stopped):
        small_run(tmp_path / "run", progress=stop_at(20))
    with np.load(tmp_path / "run/checkpoint.npz") as arrays:
        spent = float(arrays["wall_seconds"])
    assert 0 < spent < small_run(tmp_path / "run").summary["wall_seconds"]


MOMENTS = (
    *("scenario.toml", "checkpoint.npz", "timings.npy", "epochs.parquet", "model.npz", "model.json"),
    *("summary.json", "after"),
)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """Runs that were killed at each of their writes and then resumed, and the exit code of each resumption."""
    folder = tmp_path_factory.mktemp("killed")
    script = Path(__file__).parents[1] / "killed_while_writing.py"
    command = [sys.executable, script, folder, *MOMENTS]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True, timeout=300)
    return folder, json.loads(done.stdout)


@pytest.mark.real
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("scheme", ["conventional", "drop-slowest"])
def test_killed_at_each_write(killed: tuple[Path, dict[str, int]], scheme: str, moment: str) -> None:
    folder, codes = killed
    assert codes[f"{scheme} {moment}"] == 0, "the run could not be resumed"
    assert results(folder / scheme / moment) == results(folder / scheme / "whole")


@pytest.mark.real
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("scheme", ["conventional", "drop-slowest"])
def test_killed_at_each_write_nothing_half_written_stays(
    killed: tuple[Path, dict[str, int]], scheme: str, moment: str
) -> None:
    folder, codes = killed
    assert codes[f"{scheme} {moment}"] == 0, "the run could not be resumed"
    assert files(folder / scheme / moment) == files(folder / scheme / "whole")


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path) as started:
        yield started


def interrupt(process: "subprocess.Popen[str]", signal_number: int) -> tuple[int, str, str]:
    assert process.poll() is None
    os.kill(process.pid, signal_number)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def finish(process: "subprocess.Popen[str]") -> None:
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err


@pytest.mark.real
def test_a_killed_process_and_control_c(
    processes: Processes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from codedfl.cli import main

    (tmp_path / "long.toml").write_text(CONVENTIONAL)
    whole = processes.start("run", "long.toml", "--out", "whole")
    path = tmp_path / "parts"
    for _ in range(2):
        process = processes.start("run", "long.toml", "--out", "parts")
        await_new(path / "checkpoint.npz", process)
        assert interrupt(process, signal.SIGKILL)[0] == -signal.SIGKILL
        assert not (path / "summary.json").exists()
    process = processes.start("run", "long.toml", "--out", "parts")
    await_new(path / "checkpoint.npz", process)
    with pytest.raises(SystemExit) as refused:  # while that process runs
        main(["run", str(tmp_path / "long.toml"), "--out", str(path)])
    assert refused.value.code == 1
    assert "another process runs" in capsys.readouterr().err
    kept = {name for name in files(path) if name.startswith(".")}  # what SIGKILL may have left
    code, out, err = interrupt(process, signal.SIGINT)
    assert code == 130
    assert out == ""
    assert "Traceback" not in err
    assert [line for line in err.splitlines() if line.startswith("codedfl:")] == [err.splitlines()[-1]]
    assert is_one_sentence(err.splitlines()[-1])
    assert files(path) - kept == {"scenario.toml", "checkpoint.npz"}, "nothing half-written"
    finish(processes.start("run", "long.toml", "--out", "parts"))
    finish(whole)
    assert results(path) == results(tmp_path / "whole")


@pytest.mark.real
def test_a_killed_process_of_repeated_trainings(processes: Processes, tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(DROPPING)
    whole = processes.start("run", "long.toml", "--out", "whole")
    path = tmp_path / "parts"
    for place, number in ((path / "repeats/1", signal.SIGKILL), (path / "repeats/2", signal.SIGINT)):
        process = processes.start("run", "long.toml", "--out", "parts")
        await_new(place / "checkpoint.npz", process)
        code, _, err = interrupt(process, number)
        assert code == (130 if number == signal.SIGINT else -number), err
        assert not (path / "summary.json").exists()
        assert not (place / "summary.json").exists()
    finish(processes.start("run", "long.toml", "--out", "parts"))
    finish(whole)
    assert results(path) == results(tmp_path / "whole")
