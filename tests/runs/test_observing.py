"""Observers of runs: what they are shown, and that nothing depends on them."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np

from codedfl.engines import Engine
from codedfl.network import TransferCosts
from codedfl.runs import Course, Observer
from codedfl.runs.backend import RunBackend
from codedfl.training import StageRecord, State
from codedfl.training.records import Lie
from rundirs import Stopped, epochs, results, small_run, stop_at


class Noting(Observer):
    """Notes what it is shown."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.epochs: list[int] = []
        self.course = Course()

    def begin(self, backend: RunBackend, engine: Engine, state: State) -> Engine:
        self.began.append(state.epoch)
        return engine

    def after_epoch(self, state: State) -> None:
        self.epochs.append(state.epoch)
        self.course.note(state)


def test_every_epoch_is_seen_and_nothing_changes(tmp_path: Path) -> None:
    observer = Noting()
    small_run(tmp_path / "seen", observer=observer)
    small_run(tmp_path / "alone")
    assert (observer.began, observer.epochs) == ([0], list(range(1, 25)))
    assert results(tmp_path / "seen") == results(tmp_path / "alone")


def test_the_course_is_that_of_the_stored_epochs(tmp_path: Path) -> None:
    observer = Noting()
    run = small_run(tmp_path / "run", observer=observer)
    found, stored = observer.course.to_table(), epochs(run.path)
    columns = [stored[name].tolist() for name in ("epoch", "time", "accuracy")]
    assert found["epochs"] == [list(row) for row in zip(*columns, strict=True)]
    assert (found["epoch"], found["score"], found["newest"]) == (24, columns[2][-1], found["epochs"][-1])
    assert found["bits_sent"] == run.summary["bits_sent"]


def test_a_resumed_run_begins_with_the_epochs_before(tmp_path: Path) -> None:
    first, second = Noting(), Noting()
    with contextlib.suppress(Stopped):
        small_run(tmp_path / "run", observer=first, progress=stop_at(20))
    small_run(tmp_path / "run", observer=second)
    assert second.epochs[-1] == 24
    assert second.epochs[0] == second.began[0] + 1
    assert [row[0] for row in second.course.to_table()["epochs"]] == list(range(1, 25))


def state(scores: list[float], spoilt: int = 0) -> State:
    """A state with these scores, one second an epoch."""
    made = State(np.zeros((1, 1)), np.zeros((1, 1)), spoilt=spoilt)
    made.history.columns |= {"accuracy": scores, "time": [float(1 + i) for i in range(len(scores))]}
    return made


def noted(course: Course, *states: State) -> dict[str, Any]:
    for each in states:
        course.note(each)
    return course.to_table()


def test_a_long_course_keeps_few_rows_and_the_newest() -> None:
    course = Course(most=10)
    versions = set()
    for count in range(1, 200):
        found = noted(course, state([i / 1000 for i in range(count)]))
        versions.add(found["epochs_version"])
        assert len(found["epochs"]) <= 10
        assert found["epochs"][0] == [1, 1.0, 0.0]
        assert found["newest"] == [count, float(count), (count - 1) / 1000]
    steps = {after[0] - before[0] for before, after in zip(found["epochs"], found["epochs"][1:], strict=False)}
    assert steps == {32}
    assert len(versions) == 6, "one for each time that rows were dropped, and the first"


def test_spoilt_epochs_are_taken_back() -> None:
    course = Course()
    before = noted(course, state([0.1, 0.2, 0.3]))
    after = noted(course, state([0.1, 0.5, 0.6], spoilt=2))
    assert before["epochs_version"] != after["epochs_version"]
    assert [row[2] for row in after["epochs"]] == [0.1, 0.5, 0.6]
    assert after["spoilt_epochs"] == 2


def test_lies_hand_overs_and_replacements_are_listed() -> None:
    told = state([0.1, 0.2])
    told.lies.append(Lie(3, 2, contradicts_itself=True))
    parcel = TransferCosts(0, 1, grant_bits=8, export_macs=1, parcel_bits=800, absorb_macs=1)
    for epoch, retires in ((0, False), (1, True), (2, False)):
        told.history.stages.append(StageRecord(epoch, [parcel], retires))
    found = noted(Course(), told)
    assert found["lies"] == [[2, 3, "it replied two different numbers to the same question of epoch 2"]]
    assert (found["parcels"], found["parcel_bytes"]) == (3, 300)
    assert (found["handovers"], found["replacements"]) == ([[1, 0, 1]], [[2, 1]])


def test_what_is_not_known_is_none() -> None:
    found = noted(Course("r2"), state([float("nan"), float("nan")]))
    assert [row[2] for row in found["epochs"]] == [None, None]
    assert (found["score"], found["metric"]) == (None, "r2")
    assert Course().to_table()["epoch"] == 0
