"""The paper's claims, one by one, from what was measured."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codedfl.codes.bounds import least_overlap
from codedfl.codes.constant_weight import family
from codedfl.runs import Run
from codedfl.studies.reproduce import claims
from codedfl.studies.reproduce.above_target import gains
from codedfl.studies.reproduce.claims import Claim
from codedfl.studies.reproduce.experiment import Experiment, Reading, Setting
from codedfl.studies.reproduce.readings import Timed
from codedfl.studies.reproduce.sealed import speedup
from codedfl.studies.reproduce.tasks import Codes, OtherTimes, SeedResult
from codedfl.training.timing import Band, band

_FRAME_ERRORS = 1.33e-5
_GRADIENT_ERROR = 1e-4


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything that was run and timed."""

    plan: Experiment
    runs: Mapping[str, Sequence[Run]]
    timed: Mapping[tuple[int, Reading], Timed]
    seeds: Sequence[SeedResult]
    others: OtherTimes
    codes: Codes
    alone: Mapping[str, Mapping[float, float]]
    """By supply and Delta, the share of draws of the first setting that end with a single active device."""

    def best(self, setting: Setting, **changes: Any) -> Band | None:
        """Return the speed-up of a setting at its best Delta, in its reading with changes."""
        return self.timed[setting.level, dataclasses.replace(setting.reading, **changes)].best


def timing_rows(measured: Evidence) -> list[Claim]:
    """Return the claims about time."""
    wide, strong = measured.plan.settings
    once, reissued = "best Delta, each support used once", "best Delta, all supports issued again in every epoch"
    few = (
        f"{once}: only M = {strong.options['M']} slow devices can ever hand over, so every epoch waits for the others, "
        "who now multiply encoded data"
    )
    shared = "one channel shared by all device-to-device parcels; "
    rows = [
        claims.speedup("speedup-92", wide.speedup, measured.best(wide), f"parallel links; {once}"),
        claims.speedup("speedup-128", strong.speedup, measured.best(strong), f"parallel links; {reissued}"),
        claims.speedup("speedup-92-shared", wide.speedup, measured.best(wide, channel="shared"), shared + once),
        claims.speedup(
            "speedup-128-shared", strong.speedup, measured.best(strong, channel="shared"), shared + reissued
        ),
        claims.speedup("speedup-128-once", strong.speedup, measured.best(strong, supply="once"), few),
    ]
    for setting in measured.plan.settings:
        timed = measured.timed[setting.level, setting.reading]
        if timed.speedups:
            values = [entry.mean for entry in timed.speedups]
            tried = claims.best_delta(f"best-delta-{setting.level}", setting.options["delta"], setting.deltas, values)
            rows.append(dataclasses.replace(tried, claimed=setting.delta))
    early = f"{strong.level} bit: {_text(measured.best(strong, detect_from=1))} and {_text(measured.best(strong))}"
    detected, later = measured.best(wide, detect_from=1), measured.best(wide)
    rows += [
        claims.first_epoch_detection(wide.speedup, detected, later, f"best Delta, parallel links; {early}"),
        claims.ordering(_ratio(measured), "times to the target at the claimed Deltas, parallel links"),
        _gain(measured),
        _single_device(measured),
    ]
    hours = measured.others.transfer
    return [*rows, claims.transfer_hours(2.0, hours["shared"], hours["parallel"], _how(measured))]


