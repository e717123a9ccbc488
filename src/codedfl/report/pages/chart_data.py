"""What the charts of a page draw, as plain values: curves, costs of devices, timelines and hand-overs."""

import base64
import gzip
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from codedfl.errors import RunDirectoryError
from codedfl.report.figures import curve_of
from codedfl.report.sharing import handovers
from codedfl.runs import Run
from codedfl.storage import DAMAGED
from codedfl.training.costs import LINKS

_BARS = 300_000
"""Bars of a timeline on a page; a longer one ends with the epoch that still fits."""
_TICKS = 2**31
"""Times are whole ticks of a timeline, so that its end is known as exactly as its beginning."""
_FIRST_EPOCHS = 8
"""Epochs that a timeline shows at first, unless hand-overs take longer."""
ON_THE_WAY, COMPUTE = "on the way", "compute"

_STEPS = ("epoch", "device", "activity", "peer", "begin", "end", "bits")
_REQUESTS = ("epoch", "device", "seconds", "working_seconds", "down_bits", "up_bits")
"""Columns of timelines and of requests to sites."""

Columns = dict[str, Shaped[np.ndarray, "..."]]


def clock_word(run: Run) -> str:
    """Return what kind of seconds a run has."""
    if run.summary.get("virtual_seconds") is not None:
        return "virtual"
    return "real" if run.summary["deployment"]["time_scale"] == 1 else "emulated"


def curves_data(groups: Mapping[str, Sequence[Run]]) -> list[dict[str, Any]]:
    """Return score against time for the runs under each label: mean and 95% band."""
    found = []
    for label, runs in groups.items():
        curve = curve_of(label, runs)
        columns = {name: _rounded(getattr(curve, name)) for name in ("time", "mean", "low", "high")}
        found.append({"label": label, "clock": clock_word(runs[0]), "by_epoch": curve.by_epoch, **columns})
    return found


def _rounded(values: Float[np.ndarray, "points"]) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]


def device_costs(run: Run) -> dict[str, list[int]] | None:
    """Return bits by link and multiplications of each device; None if the run was made before they were kept."""
    columns = _table(run, "costs.parquet", ("device", *LINKS, "macs"))
    return None if columns is None else {name: columns[name].tolist() for name in (*LINKS, "macs")}


def _table(run: Run, name: str, needed: Sequence[str]) -> Columns | None:
    """Read a table of a run; None if there is none."""
    import pyarrow
    import pyarrow.parquet

    if not (run.path / name).is_file():
        return None
    try:
        table = pyarrow.parquet.read_table(run.path / name)
        columns = {each: table[each].to_numpy() for each in needed}
        devices, whole = columns["device"].astype(np.int64), name != "costs.parquet"
        usable = ((devices >= 0) & (devices < run.scenario.fleet.size)).all()
        usable = usable and (whole or len(devices) == run.scenario.fleet.size)
    except (*DAMAGED, pyarrow.ArrowException):
        usable = False
    if not usable:
        raise RunDirectoryError(f"'{run.path / name}' is damaged; delete the run and run again")
    return columns


def device_names(run: Run) -> list[str]:
    """Return the names of devices: of sites or owners, if there are any, else their numbers."""
    deployed = (run.summary.get("deployment") or {}).get("sites")
    return [str(name) for name in deployed or run.summary.get("owners") or range(run.scenario.fleet.size)]


def timeline_columns(run: Run) -> Columns | None:
    """Return who does what when, epoch by epoch; None if it is not known."""
    columns = _table(run, "timeline.parquet", _STEPS)
    if columns is None:
        requests = _table(run, "devices.parquet", _REQUESTS)
        columns = None if requests is None else _of_requests(run, requests)
    if columns is None or not len(columns["begin"]):
        return None
    return columns


