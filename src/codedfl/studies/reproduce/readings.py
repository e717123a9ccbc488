"""The paper's policy in every reading of what it leaves open, at every Delta: times by replay, speed-ups with bands.

The model does not depend on who hands over when, so a reading needs no training of its own: its times come from the
sharing policy, replayed in many timing draws with the costs of the real arrays.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from codedfl import schemes
from codedfl.network import DelayModel
from codedfl.progress import Progress
from codedfl.runs import Run
from codedfl.studies.plan import Shapes
from codedfl.studies.reproduce.experiment import READINGS, Experiment, Reading, Setting
from codedfl.studies.reproduce.sealed import speedup
from codedfl.task import Problem
from codedfl.training.costs import SharedCosts, measure
from codedfl.training.curves import SharingCurves, bands, times_and_curves
from codedfl.training.timing import Band, Variant

CHANNELS = ("parallel", "shared")
SUPPLIES = ("once", "reissued")
_SMALL_DELTAS = (0.1, 0.5, 1.0, 3.0, 6.0, 12.0)
"""In seconds at the paper's size: Deltas at which the end of the training is looked at."""
Times = Float[np.ndarray, "settings readings deltas draws epochs"]


@dataclass(frozen=True)
class Timed:
    """The speed-up of one setting in one reading at every Delta; None where the target is not reached."""

    setting: Setting
    reading: Reading
    speedups: tuple[Band, ...] | None

    @property
    def best(self) -> Band | None:
        """The speed-up at the best Delta."""
        return max(self.speedups, key=lambda entry: entry.mean) if self.speedups else None

    @property
    def at_claimed(self) -> Band | None:
        """The speed-up at the Delta that the paper calls the best."""
        return self.speedups[self.setting.deltas.index(self.setting.options["delta"])] if self.speedups else None

    def to_table(self) -> dict[str, Any]:
        """Return plain values."""
        rows = zip(self.setting.deltas, self.speedups or (), strict=False)
        points = [{"delta": delta, "speedup": b.mean, "low": b.low, "high": b.high} for delta, b in rows]
        return {"level": self.setting.level, **dataclasses.asdict(self.reading), "points": points}


def variant_of(
    setting: Setting, reading: Reading, delta: float, problem: Problem, known: dict[int, SharedCosts]
) -> Variant:
    """Return how a setting shares in a reading; costs are measured once, as its open points do not change them."""
    scenario = setting.scenario.with_settings(reading.settings(delta))
    sharing = schemes.nominal(scenario).sharing
    if sharing is None:
        raise TypeError(f"scheme '{scenario.scheme}' does not share")
    if setting.level not in known:
        # a hand-over with two errors is among what is measured, whether the reading has any or not
        both = scenario.with_settings({"schemes.code-based.odd_set": "two-errors"})
        offline = scenario.training.first_epoch_offline
        known[setting.level] = measure(schemes.create(both, problem), problem, first_offline=offline)
    return Variant(known[setting.level], sharing.policy, sharing.parallel)


def hollow_problem(plan: Experiment) -> Problem:
    """Return data of the experiment's shapes without contents: costs do not depend on values."""
    return Shapes.of_data(plan.minibatch).hollow(plan.minibatch)


def reading_times(
    plan: Experiment, problem: Problem, known: dict[int, SharedCosts], cases: Sequence["CurveCase"], progress: Progress
) -> tuple[dict[str, Times], list[SharingCurves]]:
    """Return when epochs end, by channel, for both settings, all readings and all Deltas; and who is active in cases.

    Who hands over when is the same on both channels. ``known`` costs are kept.
    """
    chosen = [reading for reading in READINGS if reading.channel == CHANNELS[0]]
    wanted = [(setting, reading, delta) for setting in plan.settings for reading in chosen for delta in setting.deltas]
    timed = len(wanted)
    shown = [
        (case.setting, dataclasses.replace(case.setting.reading, supply=case.supply), case.delta) for case in cases
    ]
    for each in shown:
        wanted += [] if each in wanted else [each]
    scenarios = [plan.minibatch.with_settings({"links.d2d_channel": channel}) for channel in CHANNELS]
    ends, curves = times_and_curves(
        [variant_of(*each, problem, known) for each in wanted],
        [DelayModel.create(scenario.fleet, scenario.links) for scenario in scenarios],
        epochs=plan.minibatch.training.epochs,
        seed=plan.minibatch.timing.seed,
        draws=plan.draws,
        curves=[wanted.index(each) for each in shown],
        progress=lambda done, total: progress("readings", done, total),
    )
    shape = len(plan.settings), len(chosen), -1, *ends.shape[2:]
    return {name: each[:timed].reshape(shape) for name, each in zip(CHANNELS, ends, strict=True)}, curves