def support_rows(measured: Evidence) -> list[Claim]:
    """Return the claims about code, cipher and supports."""
    plan = measured.plan
    rows = [security_level(setting) for setting in plan.settings]
    for setting in plan.settings:
        options = setting.options
        sets = family(options["t_tot"], options["t"], options["M"])
        name, k = f"level-after-overlap-{setting.level}", setting.scenario.features.dimension
        rows.append(claims.level_after_overlap(name, setting.level, options["n"], k, options["beta"], sets))
    options, k = plan.settings[0].options, plan.settings[0].scenario.features.dimension
    rows.append(claims.public_key(30.0, 4 * k * options["n"]))
    rows.append(claims.frame_errors(_FRAME_ERRORS, measured.codes.peeling))
    wide, strong = plan.settings
    fast, slow = measured.best(wide, supply="once"), measured.best(strong, supply="once")
    few = f"{_text(slow)} with {strong.options['M']}"
    gain = f"with that many supports, each once, sharing gives {_text(fast)} instead of {few}"
    rows.append(claims.inactivation(measured.codes.larger, measured.codes.peeling.high, gain))
    trained = [run for setting in plan.settings for run in measured.runs[setting.name]]
    rows.append(claims.gradient_error(max(run.summary["gradient_error"] for run in trained), _GRADIENT_ERROR))
    for setting in plan.settings:
        sizes = setting.options["t_tot"], setting.options["t"], setting.options["M"]
        found, least = family(*sizes).overlap, least_overlap(*sizes)
        rows.append(claims.overlap(f"support-overlap-{setting.level}", *sizes, found, least))
    return rows


def security_level(setting: Setting) -> Claim:
    """Return the claim of a level of Table I."""
    options, k = setting.options, setting.scenario.features.dimension
    name = f"security-level-{setting.level}"
    return claims.security_level(name, setting.level, options["n"], k, options["t"], options["beta"])


def padded_table(measured: Evidence) -> list[dict[str, Any]]:
    """Return the speed-up of CodedPaddedFL by channel and alpha, on the accuracy curve of the paper's scheme."""
    curve, rows = measured.runs[measured.plan.settings[0].name], []
    for channel, by_alpha in measured.others.padded.items():
        for alpha, times in by_alpha.items():
            found = speedup(measured.runs["minibatch"], curve, times)
            names = {"mean": "speedup", "low": "low", "high": "high"}
            values = {name: None if found is None else getattr(found, kind) for kind, name in names.items()}
            rows.append({"channel": channel, "alpha": alpha, **values})
    return rows


def _text(found: Band | None) -> str:
    return "not reached" if found is None else f"{found.mean:.2f}"


def _ratio(measured: Evidence) -> Band | None:
    """Return the time to the target in the second setting over that in the first."""
    target, pairs = measured.plan.minibatch.training.targets[-1], []
    for first, second in zip(*(measured.runs[setting.name] for setting in measured.plan.settings), strict=True):
        fast, slow = first.seconds_to(target), second.seconds_to(target)
        if fast is None or slow is None:
            return None
        pairs.append((slow.astype(np.float64), fast.astype(np.float64)))
    slow, fast = (np.concatenate(each) for each in zip(*pairs, strict=True))
    spread = band(slow / fast)
    return Band(float(slow.mean() / fast.mean()), spread.low, spread.high)


def _gain(measured: Evidence) -> Claim:
    first, target = measured.plan.settings[0].name, measured.plan.minibatch.training.targets[-1]
    curves_of_seeds = [result.curves for result in measured.seeds]
    rows = gains(curves_of_seeds, measured.runs["minibatch"], measured.runs[first], first, target)
    context = "models past the trained epochs follow from the last one by linear algebra, times from its last epochs"
    return claims.gain_above(rows, [result.ridge_accuracy for result in measured.seeds], context)


def _single_device(measured: Evidence) -> Claim:
    plan = measured.plan
    setting, shares = plan.settings[0], measured.alone["once"]
    listed = ", ".join(f"{value:.0%}" for value in measured.alone["reissued"].values())
    epochs = plan.minibatch.training.epochs
    context = f"M = {setting.options['M']}, each support once, after {epochs} epochs; supports reissued: {listed}"
    return claims.single_device(shares, context)


def _how(measured: Evidence) -> str:
    alpha = measured.plan.padded.to_table()["schemes"]["coded-padded"]["alpha"]
    devices = measured.plan.padded.fleet.size
    return f"alpha = {alpha}, {devices * (alpha - 1)} parcels of 48-bit numbers"