def _of_requests(run: Run, rows: Columns) -> Columns:
    """Lay out requests to real sites: how long each took is measured, when in its epoch it began is not."""
    seconds, ends = np.nan_to_num(rows["seconds"]), run.epochs["time"]
    work = np.minimum(np.nan_to_num(rows["working_seconds"]), seconds)
    epoch = np.clip(rows["epoch"], 1, len(ends))
    own = epoch == 1
    first = max(0.0, float(ends[0] - seconds[own].max(initial=0.0)))
    begin = np.where(own, first, np.concatenate([[0.0], ends])[epoch - 1])
    inside = begin + (seconds - work) / 2
    bits = rows["down_bits"] + rows["up_bits"]
    return {
        "epoch": np.concatenate([epoch, epoch]),
        "device": np.concatenate([rows["device"]] * 2),
        "activity": np.repeat(np.array([ON_THE_WAY, COMPUTE], object), len(epoch)),
        "peer": np.full(2 * len(epoch), -1),
        "begin": np.concatenate([begin, inside]),
        "end": np.concatenate([begin + seconds, inside + work]),
        "bits": np.concatenate([bits, np.zeros_like(bits)]),
    }


def timeline_data(label: str, run: Run, columns: Columns) -> dict[str, Any]:
    """Pack a timeline: bars sorted by device and begin, as arrays in base64 of gzip."""
    epoch = columns["epoch"].astype(np.int64)
    last = int(epoch.max())
    if len(epoch) > _BARS:
        last = max(1, int(np.sort(epoch)[_BARS]) - 1)
    kept = epoch <= last
    cut = {name: values[kept] for name, values in columns.items()}
    end = float(max(cut["end"].max(), 1e-9))
    activities, codes = np.unique(cut["activity"].astype(str), return_inverse=True)
    scale = _TICKS / end
    begin, stop = (np.rint(cut[name] * scale).astype(np.int64) for name in ("begin", "end"))
    order = np.lexsort((begin, cut["device"]))
    arrays = (
        begin.astype("<u4"),
        np.maximum(stop - begin, 0).astype("<u4"),
        cut["epoch"].astype("<u4"),
        cut["bits"].astype("<f4"),
        cut["device"].astype("<u2"),
        cut["peer"].astype("<i2"),
        codes.astype("u1"),
    )
    packed = b"".join(np.ascontiguousarray(array[order]).tobytes() for array in arrays)
    return {
        "label": label,
        "devices": run.scenario.fleet.size,
        "names": device_names(run),
        "activities": activities.tolist(),
        "thin": [place for place, name in enumerate(activities) if name == COMPUTE and ON_THE_WAY in activities],
        "rows": len(order),
        "epochs": last,
        "end": end,
        "ticks": _TICKS,
        "first": int(min(_TICKS, scale * _opening(cut))),
        # a fixed time, so that the same run makes the same page
        "packed": base64.b64encode(gzip.compress(packed, 6, mtime=0)).decode(),
    }


def _opening(columns: Columns) -> float:
    """Return until when a timeline is shown at first: the end of hand-overs, or of some epochs."""
    absorbed = columns["end"][columns["activity"] == "absorb"]
    early = columns["end"][columns["epoch"] <= _FIRST_EPOCHS]
    return 1.02 * float(absorbed.max() if len(absorbed) else early.max())


def activity_seconds(run: Run, columns: Columns) -> tuple[list[str], list[list[Any]]]:
    """Return activities, and for each device its name and how long it spent on each, in seconds."""
    names = device_names(run)
    activities, codes = np.unique(columns["activity"].astype(str), return_inverse=True)
    spent = np.zeros((len(names), len(activities)))
    np.add.at(spent, (columns["device"].astype(np.int64), codes), columns["end"] - columns["begin"])
    return activities.tolist(), [[name, *row] for name, row in zip(names, spent.tolist(), strict=True)]


def handover_data(label: str, run: Run, columns: Columns) -> dict[str, Any] | None:
    """Return each hand-over: epoch, sender, recipient, and whether the sender added errors or a seal; None without."""
    if not run.summary.get("handovers"):
        return None
    moved = [list(each) for each in handovers(columns)]
    return {"label": label, "devices": run.scenario.fleet.size, "rows": moved, "fresh": "encrypts its data anew"}
