"""What each party of a run does and when, in whole microseconds of virtual or real time."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl.errors import RunDirectoryError
from codedfl.report.exports.epochs import ends
from codedfl.runs import Run
from codedfl.storage import DAMAGED
from codedfl.training.timeline import ROUND

SERVER = -1
_TIMELINE = ("epoch", "device", "activity", "peer", "begin", "end", "bits")
_REQUESTS = ("epoch", "question", "device", "seconds", "working_seconds", "down_bits", "up_bits", "macs")


@final
@dataclass(frozen=True)
class Activity:
    """One activity of a party; ``flow`` is the number of the transfer that it is part of."""

    party: int
    name: str
    kind: str
    begin: int
    end: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    flow: int | None = None
    hand_over: str | None = None
    """Says who hands over to whom, where a hand-over begins."""

    @property
    def length(self) -> int:
        """How long it lasts."""
        return self.end - self.begin


def activities(run: Run) -> Iterator[Activity]:
    """Yield the epochs, which the server conducts, and what devices do: in simulations every step, else requests."""
    if (path := run.path / "timeline.parquet").is_file():
        columns, steps = _read(path, _TIMELINE), _simulated
    elif (path := run.path / "devices.parquet").is_file():
        columns, steps = _read(path, _REQUESTS), _deployed
    else:
        raise RunDirectoryError(
            f"'{run.path}' has neither timeline.parquet nor devices.parquet, so its timeline is not known; run it again"
        )
    last = ends(run)
    start = float(min(columns["begin"], default=0.0)) if "begin" in columns else 0.0
    for epoch, (begin, end) in enumerate(zip([start, *last[:-1]], last, strict=True), start=1):
        yield Activity(SERVER, f"epoch {epoch}", "epoch", _micro(begin), _micro(end))
    yield from steps(columns, last)


def _read(path: Path, names: tuple[str, ...]) -> dict[str, list[Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path, columns=list(names))
        return {name: table[name].to_pylist() for name in names}
    except (*DAMAGED, pyarrow.ArrowException):
        raise RunDirectoryError(f"'{path}' is damaged; delete the run and run it again") from None


def _micro(seconds: float) -> int:
    return round(seconds * 1e6)


def _simulated(columns: Mapping[str, list[Any]], last: Float[np.ndarray, "epochs"]) -> Iterator[Activity]:
    for number, row in enumerate(zip(*columns.values(), strict=True), start=1):
        epoch, device, name, peer, begin, end, bits = row
        first, over = _micro(begin), _micro(end)
        facts = {"epoch": epoch, **({"bits": bits} if bits else {})}
        if name != "send":
            yield Activity(device, name, "round" if name in ROUND else "stage", first, over, facts)
            continue
        over = max(over, first + 1)  # an arrow needs something to end in
        # parcels of other stages are sent before the end of their epoch
        handed = f"hand-over to {_party(peer)}" if begin >= last[epoch - 1] and peer != SERVER else None
        yield Activity(device, "send", "transfer", first, over, facts | {"to": _party(peer)}, number, handed)
        yield Activity(peer, "receive", "transfer", first, over, facts | {"from": _party(device)}, number)


def _party(number: int) -> str:
    return "server" if number == SERVER else f"device {number}"


def _deployed(columns: Mapping[str, list[Any]], last: Float[np.ndarray, "epochs"]) -> Iterator[Activity]:
    """Yield requests; deployments record how long each took, not when it began.

    The questions of an epoch are laid out one after the other so that the last ends with the epoch, each as long as its
    slowest reply that came in time.
    """
    rows = list(zip(*columns.values(), strict=True))
    longest: defaultdict[int, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    for epoch, question, _, seconds, *_ in rows:
        lasted = last[epoch - 1] - (last[epoch - 2] if epoch > 1 else 0.0)
        longest[epoch][question] = max(longest[epoch][question], seconds if seconds <= lasted else 0.0)
    for epoch, question, device, seconds, working, down, up, macs in rows:
        later = sum(each for number, each in longest[epoch].items() if number >= question)
        begin, answered = max(last[epoch - 1] - later, 0.0), seconds == seconds
        end = begin + seconds if answered else last[epoch - 1]
        facts = {"epoch": epoch, "question": question, "down_bits": down, "up_bits": up, "multiplications": macs}
        facts |= {"working_seconds": working} if working == working else {}
        name = "request" if answered else "request without reply"
        yield Activity(device, name, "round", _micro(begin), _micro(max(begin, end)), facts)
