"""Ranges on threads: every number once, whoever works on it."""

import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.codes.threads import cores, on_all_cores


@given(st.integers(0, 50), st.one_of(st.none(), st.integers(1, 8)))
def test_every_number_is_in_one_range(count: int, workers: int | None) -> None:
    seen, ranges = np.zeros(count, int), []

    def work(first: int, end: int) -> None:
        ranges.append((first, end))
        seen[first:end] += 1

    on_all_cores(work, count, workers=workers)
    assert (seen == 1).all()
    assert len(ranges) <= (workers or cores())


def test_ranges_are_worked_on_at_the_same_time() -> None:
    met = threading.Barrier(2, timeout=60)
    on_all_cores(lambda first, end: met.wait(), 2, workers=2)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failure_is_raised(failing: int) -> None:
    def work(first: int, end: int) -> None:
        if first == failing:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        on_all_cores(work, 2, workers=2)


def test_cores_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = {0: {2, 3, 7}}  # 0 is this process
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: allowed.get(process, {0}), raising=False)
    assert cores() == 3


@pytest.mark.parametrize(("known", "expected"), [(3, 3), (1, 1), (None, 1)])
def test_cores_where_the_system_does_not_say_which_may_be_used(
    monkeypatch: pytest.MonkeyPatch, known: int | None, expected: int
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: known)
    assert cores() == expected


@pytest.mark.parametrize(
    ("count", "workers", "expected"),
    [
        (0, 2, [(0, 0)]),
        (1, 2, [(0, 1)]),
        (2, 2, [(0, 1), (1, 2)]),
        (5, 2, [(0, 3), (3, 5)]),
        (6, 3, [(0, 2), (2, 4), (4, 6)]),
        (4, 1, [(0, 4)]),
    ],
)
def test_ranges_are_equal_up_to_the_last(count: int, workers: int, expected: list[tuple[int, int]]) -> None:
    ranges, places = [], {}

    def work(first: int, end: int) -> None:
        ranges.append((first, end))
        places[first] = threading.current_thread()

    on_all_cores(work, count, workers=workers)
    assert sorted(ranges) == expected
    assert places[0] is threading.current_thread()
