"""Observers of runs: what they are shown, and that nothing depends on them."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from codedfl.engines import Engine
from codedfl.network import RoundCosts, TransferCosts
from codedfl.runs import Course, Observer
from codedfl.runs.backend import RunBackend
from codedfl.schemes.contract import SERVER
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


def test_before_the_first_epoch_no_time_has_passed() -> None:
    found = noted(Course(), State(np.zeros((1, 1)), np.zeros((1, 1))))
    assert (found["epoch"], found["seconds"], found["score"], found["newest"]) == (0, 0.0, None, None)
    assert (found["survives_losses_left"], found["epochs"], found["parcels"]) == (None, [], 0)


def test_a_state_without_news_changes_nothing() -> None:
    course, same = Course(), state([0.1, 0.2])
    assert noted(course, same) == noted(course, same)


def with_bits(count: int, scores: Sequence[float] = ()) -> State:
    """Epochs of 5 bits down and 7 up, after which one, then two losses fewer are survived."""
    made = State(np.zeros((1, 1)), np.zeros((1, 1)))
    costs = RoundCosts(np.array([0]), np.array([5]), np.array([0]), np.array([7]), quorum=1, server_macs=0)
    for epoch in range(1, count + 1):
        made.history.add_epoch([costs], epoch=epoch, time=float(epoch))
    made.history.columns |= {"accuracy": list(scores), "losses_left": [3 - epoch for epoch in range(count)]}
    return made


def test_bits_are_those_of_all_epochs_whenever_they_are_noted() -> None:
    course = Course()
    for count in (1, 3, 3, 4):
        found = noted(course, with_bits(count))
        assert found["bits_sent"] == {"down": 5 * count, "up": 7 * count, "d2d": 0}
        assert found["survives_losses_left"] == 4 - count
        assert (found["epoch"], found["seconds"]) == (count, float(count))
        assert course.epoch == count


def test_a_course_with_fewer_epochs_than_before_begins_again() -> None:
    """Whether epochs without scores are fewer, or scores of the same number of epochs."""
    for before, after in ((with_bits(3), with_bits(2)), (with_bits(2, [0.1, 0.2]), with_bits(2, [0.3]))):
        course = Course()
        versions = {noted(course, each)["epochs_version"] for each in (before, after)}
        found = course.to_table()
        assert len(versions) == 2
        assert found["bits_sent"] == {"down": 10, "up": 14, "d2d": 0}
        assert [row[2] for row in found["epochs"]] == after.history.columns["accuracy"]


def test_a_course_of_as_many_rows_as_it_keeps_drops_none() -> None:
    course = Course(most=4)
    rows = [[row[0] for row in noted(course, state([0.5] * count))["epochs"]] for count in (4, 5, 6, 7)]
    assert rows == [[1, 2, 3, 4], [1, 3, 5], [1, 3, 5], [1, 3, 5, 7]]


def test_who_takes_parcels_in_a_training_stands_in_and_the_server_does_not() -> None:
    """Each is named once in a repair. Bytes are whole: 3 x 3 parcels of 4 bits are 4.5."""
    told = state([0.1])
    assert noted(Course(), told)["parcels"] == 0
    parcels = [
        TransferCosts(0, to, grant_bits=8, export_macs=1, parcel_bits=4, absorb_macs=1) for to in (2, SERVER, 1, 2)
    ]
    alone = state([0.1])
    alone.history.stages.append(StageRecord(0, parcels[:3], False))
    assert noted(Course(), alone)["parcels"] == 3
    for epoch, retires, count in ((0, False, 3), (1, True, 2), (1, False, 4)):
        told.history.stages.append(StageRecord(epoch, parcels[:count], retires))
    found = noted(Course(), told)
    assert found["replacements"] == [[1, 1], [1, 2]]
    assert found["handovers"] == [[1, 0, 2], [1, 0, SERVER]]
    assert (found["parcels"], found["parcel_bytes"]) == (9, 4)
    told.history.stages.append(StageRecord(2, parcels[:1], False))
    course = Course()
    assert noted(course, told)["parcels"] == 10
    assert course.to_table()["replacements"] == [[1, 1], [1, 2], [2, 2]]
