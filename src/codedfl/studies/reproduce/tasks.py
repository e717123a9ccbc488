"""The parts of the experiment that can run side by side, each in a process of its own.

Mini-batch FL, the paper's two settings and conjugate gradients on sealed data are trained for real, encryption and
decoding included, for every feature seed. Times of readings, of CodedPaddedFL and of sealed schemes are replayed with
the costs of real arrays, on data of the real shapes without contents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from codedfl.codes.frame_errors import FrameErrorRate, frame_error_rate
from codedfl.codes.graph import progressive_edge_growth
from codedfl.network import DelayModel, Draws
from codedfl.progress import Progress, silent
from codedfl.runs import execute
from codedfl.scenario import Scenario
from codedfl.studies.larger_supports import LENGTHS, larger_supports
from codedfl.studies.plan import predict, probe
from codedfl.studies.reproduce import readings
from codedfl.studies.reproduce.above_target import LongCurve, long_curves
from codedfl.studies.reproduce.experiment import Experiment, experiment
from codedfl.studies.reproduce.readings import CHANNELS
from codedfl.studies.reproduce.sealed import KnownCosts, Times, sealed_times
from codedfl.studies.tasks import StudyPart
from codedfl.task.shared import SharedProblem
from codedfl.training.timing import Band, band

ALPHAS = (2, 3, 4, 16, 25)
"""How many devices hold the data of each in CodedPaddedFL; the published one among them."""
_FER_SEED = 1


@dataclass(frozen=True, eq=False)
class SeedResult:
    """What one feature seed gives beside its run directories."""

    ridge_accuracy: float
    curves: dict[str, LongCurve]


@dataclass(frozen=True, eq=False)
class ReadingTimes:
    """When epochs end in all readings, by channel; who is active when.

    ``alone`` has the share of draws that end with a single active device, by supply and Delta.
    """

    ends: dict[str, readings.Times]
    curves: list[dict[str, Any]]
    alone: dict[str, dict[float, float]]


@dataclass(frozen=True, eq=False)
class OtherTimes:
    """Times of CodedPaddedFL, by channel and alpha, and of sealed schemes, by channel and scheme; transfer in hours."""

    padded: dict[str, dict[int, Times]]
    sealed: dict[str, dict[str, Times]]
    transfer: dict[str, Band]


@dataclass(frozen=True, eq=False)
class Codes:
    """The frame error rate of peeling, and what inactivation allows."""

    peeling: FrameErrorRate
    larger: list[dict[str, Any]]


def wanted(plan: Experiment, seed: int) -> dict[str, Scenario]:
    """Return what is trained for a feature seed, by label."""
    chosen = {"minibatch": plan.minibatch, **{setting.name: setting.scenario for setting in plan.settings}}
    chosen |= {case.label: case.scenario for case in plan.sealed if case.trained}
    changes = {"features.seed": seed, "training.stop_at_last_target": True, "timing.draws": plan.draws}
    return {label: scenario.with_settings(changes) for label, scenario in chosen.items()}


def place(scenario: Scenario) -> str:
    """Return the run directory of a scenario, in the folder of the experiment."""
    return f"runs/{scenario.scheme}-{scenario.id()}"


def all_tasks(plan: Experiment, out: Path, seeds: Sequence[int], *, quick: bool) -> list[StudyPart]:
    """Return the parts: one for each seed, then readings, other times, and codes."""
    tasks = []
    for seed in seeds:
        uses = tuple(place(scenario) for scenario in wanted(plan, seed).values())
        tasks.append(StudyPart(train_seed, (quick, seed), out, uses, records=(SeedResult, LongCurve)))
    tasks.append(StudyPart(time_readings, (quick,), records=(ReadingTimes,)))
    tasks.append(StudyPart(time_others, (quick,), records=(OtherTimes, Band)))
    return [*tasks, StudyPart(try_codes, (quick,), records=(Codes, FrameErrorRate))]


def train_seed(out: str, quick: bool, seed: int, progress: Progress = silent) -> SeedResult:
    """Train everything for a feature seed until the last target is reached, and continue past it."""
    plan, shared = experiment(quick=quick), SharedProblem(progress)
    runs = {
        label: execute(scenario, Path(out) / place(scenario), shared=shared, progress=progress)
        for label, scenario in wanted(plan, seed).items()
    }
    problem = shared.get(wanted(plan, seed)["minibatch"])()
    model = problem.ridge_solution().astype(problem.dtype)
    first = plan.settings[0].name
    curves = long_curves(problem, runs["minibatch"], {first: runs[first]})
    return SeedResult(float(problem.score(model[None]).accuracy[0]), curves)


def time_readings(quick: bool, progress: Progress = silent) -> ReadingTimes:
    """Return when epochs end in all readings, and who is active when."""
    plan = experiment(quick=quick)
    claimed, at_end = readings.claimed_cases(plan), readings.end_cases(plan)
    problem = readings.hollow_problem(plan)
    ends, found = readings.reading_times(plan, problem, {}, [*claimed, *at_end], progress)
    tables = [readings.curve_table(*each) for each in zip(claimed, found, strict=False)]
    return ReadingTimes(ends, tables, readings.alone_shares(dict(zip(at_end, found[len(claimed) :], strict=True))))


def time_others(quick: bool, progress: Progress = silent) -> OtherTimes:
    """Time CodedPaddedFL and sealed schemes on both channels."""
    plan = experiment(quick=quick)
    problem, epochs = readings.hollow_problem(plan), plan.minibatch.training.epochs
    found = OtherTimes({name: {} for name in CHANNELS}, {name: {} for name in CHANNELS}, {})
    alphas = (2, _alpha(plan.padded)) if quick else ALPHAS
    for number, alpha in enumerate(alphas):
        progress("CodedPaddedFL and sealed schemes", number, len(alphas) + 1)
        costs = probe(plan.padded.with_settings({"schemes.coded-padded.alpha": alpha}), problem)
        for channel in CHANNELS:
            scenario = plan.padded.with_settings({"links.d2d_channel": channel})
            found.padded[channel][alpha] = _rounded(predict(costs, scenario, epochs=epochs, draws=plan.draws))
            if alpha == _alpha(plan.padded):
                delays = DelayModel.create(scenario.fleet, scenario.links)
                draws = Draws(delays, seed=scenario.timing.seed, count=plan.draws)
                stages = [draws.stages(each).seconds for each in costs.probed.overlapping_after(0)]
                found.transfer[channel] = band(np.sum(stages, axis=0) / 3600)
    known: KnownCosts = {}
    for channel in CHANNELS:
        times = sealed_times(plan.sealed, problem, known, epochs=epochs, draws=plan.draws, channel=channel)
        found.sealed[channel] = {name: _rounded(each) for name, each in times.items()}
    progress("CodedPaddedFL and sealed schemes", len(alphas) + 1, len(alphas) + 1)
    return found


def _alpha(scenario: Scenario) -> int:
    alpha: int = scenario.to_table()["schemes"]["coded-padded"]["alpha"]
    return alpha


def _rounded(times: Float[np.ndarray, "draws epochs"]) -> Times:
    return times.astype(np.float32)


def try_codes(quick: bool, progress: Progress = silent) -> Codes:
    """Measure how often peeling fails at the paper's sizes, and how large erasure sets may be with inactivation."""
    plan = experiment(quick=quick)
    options = plan.settings[0].options
    n, k = options["n"], plan.settings[0].scenario.features.dimension
    graph = progressive_edge_growth(n, n - k, options["degree"], seed=_FER_SEED)
    report = lambda done, failures: progress("frame error rate", done, plan.trials)  # noqa: E731
    rate = frame_error_rate(graph, options["t_tot"], trials=plan.trials, seed=_FER_SEED, progress=report)
    larger = larger_supports(LENGTHS[:3] if quick else LENGTHS, trials=500 if quick else 20_000, progress=progress)
    return Codes(rate, larger)
