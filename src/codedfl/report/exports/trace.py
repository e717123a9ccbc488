"""The timeline of a run as a trace for https://ui.perfetto.dev or chrome://tracing.

The format is the Trace Event Format of Chromium, as a JSON object. Times are whole microseconds. Complete events
(``X``) of a thread must not overlap, so what a party does at the same time as something else is on a further thread.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, final

from codedfl import __version__, storage
from codedfl.report.exports.activities import SERVER, Activity, activities
from codedfl.report.exports.epochs import ends
from codedfl.report.exports.places import check_file
from codedfl.runs import Run

_PROCESS = 1
_OPENING = '{"otherData": {"program": "codedfl"'
_MAGIC = b"\x1f\x8b"
Event = dict[str, Any]
Thread = tuple[int, bool, int]
"""Party, whether it receives, and a number where it does several things at once."""


def write_trace(run: Run, out: Path) -> int:
    """Write a trace, compressed if the name ends with ``.gz``; return the number of its events."""
    check_file(out, _is_trace)
    events = list(trace_events(run))
    others = {name: run.summary[name] for name in ("scenario", "scheme", "scenario_id")}
    head = json.dumps({"otherData": {"program": "codedfl", "version": __version__, **others}, "displayTimeUnit": "ms"})
    lines = ",\n".join(json.dumps(event, allow_nan=False, separators=(",", ":")) for event in events)
    content = f'{head[:-1]}, "traceEvents": [\n{lines}\n]}}\n'.encode()

    def write(file: IO[bytes]) -> None:
        # without a date, equal runs give equal files
        file.write(gzip.compress(content, mtime=0) if out.suffix.lower() == ".gz" else content)

    storage.write_whole(out, write)
    return len(events)


def _is_trace(path: Path) -> bool:
    with path.open("rb") as file:
        packed = file.read(len(_MAGIC)) == _MAGIC
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            return file.read(len(_OPENING)) == _OPENING.encode()
    except (OSError, EOFError):
        return False


@final
class _Threads:
    """Threads of the parties, those on which they receive parcels apart; activities of a thread never overlap."""

    def __init__(self) -> None:
        self._ends: defaultdict[tuple[int, bool], list[int]] = defaultdict(list)

    def place(self, activity: Activity) -> Thread:
        """Return the first thread that is free; activities must come in order of their begin."""
        receiving = activity.name == "receive"
        ends = self._ends[activity.party, receiving]
        number = next((number for number, end in enumerate(ends) if end <= activity.begin), len(ends))
        ends[number:] = [activity.end, *ends[number + 1 :]]
        return activity.party, receiving, number

    def ids(self) -> Mapping[Thread, int]:
        """Return the id of every thread, in the order in which they are shown."""
        found = [(*key, number) for key, ends in self._ends.items() for number in range(len(ends))]
        return {thread: number for number, thread in enumerate(sorted(found), start=1)}


def trace_events(run: Run) -> Iterator[Event]:
    """Yield metadata, then what parties do, with arrows of transfers and marks of hand-overs, then the score."""
    threads = _Threads()
    ordered = sorted(activities(run), key=lambda each: (each.begin, each.party, each.end))
    placed = [threads.place(each) for each in ordered]
    known = threads.ids()
    yield from _metadata(run, known)
    ids = [known[thread] for thread in placed]
    yield from _slices(ordered, ids)
    yield from _arrows(ordered, ids)
    yield from _scores(run)


def _metadata(run: Run, threads: Mapping[Thread, int]) -> Iterator[Event]:
    yield _meta("process_name", 0, name=f"{run.scenario.name}, {run.scenario.scheme}")
    names = _party_names(run)
    for (party, receiving, number), thread in threads.items():
        more = (", receiving" if receiving else "") + (f" ({number + 1})" if number else "")
        yield _meta("thread_name", thread, name=names.get(party, f"device {party}") + more)
        yield _meta("thread_sort_index", thread, sort_index=thread)


def _party_names(run: Run) -> dict[int, str]:
    """Return the names of the server and of devices, with their sites or owners if these have names."""
    known: Sequence[str] = (run.summary.get("deployment") or {}).get("sites") or run.summary.get("owners") or ()
    return {SERVER: "server"} | {device: f"device {device}: {name}" for device, name in enumerate(known)}


def _meta(name: str, thread: int, /, **args: Any) -> Event:
    return {"ph": "M", "pid": _PROCESS, "tid": thread, "name": name, "args": args}


def _slices(ordered: Iterable[Activity], ids: Iterable[int]) -> Iterator[Event]:
    for each, thread in zip(ordered, ids, strict=True):
        place = {"pid": _PROCESS, "tid": thread, "ts": each.begin}
        yield {"ph": "X", "name": each.name, "cat": each.kind, **place, "dur": each.length, "args": dict(each.facts)}
        if each.hand_over is not None:
            yield {"ph": "i", "name": each.hand_over, "cat": "hand-over", **place, "s": "t"}


def _arrows(ordered: Sequence[Activity], ids: Sequence[int]) -> Iterator[Event]:
    """Yield a flow from the begin of each sending to the end of its receiving.

    A flow binds to the slice round its time. At the very end of a slice there is none any more.
    """
    sent = {each.flow: number for number, each in enumerate(ordered) if each.flow and each.name == "send"}
    for number, each in enumerate(ordered):
        if each.flow is None or each.name != "receive":
            continue
        common = {"name": "transfer", "cat": "transfer", "id": each.flow, "pid": _PROCESS}
        first = sent[each.flow]
        yield {"ph": "s", **common, "tid": ids[first], "ts": ordered[first].begin}
        yield {"ph": "f", "bp": "e", **common, "tid": ids[number], "ts": each.end - 1}


def _scores(run: Run) -> Iterator[Event]:
    metric = run.summary["metric"]
    for end, score in zip(ends(run).tolist(), run.epochs["accuracy"].tolist(), strict=True):
        if score == score:
            yield {"ph": "C", "name": metric, "pid": _PROCESS, "ts": round(end * 1e6), "args": {metric: score}}