def timed_readings(
    plan: Experiment, runs: Mapping[str, Sequence[Run]], times: Mapping[str, Times]
) -> dict[tuple[int, Reading], Timed]:
    """Return speed-ups by level and reading, given the times by channel."""
    found = {}
    for number, setting in enumerate(plan.settings):
        for channel, ends in times.items():
            for place, reading in enumerate(each for each in READINGS if each.channel == channel):
                tried = [speedup(runs["minibatch"], runs[setting.name], own) for own in ends[number, place]]
                reached = tuple(entry for entry in tried if entry is not None)
                speedups = reached if len(reached) == len(tried) else None
                found[setting.level, reading] = Timed(setting, reading, speedups)
    return found


def readings_table(timed: Mapping[tuple[int, Reading], Timed]) -> list[dict[str, Any]]:
    """Return one row a reading: both speed-ups, at the best and at the claimed Delta, and how far from the paper's.

    The distance is the root mean square of the relative differences (in logarithms) of both speed-ups, each at the
    Delta that the paper calls the best, so that 0 means all four numbers at once. The nearest comes first.
    """
    rows: list[dict[str, Any]] = []
    for reading in READINGS:
        row, gaps = dataclasses.asdict(reading), []
        for entry in (entry for (_, other), entry in timed.items() if other == reading):
            level, best, claimed = entry.setting.level, entry.best, entry.at_claimed
            row |= {f"{level}_best": None if best is None else best.mean}
            band = (None, None, None) if claimed is None else (claimed.mean, claimed.low, claimed.high)
            row |= dict(zip((f"{level}", f"{level}_low", f"{level}_high"), band, strict=True))
            gaps.append(math.inf if claimed is None else math.log(claimed.mean / entry.setting.speedup))
        distance = math.sqrt(sum(gap * gap for gap in gaps) / len(gaps))
        rows.append(row | {"distance": distance if math.isfinite(distance) else None})
    return sorted(rows, key=lambda row: math.inf if row["distance"] is None else row["distance"])


@dataclass(frozen=True, eq=False)
class CurveCase:
    """A setting in its reading with a supply, at a Delta: who is active when is looked at."""

    setting: Setting
    supply: str
    delta: float


def claimed_cases(plan: Experiment) -> list[CurveCase]:
    """Return both settings with both supplies, at the claimed Deltas."""
    return [CurveCase(each, supply, each.options["delta"]) for each in plan.settings for supply in SUPPLIES]


def end_cases(plan: Experiment) -> list[CurveCase]:
    """Return the first setting with both supplies, at the Deltas at which the end of the training is looked at."""
    setting = plan.settings[0]
    deltas = [small * setting.options["delta"] / setting.delta for small in _SMALL_DELTAS]
    return [CurveCase(setting, supply, delta) for supply in SUPPLIES for delta in deltas]


def curve_table(case: CurveCase, found: SharingCurves) -> dict[str, Any]:
    """Return active devices and supports left by epoch, with bands, until nothing changes."""
    columns = {"active": bands(found.active), "supports": bands(found.supports)}
    changes = np.flatnonzero(np.any(np.diff(found.active, axis=1) != 0, axis=0))
    last = min(found.active.shape[1], int(changes[-1]) + 3 if len(changes) else 2)
    table = {
        f"{name}{part}": [getattr(each, kind) for each in values[:last]]
        for name, values in columns.items()
        for part, kind in (("", "mean"), ("_low", "low"), ("_high", "high"))
    }
    return {"level": case.setting.level, "supply": case.supply, "delta": case.delta, **table}


def alone_shares(found: Mapping[CurveCase, SharingCurves]) -> dict[str, dict[float, float]]:
    """Return the share of draws that end with a single active device, by supply and Delta."""
    shares: dict[str, dict[float, float]] = {}
    for case, curves in found.items():
        shares.setdefault(case.supply, {})[case.delta] = curves.alone
    return shares
