"""Bytes that a run needs and that are free, by hand, and what is said at their limits."""

from collections.abc import Callable
from pathlib import Path

import pytest

from codedfl.errors import ScenarioError
from codedfl.runs import room
from codedfl.runs.room import LIMIT, Memory, free_memory, make_room
from codedfl.scenario import Scenario
from codedfl.storage import overflow_scope
from codedfl.task import Problem
from tiny import is_one_sentence, problem, scenario


def wanted(devices: int) -> Scenario:
    fleet = [{"count": devices, "mac_rate": 1e6}]
    return scenario({"scheme": "conventional", "fleet.devices": fleet, "task.precision": "float64"})


def test_a_bound_by_hand() -> None:
    """Devices of five rows and more keep 10 x 10 numbers, 2 of 3; the rows are copied once, in float64.

    Beside that a quarter of a GiB, six squares of 10 x 10, and 10 x 3 numbers of each device, twice.
    """
    need = Memory.needed(wanted(3), problem([4, 5, 6], features=10, outputs=3))
    assert (need.features, need.devices) == (0, 2 * 800)
    assert need.rest == 2**28 + 15 * 10 * 8 + 6 * 800 + 2 * 3 * 240
    assert need.total == need.devices + need.rest


def test_of_many_rows_so_many_are_copied_at_a_time() -> None:
    need = Memory.needed(wanted(1), problem([40_000], features=1, outputs=2))
    assert need.rest == 2**28 + 32_768 * 8 + 6 * 8 + 2 * 2 * 8


def told(texts: dict[str, str]) -> Callable[[Path], str]:
    def read(path: Path) -> str:
        if path.name not in texts:
            raise FileNotFoundError(path)
        return texts[path.name]

    return read


SYSTEM = "MemTotal:       9000 kB\nMemAvailable:   1000 kB\nHugepagesize:      2048 kB\n"


@pytest.mark.parametrize(
    ("texts", "limit", "free"),
    [
        ({"meminfo": SYSTEM}, None, 1_024_000),
        ({"meminfo": SYSTEM, "memory.max": "max\n", "memory.current": "700000\n"}, None, 1_024_000),
        ({"meminfo": SYSTEM, "memory.max": "1500000\n", "memory.current": "1000000\n"}, None, 500_000),
        ({"meminfo": SYSTEM, "memory.max": "9500000\n", "memory.current": "1000000\n"}, None, 1_024_000),
        ({"meminfo": SYSTEM}, "1/2000", 500_000),
        ({"meminfo": SYSTEM}, "2", 1_024_000),
        ({"meminfo": "MemTotal: 9000 kB\n"}, "0.25", 250_000_000),
        ({"meminfo": "MemTotal: 9000 kB\n"}, None, None),
    ],
)
def test_free_memory_is_the_least_that_is_told(
    texts: dict[str, str], limit: str | None, free: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LIMIT, raising=False)
    if limit is not None:
        monkeypatch.setenv(LIMIT, limit)
    monkeypatch.setattr(room.Path, "read_text", told(texts))
    assert free_memory() == free


@pytest.fixture
def need() -> Memory:
    return Memory.needed(wanted(3), given())


def given() -> Problem:
    return problem([4, 5, 6], features=10)


def made(
    monkeypatch: pytest.MonkeyPatch, memory: int | None, disk: int, folder: Path | None
) -> list[tuple[str, int, int]]:
    """What is said where so much memory and disk is free."""
    said: list[tuple[str, int, int]] = []
    monkeypatch.setattr(room, "free_memory", lambda: memory)
    monkeypatch.setattr(room.shutil, "disk_usage", lambda place: type("Usage", (), {"free": disk})())
    with overflow_scope():
        make_room(wanted(3), given(), folder, lambda *report: said.append(report))
    return said


def test_what_fits_or_may_fit_is_not_spoken_of(need: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    for memory in (None, need.total, need.total + 1):
        assert made(monkeypatch, memory, 0, None) == []


@pytest.mark.parametrize("memory", ["nearly all", "the least"])
def test_what_fits_with_a_disk_is_said_once(
    memory: str, need: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is that of the nearest folder there is."""
    free = need.total - 1 if memory == "nearly all" else need.rest
    ((sentence, done, total),) = made(monkeypatch, free, need.devices, tmp_path / "a" / "b")
    assert (done, total) == (0, 0)
    assert sentence == (
        "this run needs about 0.3 GB of memory (features 0.0, what devices hold 0.0, all else 0.3), and 0.3 GB are "
        f"free: features and matrices of devices lie on disk, at '{tmp_path}'"
    )


@pytest.mark.parametrize("lacking", ["memory", "disk", "folder"])
def test_what_does_not_fit_is_refused_for_what_is_lacking(
    lacking: str, need: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = need.rest - (lacking == "memory")
    disk, folder = need.devices - (lacking == "disk"), None if lacking == "folder" else tmp_path / "run"
    with pytest.raises(ScenarioError, match=r"lower features\.dimension") as found:
        made(monkeypatch, memory, disk, folder)
    assert is_one_sentence(str(found.value))
    assert (f", with 0.0 GB of disk at '{tmp_path / 'run'}';" in str(found.value)) == (lacking == "disk")
