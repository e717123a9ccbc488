"""A fleet estimated from finished runs: devices and links as a scenario takes them, and what the runs cannot tell."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float

from codedfl.errors import UsageError
from codedfl.network import DelayModel
from codedfl.network.estimation import (
    WorkEstimate,
    alike_losses,
    alike_setups,
    estimate_links,
    estimate_pairs,
    estimate_work,
)
from codedfl.runs import Run
from codedfl.scenario import Fleet, Links
from codedfl.studies.fleet_observations import Observations, observe

_DIGITS = 6
FIRST_LINE = "# fitted by codedfl fleet fit"
Values = dict[str, Float[np.ndarray, "n"]]
_OF_LINKS = ("down_rate", "up_rate", "d2d_rate", "loss", "d2d_loss")


@final
@dataclass(frozen=True, eq=False)
class FittedFleet:
    """Sections ``fleet`` and ``links``, how many observations each device has, and remarks on what was settled how."""

    fleet: Fleet
    links: Links
    seen: Mapping[str, Sequence[int]]
    remarks: tuple[str, ...]

    def to_table(self) -> dict[str, Any]:
        """Write everything as plain values."""
        sections = {"fleet": self.fleet.to_table(), "links": self.links.to_table()}
        return {
            **sections,
            "observations": {name: list(each) for name, each in self.seen.items()},
            "remarks": [*self.remarks],
        }

    def to_toml(self) -> str:
        """Write a file that a scenario extends."""
        import tomli_w

        words = [FIRST_LINE, *(f"# {remark}" for remark in self.remarks)]
        return (
            "\n".join(words) + "\n\n" + tomli_w.dumps({"fleet": self.fleet.to_table(), "links": self.links.to_table()})
        )


def fit_fleet(runs: Sequence[Run]) -> FittedFleet:
    """Estimate the fleet of runs that were carried out on the same devices."""
    declared, observations = _common(runs), observe(runs)
    remarks = list(observations.remarks)
    values: Values = {}
    _fit_work(values, estimate_work(observations.work, declared.devices), declared, remarks)
    _fit_server_links(values, observations, declared, remarks)
    _fit_device_links(values, observations, declared, remarks)
    remarks += [
        f"links.overhead = {declared.overhead:g} as declared: it cannot be told from the rates, which hold with it",
        f"fleet.server_mac_rate = {declared.server_mac_rate:g} as declared: no run measures the server",
    ]
    rounded = {name: np.array([float(f"{value:.{_DIGITS}g}") for value in each]) for name, each in values.items()}
    links = runs[0].scenario.links
    common = {name: float(np.sort(rounded[name])[(declared.devices - 1) // 2]) for name in _OF_LINKS}
    kept = {"overhead": declared.overhead, "d2d_channel": links.d2d_channel}
    fleet = {"devices": _groups(rounded, common), "server_mac_rate": declared.server_mac_rate}
    seen = {
        name: np.bincount(each.device, minlength=declared.devices).tolist()
        for name, each in observations.by_name().items()
    }
    return FittedFleet(Fleet.from_table(fleet), Links.from_table(common | kept), seen, tuple(remarks))


def _common(runs: Sequence[Run]) -> DelayModel:
    """Return what the first run declares; refuse runs of other fleets."""
    if not runs:
        raise UsageError("no run is named; give run directories, for example: codedfl fleet fit runs/mine")
    first = runs[0]
    for run in runs[1:]:
        size, other = first.scenario.fleet.size, run.scenario.fleet.size
        if other != size:
            raise UsageError(f"'{run.path}' has {other} devices and '{first.path}' {size}; name runs of one fleet")
        sites = [each.summary.get("deployment", {}).get("sites") for each in (first, run)]
        if None not in sites and sites[0] != sites[1]:
            raise UsageError(f"'{run.path}' was deployed on other sites than '{first.path}'; name runs of one fleet")
    return DelayModel.create(first.scenario.fleet, first.scenario.links)


def _fit_work(values: Values, found: WorkEstimate, declared: DelayModel, remarks: list[str]) -> None:
    unknown = np.isnan(found.mac_rate)
    ratio, constant = found.setup_ratio.copy(), found.setup_seconds.copy()
    if not np.any(constant[~unknown] > 0) and alike_setups(ratio[~unknown], found.ends[~unknown]):
        weight = np.maximum(found.ends[~unknown] - 1.0, 0.0)
        if weight.sum() > 0:
            ratio[~unknown] = weight @ ratio[~unknown] / weight.sum()
            remarks.append("setup_ratio of all devices together: their work does not tell them apart")
    if not np.any(constant[~unknown] > 0) and not unknown.all():
        remarks.append("setup_seconds = 0: amounts of work are alike, so that setup_ratio carries all of the delay")
    values["mac_rate"] = _settled(found.mac_rate, unknown, declared.mac_rate)
    values["setup_ratio"] = _settled(ratio, unknown, declared.setup_ratio)
    values["setup_seconds"] = _settled(constant, unknown, declared.setup_seconds)
    _say_unknown(remarks, "mac_rate, setup_ratio and setup_seconds", unknown, "did no work that was timed")


def _fit_server_links(values: Values, seen: Observations, declared: DelayModel, remarks: list[str]) -> None:
    n = declared.devices
    down, up = estimate_links(seen.down, n), estimate_links(seen.up, n)
    # of replies only the sum of both ways is known; their amounts are bits up, and bits down at the assumed ratio
    both = estimate_links(seen.replies, n)
    rates: Values = {}
    for name, own, share in (("down_rate", down, seen.down_per_up), ("up_rate", up, 1.0)):
        bit_seconds = np.where(np.isnan(own.bit_seconds), both.bit_seconds * share, own.bit_seconds)
        with np.errstate(divide="ignore"):
            rates[name] = (1 + declared.overhead) / bit_seconds
        unknown = ~np.isfinite(rates[name])
        values[name] = _settled(rates[name], unknown, getattr(declared, name))
        _say_unknown(remarks, name, unknown, "sent nothing that was timed there")
    failures = down.failures + up.failures + both.failures
    successes = down.successes + up.successes + both.successes
    values["loss"] = _losses("loss", failures, successes, declared.loss, remarks)


def _fit_device_links(values: Values, seen: Observations, declared: DelayModel, remarks: list[str]) -> None:
    rate, failures, successes = estimate_pairs(seen.direct, seen.direct_to, declared.devices)
    unknown = np.isnan(rate)
    values["d2d_rate"] = _settled(rate * (1 + declared.overhead), unknown, declared.d2d_rate)
    _say_unknown(remarks, "d2d_rate", unknown, "exchanged no parcels that were timed")
    if successes.sum():
        values["d2d_loss"] = _losses("d2d_loss", failures, successes, declared.d2d_loss, remarks)
    else:
        values["d2d_loss"] = declared.d2d_loss


def _losses(
    name: str,
    failures: Float[np.ndarray, "n"],
    successes: Float[np.ndarray, "n"],
    declared: Float[np.ndarray, "n"],
    remarks: list[str],
) -> Float[np.ndarray, "n"]:
    """Return the loss of each device, or one of all devices where that explains as much."""
    tried = successes > 0
    if not tried.any():
        remarks.append(f"{name} as declared: no transmission was timed")
        return declared
    pooled = np.full(len(failures), failures.sum() / (failures.sum() + successes.sum()))
    if alike_losses(failures, successes):
        remarks.append(f"{name} of all devices together: their tries do not tell them apart")
        return pooled
    return np.asarray(np.where(tried, failures / np.maximum(failures + successes, 1.0), pooled))


def _settled(
    found: Float[np.ndarray, "n"], unknown: Bool[np.ndarray, "n"], declared: Float[np.ndarray, "n"]
) -> Float[np.ndarray, "n"]:
    return np.asarray(np.where(unknown, declared, found))


def _say_unknown(remarks: list[str], name: str, unknown: Bool[np.ndarray, "n"], reason: str) -> None:
    if unknown.any():
        who = "all devices" if unknown.all() else f"devices {', '.join(map(str, np.flatnonzero(unknown)))}"
        remarks.append(f"{name} of {who} as declared: they {reason} in these runs")


def _groups(values: Values, common: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return groups of neighbours that are alike; values of links are named where they differ."""
    always = ("mac_rate", "setup_ratio", "setup_seconds")
    rows = []
    for device in range(len(values["mac_rate"])):
        row = {name: float(each[device]) for name, each in values.items()}
        rows.append({name: value for name, value in row.items() if name in always or value != common[name]})
    same: Callable[[dict[str, Any]], list[tuple[str, Any]]] = lambda row: sorted(row.items())  # noqa: E731
    return [{"count": len(list(group)), **dict(row)} for row, group in groupby(rows, key=same)]
