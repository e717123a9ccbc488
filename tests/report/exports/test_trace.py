"""Traces, read as the Trace Event Format of Chromium demands."""

import gzip
import math
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from codedfl.errors import RunDirectoryError, UsageError
from codedfl.report.exports import write_trace
from codedfl.runs import Run, load
from report.exports.made import HOSTILE, copied, made, with_rows
from rundirs import strict_json

NEEDED = {
    "M": {"name", "pid", "tid", "args"},
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "i": {"name", "cat", "pid", "tid", "ts", "s"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
    "C": {"name", "pid", "ts", "args"},
}
Event = dict[str, Any]


def read(path: Path) -> list[Event]:
    """The events of a trace, each checked against the format."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    trace = strict_json(content.decode())
    events: list[Event] = trace["traceEvents"]
    for event in events:
        assert set(event) - {"ph"} == NEEDED[event["ph"]]
        assert all(
            isinstance(event[key], int) and event[key] >= 0 for key in ("ts", "dur", "pid", "tid") if key in event
        )
    check_threads(events)
    check_flows(events)
    return events


def check_threads(events: list[Event]) -> None:
    """Every thread has one name, and its complete events do not overlap."""
    names = [event["tid"] for event in events if event["name"] == "thread_name"]
    assert len(set(names)) == len(names)
    threads: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        assert event["ph"] in "MC" or event["tid"] in names
        if event["ph"] == "X":
            threads[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for slices in threads.values():
        slices.sort()
        assert all(end <= begin for (_, end), (begin, _) in pairwise(slices))


def check_flows(events: list[Event]) -> None:
    """Every flow begins and ends once, each within a complete event of its thread."""
    flows = {phase: {event["id"]: event for event in events if event["ph"] == phase} for phase in "sf"}
    assert flows["s"].keys() == flows["f"].keys()
    assert len(flows["s"]) == sum(event["ph"] == "s" for event in events)
    for event in (*flows["s"].values(), *flows["f"].values()):
        assert len(enclosing(events, event)) == 1
    assert all(flows["s"][number]["ts"] <= end["ts"] for number, end in flows["f"].items())


def enclosing(events: list[Event], point: Event) -> list[Event]:
    return [
        event
        for event in events
        if event["ph"] == "X"
        and event["tid"] == point["tid"]
        and event["ts"] <= point["ts"] < event["ts"] + event["dur"]
    ]


def thread_names(events: list[Event]) -> dict[int, str]:
    return {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return copied(tmp_path / "run")


def test_every_step_of_a_simulation_is_there(tmp_path: Path) -> None:
    import pyarrow.parquet

    count = write_trace(load(made()), tmp_path / "trace.json")
    events = read(tmp_path / "trace.json")
    assert len(events) == count
    steps = pyarrow.parquet.read_table(made() / "timeline.parquet").to_pylist()
    names = thread_names(events)
    assert list(names.values()) == ["server", *(f"device {device}" for device in range(5))]
    found = sorted(
        (names[event["tid"]], event["name"], event["ts"], event["dur"])
        for event in events
        if event["ph"] == "X" and event["cat"] != "epoch"
    )
    assert found == sorted(
        (
            f"device {row['device']}",
            row["activity"],
            begin := round(row["begin"] * 1e6),
            round(row["end"] * 1e6) - begin,
        )
        for row in steps
    )


def test_epochs_and_accuracy(tmp_path: Path) -> None:
    run = load(made())
    write_trace(run, tmp_path / "trace.json")
    events = read(tmp_path / "trace.json")
    epochs = [event for event in events if event.get("cat") == "epoch"]
    ends = [round(end * 1e6) for end in run.epochs["time"].tolist()]
    assert [event["ts"] + event["dur"] for event in epochs] == ends
    scores = [(event["ts"], event["args"]) for event in events if event["ph"] == "C"]
    expected = [{"accuracy": score} for score in run.epochs["accuracy"].tolist()]
    assert scores == list(zip(ends, expected, strict=True))


def test_transfers_are_arrows_and_hand_overs_have_marks(run: Run, tmp_path: Path) -> None:
    first, second = run.epochs["time"].tolist()[:2]
    rows = [
        (1, 0, "send", 1, 0.0, 0.5e-6, 8),  # before the epoch, and shorter than a microsecond
        (1, 1, "send", -1, 0.0, first / 2, 80),
        (1, 2, "send", -1, 0.0, first / 2, 80),  # the server receives two parcels at once
        (2, 0, "grant", -1, second, second + 0.1, 5),
        (2, 0, "send", 3, second + 0.1, second + 0.3, 800),
        (2, 3, "send", 0, second + 0.2, second + 0.4, 800),  # while it receives
        (2, 3, "absorb", -1, second + 0.4, second + 0.5, 0),
    ]
    write_trace(with_rows(run, rows), tmp_path / "trace.json")
    events = read(tmp_path / "trace.json")
    names = thread_names(events)
    assert [name for name in names.values() if name.startswith("server")] == [
        *("server", "server, receiving", "server, receiving (2)")
    ]
    marks = [(names[event["tid"]], event["name"], event["ts"]) for event in events if event["ph"] == "i"]
    assert marks == [
        ("device 0", "hand-over to device 3", round((second + 0.1) * 1e6)),
        ("device 3", "hand-over to device 0", round((second + 0.2) * 1e6)),
    ]
    arrows = defaultdict(list)
    for event in events:
        if event["ph"] in "sf":
            arrows[event["id"]].append((names[event["tid"]], enclosing(events, event)[0]["name"]))
    assert sorted(arrows.values()) == [
        [("device 0", "send"), ("device 1, receiving", "receive")],
        [("device 0", "send"), ("device 3, receiving", "receive")],
        [("device 1", "send"), ("server, receiving", "receive")],
        [("device 2", "send"), ("server, receiving (2)", "receive")],
        [("device 3", "send"), ("device 0, receiving", "receive")],
    ]


def test_requests_of_a_deployment(tmp_path: Path) -> None:
    sites = ["anna", HOSTILE]
    run = copied(tmp_path / "run", deployment={"sites": sites}, virtual_seconds=None)
    first, second, third = run.epochs["time"].tolist()[:3]
    lasted = second - first
    rows = [
        (1, 0, 0, first, 0.1, 10, 20, 30),
        (2, 0, 0, lasted / 4, 0.1, 10, 20, 30),
        (2, 0, 1, 9.0, 0.1, 10, 20, 30),  # later than the end of the epoch
        (2, 1, 0, lasted / 2, 0.1, 10, 20, 30),
        (3, 0, 0, (third - second) / 2, 0.1, 10, 20, 30),
        (3, 0, 1, math.nan, math.nan, 10, 0, 0),
    ]
    write_trace(with_rows(run, rows, deployed=True), tmp_path / "trace.json")
    events = read(tmp_path / "trace.json")
    names = thread_names(events)
    assert list(names.values()) == ["server", "device 0: anna", f"device 1: {HOSTILE}", f"device 1: {HOSTILE} (2)"]
    found = {
        (event["args"]["epoch"], event["args"]["question"], names[event["tid"]][:8]): (
            *(event["name"], event["ts"], event["ts"] + event["dur"]),
        )
        for event in events
        if event.get("cat") == "round"
    }
    quarter, middle, half = second - lasted * 3 / 4, second - lasted / 2, (second + third) / 2
    expected = {
        (1, 0, "device 0"): ("request", 0, first),
        (2, 0, "device 0"): ("request", quarter, middle),
        (2, 0, "device 1"): ("request", quarter, quarter + 9),
        (2, 1, "device 0"): ("request", middle, second),
        (3, 0, "device 0"): ("request", half, third),
        (3, 0, "device 1"): ("request without reply", half, third),
    }
    assert found == {
        key: (name, pytest.approx(begin * 1e6, abs=2), pytest.approx(end * 1e6, abs=2))
        for key, (name, begin, end) in expected.items()
    }


def test_owners_are_named(tmp_path: Path) -> None:
    run = copied(tmp_path / "run", owners=["anna", "bert", "carl", HOSTILE, "emil"])
    write_trace(run, tmp_path / "trace.json")
    assert f"device 3: {HOSTILE}" in thread_names(read(tmp_path / "trace.json")).values()


def test_a_compressed_trace_is_the_same_and_has_no_date(tmp_path: Path) -> None:
    for name in ("a.json", "a.json.gz", "b.json.gz"):
        write_trace(load(made()), tmp_path / name)
    assert read(tmp_path / "a.json") == read(tmp_path / "a.json.gz")
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_an_own_trace_or_an_empty_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "empty.json").touch()
    for name in ("a.json", "a.json.gz", "empty.json"):
        for _ in range(2):
            write_trace(load(made()), tmp_path / name)
        read(tmp_path / name)


FOREIGN = {
    "notes.json": b'{"mine": 1}',
    "short.json": b"{",
    "packed.json.gz": gzip.compress(b"{}"),
    "cut.json.gz": b"\x1f\x8b\x08",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_others_have_written_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FOREIGN[name])
    with pytest.raises(UsageError, match="exists and is not what this command writes; choose another file"):
        write_trace(load(made()), tmp_path / name)
    assert (tmp_path / name).read_bytes() == FOREIGN[name]


def test_a_run_without_a_timeline_is_refused(run: Run, tmp_path: Path) -> None:
    (run.path / "timeline.parquet").unlink()
    with pytest.raises(RunDirectoryError, match=r"neither timeline\.parquet nor devices\.parquet"):
        write_trace(run, tmp_path / "trace.json")
    (run.path / "devices.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunDirectoryError, match=r"devices\.parquet' is damaged"):
        write_trace(run, tmp_path / "trace.json")
    assert not (tmp_path / "trace.json").exists()
