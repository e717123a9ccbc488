"""What finished runs tell of their devices' delays: transmissions and computations, by device.

The timeline of a simulated run has every step. The requests of a deployment have the whole time of a reply and the
device's own work; the difference is the time of both ways, in which latency and the handling of messages are counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from codedfl.errors import RunDirectoryError
from codedfl.network.estimation import Observed
from codedfl.runs import Run
from codedfl.storage import DAMAGED
from codedfl.training.timeline import ROUND

_KINDS = ("work", "down", "up", "direct", "replies")
_STEPS = ("epoch", "device", "activity", "peer", "begin", "end", "bits", "macs")
_REQUESTS = ("epoch", "device", "seconds", "working_seconds", "down_bits", "up_bits", "macs")
_SPREAD = 0.1
"""Shares of bits down that differ by this much, over the requests of all runs, tell the two ways apart."""
Columns = dict[str, Shaped[np.ndarray, "..."]]


@final
@dataclass(frozen=True, eq=False)
class Observations:
    """Delays of all runs. Amounts of ``replies`` are bits up, and bits down times ``down_per_up``."""

    work: Observed
    down: Observed
    up: Observed
    direct: Observed
    replies: Observed
    direct_to: Int[np.ndarray, "rows"]
    """The recipients of direct parcels."""
    down_per_up: float
    """Seconds of a bit down in seconds of a bit up."""
    remarks: tuple[str, ...]

    def by_name(self) -> dict[str, Observed]:
        """Return the observations of each kind."""
        return {name: getattr(self, name) for name in _KINDS}


def observe(runs: Sequence[Run]) -> Observations:
    """Read the delays of runs."""
    kinds: dict[str, list[Columns]] = {name: [] for name in _KINDS}
    for run in runs:
        if (run.path / "timeline.parquet").is_file():
            found = _simulated(run)
        elif (run.path / "devices.parquet").is_file():
            found = _deployed(run)
        else:
            raise RunDirectoryError(
                f"'{run.path}' has neither timeline.parquet nor devices.parquet, so its delays are not known; "
                "run it again"
            )
        for name, columns in found.items():
            kinds[name].append(columns)
    joined = {name: _joined(name, parts) for name, parts in kinds.items()}
    replies, ratio = joined["replies"], 1.0
    remarks: tuple[str, ...] = ()
    if len(replies["device"]):
        ratio, remark = _down_per_up(replies, runs[0])
        remarks = (remark, "latency counts to the rates of these links: it is not told from the time that bits take")
    replies["amount"] = replies["down"] * ratio + replies["amount"]
    observed = {
        name: Observed(
            each["device"].astype(np.int64),
            each["amount"].astype(np.float64),
            each["seconds"],
            each["ended"].astype(bool),
        )
        for name, each in joined.items()
    }
    to = joined["direct"]["peer"].astype(np.int64)
    return Observations(**observed, direct_to=to, down_per_up=ratio, remarks=remarks)


def _joined(name: str, parts: Sequence[Columns]) -> Columns:
    """Put the columns of all runs together, without what took nothing."""
    more = {"direct": ("peer",), "replies": ("down",)}.get(name, ())
    columns = {
        each: np.concatenate([part[each] for part in parts] or [np.zeros(0)])
        for each in ("device", "amount", "seconds", "ended", *more)
    }
    timed = (columns["amount"] > 0) & (columns["seconds"] > 0)
    return {each: column[timed] for each, column in columns.items()}


def _read(run: Run, file: str, names: Sequence[str]) -> Columns:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(run.path / file)
        if missing := [name for name in names if name not in table.column_names]:
            raise RunDirectoryError(
                f"the {file} of '{run.path}' has no column '{missing[0]}', as earlier versions wrote it; run it again"
            )
        columns = {name: table[name].to_numpy() for name in names}
        device, size = columns["device"], run.scenario.fleet.size
        numbers = all(columns[name].dtype.kind in "if" for name in names if name != "activity")
        fine = numbers and bool(np.all((device >= 0) & (device < size)))
        fine = fine and bool(np.all((columns["epoch"] >= 1) & (columns["epoch"] <= run.summary["epochs"])))
        fine = fine and ("peer" not in columns or bool(np.all((columns["peer"] >= -1) & (columns["peer"] < size))))
    except (*DAMAGED, pyarrow.ArrowException):
        fine = False
    if not fine:
        raise RunDirectoryError(f"the {file} of '{run.path}' is damaged; delete the run and run it again")
    return columns


def _simulated(run: Run) -> Mapping[str, Columns]:
    """Return the steps of the timeline; those that the end of their epoch cut off are known by the next step."""
    steps = _read(run, "timeline.parquet", _STEPS)
    seconds, activity = steps["end"] - steps["begin"], steps["activity"].astype(str)
    ended = _ended(run, steps, activity)
    sent, received, computed, replied = (activity == name for name in ("send", *ROUND))
    worked = computed | np.isin(activity, ("encrypt", "absorb"))
    # a parcel that is relayed waits at the server: the time of its two ways is not known
    direct = sent & (steps["peer"] >= 0) & (_device_bits(run)[steps["device"]] > 0)
    chosen = {
        "work": (worked, "macs"),
        "down": (received, "bits"),
        "up": (replied | (sent & (steps["peer"] < 0)), "bits"),
        "direct": (direct, "bits"),
    }
    return {
        kind: {
            **{name: steps[name][rows] for name in ("device", "peer")},
            **{"amount": steps[amount][rows], "seconds": seconds[rows], "ended": ended[rows]},
        }
        for kind, (rows, amount) in chosen.items()
    }


def _ended(run: Run, steps: Columns, activity: Shaped[np.ndarray, "rows"]) -> Bool[np.ndarray, "rows"]:
    """Tell which steps were seen to end: all but the last one of a device in an epoch that ended without its reply."""
    in_round = np.flatnonzero(np.isin(activity, ROUND))
    ended = np.ones(len(activity), bool)
    order = in_round[np.lexsort((steps["begin"][in_round], steps["device"][in_round], steps["epoch"][in_round]))]
    device, epoch = steps["device"][order], steps["epoch"][order]
    last = np.append((device[1:] != device[:-1]) | (epoch[1:] != epoch[:-1]), True)[: len(order)]
    time = run.epochs["time"]
    over = (steps["end"][order] == time[epoch - 1]) | (steps["end"][order] >= time[-1])
    replied = activity[order] == ROUND[-1]
    # where every reply counted, the one that ends the epoch was not cut off
    everyone = np.bincount(epoch[last & replied], minlength=len(time) + 1)[1:] <= run.epochs["replies"]
    ended[order] = ~last | (replied & (~over | everyone[epoch - 1]))
    return ended


def _device_bits(run: Run) -> Int[np.ndarray, "n"]:
    """Return the bits that each device sent to others directly."""
    costs = _read_costs(run)
    direct = np.zeros(run.scenario.fleet.size, np.int64)
    direct[costs["device"]] = costs["d2d"]
    return direct


def _read_costs(run: Run) -> Columns:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(run.path / "costs.parquet", columns=["device", "d2d"])
        columns = {name: table[name].to_numpy().astype(np.int64) for name in ("device", "d2d")}
        if columns["device"].tolist() == list(range(run.scenario.fleet.size)):
            return columns
    except (*DAMAGED, pyarrow.ArrowException):
        pass
    raise RunDirectoryError(f"the costs.parquet of '{run.path}' is damaged; delete the run and run it again")


def _deployed(run: Run) -> Mapping[str, Columns]:
    """Return the work of accepted replies and the time of both ways, in payload as a scenario counts it."""
    rows = _read(run, "devices.parquet", _REQUESTS)
    down, up = (rows[f"{way}_bits"] * _payload_share(run, rows, way)[rows["epoch"] - 1] for way in ("down", "up"))
    taken = np.isfinite(rows["seconds"]) & np.isfinite(rows["working_seconds"])
    if run.scenario.training.first_epoch_offline:  # devices computed beforehand, and were not sent the model
        taken &= rows["epoch"] > 1
    device, ended = rows["device"][taken], np.ones(int(taken.sum()), bool)
    working, way = rows["working_seconds"][taken], (rows["seconds"] - rows["working_seconds"])[taken]
    work = {"device": device, "amount": rows["macs"][taken], "seconds": working, "ended": ended}
    return {
        "work": work,
        "replies": {"device": device, "amount": up[taken], "down": down[taken], "seconds": way, "ended": ended},
    }


def _payload_share(run: Run, rows: Columns, way: str) -> Float[np.ndarray, "epochs"]:
    """Return payload over transmitted bits of each epoch; in those with parcels, which are not requests, the median."""
    sent = np.bincount(rows["epoch"] - 1, rows[f"{way}_bits"], minlength=len(run.epochs["epoch"]))
    payload = np.asarray(run.epochs[f"{way}_bits"], np.float64)
    whole = (sent > 0) & (payload > 0) & (payload <= sent)
    share = np.divide(payload, sent, out=np.ones(len(sent)), where=sent > 0)
    return np.where(whole, share, np.median(share[whole]) if whole.any() else 1.0)


def _down_per_up(replies: Columns, run: Run) -> tuple[float, str]:
    """Return how many seconds a bit down takes in seconds of a bit up: from the replies if they tell, else declared."""
    down, up, seconds = replies["down"], replies["amount"], replies["seconds"]
    low, high = np.quantile(down / (down + up), [0.05, 0.95])
    if high - low >= _SPREAD:
        scale = 1 / (down + up)
        (per_down, per_up), *_ = np.linalg.lstsq(np.stack([down * scale, up * scale], 1), seconds * scale, rcond=None)
        if per_down > 0 and per_up > 0:
            return float(per_down / per_up), "down_rate and up_rate are told apart by requests of unlike sizes"
    links = run.scenario.links
    words = f"up_rate / down_rate = {links.up_rate / links.down_rate:g} as declared in the links of the first run: "
    return links.up_rate / links.down_rate, words + "only the sum of both ways is recorded"
