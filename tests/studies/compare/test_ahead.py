"""Parts of a comparison that are computed side by side: their order."""

from itertools import groupby
from pathlib import Path
from typing import Any

from codedfl.studies.compare.ahead import compute_ahead
from codedfl.studies.compare.measuring import GIVEN, SORTED
from rundirs import small

NAMES = ["minibatch", "conventional", "drop-slowest", "deadline", "sealed"]


def test_parts_with_many_trainings_come_first_among_those_of_one_data_set(tmp_path: Path) -> None:
    """Two fleets of five devices share their data, and one of six does not; sorted by label are others again."""
    six = [{"count": 6, "mac_rate": 25e6}]
    fleets = {
        "one": small(),
        "two": small({"timing.repeats": 2}),
        "six": small({"fleet.devices": six, "timing.repeats": 2}),
    }
    asked: list[list[Any]] = []

    def run(tasks: Any) -> list[None]:
        asked.append([tuple(task.arguments[1]) for task in tasks])
        return [None] * len(tasks)

    assert compute_ahead(fleets, NAMES, tmp_path, run, sort=True) == {}
    first, later = asked
    sizes = {"one": 5, "two": 5, "six": 6}
    data = [key for key, _ in groupby(first, lambda part: (part[0], sizes[part[1]]))]
    assert data == [(GIVEN, 5), (GIVEN, 6), (SORTED, 5), (SORTED, 6)]
    repeats = {"one": 3, "two": 2, "six": 2}
    for (partition, _), parts in groupby(first, lambda part: (part[0], sizes[part[1]])):
        counts = [
            (repeats[fleet] if partition == GIVEN else 1, True) if name in ("drop-slowest", "deadline") else (1, False)
            for _, fleet, name in parts
        ]
        assert counts == sorted(counts, reverse=True)
    assert len(set(first)) == len(first) == 5 + 2 * 3 + 3 * 3
    assert {part[2] for part in later} == {"conventional", "sealed"}
