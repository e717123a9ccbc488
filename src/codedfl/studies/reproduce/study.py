"""The paper's experiment: its figure, its table, its speed-ups, and each of its claims beside what is measured here.

Mini-batch FL and the paper's scheme are trained for real, encryption and decoding included, for several feature seeds;
its second setting, which learns the same model, for the first of them. Since the model does not depend on Delta, the
search for the best Delta replays the sharing policy on many timing draws, with the costs of the real arrays.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from codedfl import schemes
from codedfl.codes.bounds import least_overlap
from codedfl.codes.constant_weight import family
from codedfl.codes.frame_errors import frame_error_rate
from codedfl.codes.graph import progressive_edge_growth
from codedfl.network import DelayModel
from codedfl.progress import Progress
from codedfl.runs import Run, execute, target_name
from codedfl.scenario import Scenario, load
from codedfl.schemes.sharing.policy import SharingPolicy, Supply
from codedfl.storage import make_folder, write_json, write_text
from codedfl.studies.reproduce import claims
from codedfl.studies.reproduce.sealed import SealedCase, Times, sealed_cases, sealed_claims, sealed_times, speedup
from codedfl.studies.tables import to_csv
from codedfl.task import Problem
from codedfl.task.shared import SharedProblem
from codedfl.training.costs import SharedCosts, measure
from codedfl.training.timing import Band, Variant, epoch_ends, first_epoch

_FER_SEED = 1
_DELTAS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_SCALE = 40
"""On small data computing takes a fortieth of its time at the paper's size, and so do the Deltas."""
_KEPT = ("handovers", "gradient_error", "final_accuracy", "wall_seconds")
_SMALL = "a small scenario that shows the machinery; the claim is about the paper's size"
_SMALL_DELTA = f"{_SMALL}, where computing takes {_SCALE} times as long: the paper's Delta is tried as a fortieth"


@dataclass(frozen=True)
class Setting:
    """One of the paper's two settings: its scenario, what the paper claims, and which Deltas are tried."""

    level: int
    scenario: Scenario
    speedup: float
    delta: float
    """The best Delta at the paper's size, as the paper claims."""
    deltas: tuple[float, ...]

    @property
    def name(self) -> str:
        """The label of the setting in tables and figures."""
        return f"code-based, claimed {self.level} bit"

    @property
    def options(self) -> dict[str, Any]:
        """The options of its scheme; the Delta among them is the claimed one, in small if the scenario is."""
        options: dict[str, Any] = self.scenario.to_table()["schemes"]["code-based"]
        return options


@dataclass(frozen=True)
class Experiment:
    """What is run: everything at the paper's size, or the same in small."""

    minibatch: Scenario
    settings: tuple[Setting, ...]
    sealed: tuple[SealedCase, ...]
    draws: int
    trials: int


@dataclass(frozen=True, eq=False)
class Reproduction:
    """The contents of ``summary.json``, and the runs behind it by label: of the paper's schemes, and of sealed ones."""

    summary: dict[str, Any]
    runs: Mapping[str, Sequence[Run]]
    sealed: Mapping[str, Sequence[Run]]


def _experiment(quick: bool) -> Experiment:
    if not quick:
        chosen = Setting(92, load("paper-92"), 4.7, 3.0, _DELTAS), Setting(128, load("paper-128"), 4.0, 1.0, _DELTAS)
        return Experiment(load("paper"), chosen, sealed_cases(), draws=200, trials=150_000)
    small = load("paper-quick").with_settings({"training.epochs": 200, "timing.draws": 200})
    deltas = tuple(delta / _SCALE for delta in _DELTAS)
    wide = _small(small, {"t": 16, "M": 16, "delta": 3.0 / _SCALE, "supply": "once"})
    strong = _small(small, {"t": 32, "M": 4, "delta": 1.0 / _SCALE, "supply": "reissued"})
    chosen = (Setting(92, wide, 4.7, 3.0, deltas), Setting(128, strong, 4.0, 1.0, deltas))
    return Experiment(small, chosen, sealed_cases(small), draws=100, trials=20_000)


def _small(scenario: Scenario, options: Mapping[str, Any]) -> Scenario:
    changes = {f"schemes.code-based.{key}": value for key, value in options.items()}
    return scenario.with_settings({"scheme": "code-based", **changes})


def reproduce(out: Path, *, quick: bool, seeds: Sequence[int], progress: Progress) -> Reproduction:
    """Run everything; write ``summary.json`` and ``claims.csv``."""
    plan = _experiment(quick)
    make_folder(out)
    runs, costs, times, ridge = _train(plan, out, seeds, progress)
    mine = {name: entries for name, entries in runs.items() if name in ("minibatch", *(s.name for s in plan.settings))}
    sweep = _sweep(plan, mine, costs, progress)
    found = _claims(plan, mine, sweep, _frame_errors(plan, progress))
    further, sealed = sealed_claims(plan.sealed, runs, times, curve=plan.settings[0].name, paper=sweep[0].best)
    found += further
    if quick:
        found = [without_verdict(claim) for claim in found]
    summary: dict[str, Any] = {
        "scenario": plan.minibatch.name,
        "quick": quick,
        "feature_seeds": list(seeds),
        "timing_draws": plan.draws,
        "ridge_accuracy": ridge,
        "target": plan.minibatch.training.targets[-1],
        "schemes": {name: _measured(entries) for name, entries in mine.items()},
        "beyond": {name: _measured(entries)["time_to_accuracy"] for name, entries in sealed.items()},
        "delta_sweep": [entry.to_table() for entry in sweep],
        "table1": [_table1(setting) for setting in plan.settings],
        "claims": [dataclasses.asdict(claim) for claim in found],
    }
    write_text(out / "claims.csv", to_csv(summary["claims"]))
    write_json(out / "summary.json", summary)
    return Reproduction(summary, mine, sealed)


def without_verdict(claim: claims.Claim) -> claims.Claim:
    """Take the verdict off what depends on the size of the data."""
    if claim.name == "gradient-error":
        return claim
    reason = _SMALL_DELTA if claim.name.startswith("best-delta") else _SMALL
    return dataclasses.replace(claim, verdict=claims.NOT_JUDGED, reason=reason)


def _train(
    plan: Experiment, out: Path, seeds: Sequence[int], progress: Progress
) -> tuple[dict[str, list[Run]], dict[int, SharedCosts], dict[str, Times], list[float]]:
    """Train until the last target is reached: the second setting for the first feature seed, the others for all.

    Both settings learn the same model up to rounding, since both decode the full gradient; what differs is the time,
    which the search for the best Delta gives for every seed.
    """
    first, second = plan.settings
    wanted = {"minibatch": plan.minibatch, first.name: first.scenario, second.name: second.scenario}
    wanted |= {case.label: case.scenario for case in plan.sealed if case.trained}
    runs: dict[str, list[Run]] = {name: [] for name in wanted}
    shared = SharedProblem(progress)
    ridge = []
    for number, seed in enumerate(seeds):
        progress("feature seeds", number, len(seeds))
        changes = {"features.seed": seed, "training.stop_at_last_target": True, "timing.draws": plan.draws}
        for name, scenario in wanted.items():
            if number > 0 and name == second.name:
                runs[name].append(runs[first.name][-1])
                continue
            chosen = scenario.with_settings(changes)
            place = out / "runs" / f"{chosen.scheme}-{chosen.id()}"
            runs[name].append(execute(chosen, place, problem=shared.get(chosen), progress=progress))
        problem = shared.get(plan.minibatch.with_settings({"features.seed": seed}))()
        model = problem.ridge_solution().astype(problem.dtype)
        ridge.append(float(problem.score(model[None]).accuracy[0]))
        if number == 0:
            costs = {setting.level: _costs(setting.scenario, problem) for setting in plan.settings}
            times = sealed_times(plan.sealed, problem, epochs=plan.minibatch.training.epochs, draws=plan.draws)
        del problem  # the next one needs its memory
    progress("feature seeds", len(seeds), len(seeds))
    return runs, costs, times, ridge


def _costs(scenario: Scenario, problem: Problem) -> SharedCosts:
    scheme = schemes.create(scenario, problem)
    return measure(scheme, problem, first_offline=scenario.training.first_epoch_offline)


@dataclass(frozen=True)
class Sweep:
    """The speed-up of one setting and supply at every Delta; None where the target is not reached."""

    level: int
    supply: Supply
    deltas: tuple[float, ...]
    speedups: tuple[Band, ...] | None

    @property
    def best(self) -> Band | None:
        """The speed-up at the best Delta."""
        return max(self.speedups, key=lambda entry: entry.mean) if self.speedups else None

    def to_table(self) -> dict[str, Any]:
        """Return plain values."""
        rows = zip(self.deltas, self.speedups or (), strict=False)
        points = [{"delta": delta, "speedup": b.mean, "low": b.low, "high": b.high} for delta, b in rows]
        return {"level": self.level, "supply": self.supply, "points": points}


def _sweep(
    plan: Experiment, runs: Mapping[str, list[Run]], costs: Mapping[int, SharedCosts], progress: Progress
) -> list[Sweep]:
    """Try every Delta with each support used once and with supports issued again in every epoch."""
    supplies: tuple[Supply, ...] = ("once", "reissued")
    keys = [(setting, supply) for setting in plan.settings for supply in supplies]
    variants = [
        Variant(costs[setting.level], partial(_policy, setting, supply, delta))
        for setting, supply in keys
        for delta in setting.deltas
    ]
    scenario = plan.minibatch
    ends = epoch_ends(
        variants,
        DelayModel.create(scenario.fleet, scenario.links),
        epochs=max(run.summary["epochs"] for entries in runs.values() for run in entries),
        seed=scenario.timing.seed,
        draws=plan.draws,
        progress=lambda done, total: progress("searching the best Delta", done, total),
    )
    results = []
    for setting, supply in keys:
        mine, ends = ends[: len(setting.deltas)], ends[len(setting.deltas) :]
        found = [speedup(runs["minibatch"], runs[setting.name], times) for times in mine]
        if supply == setting.options["supply"]:
            _retime(runs[setting.name], mine[setting.deltas.index(setting.options["delta"])])
        reached = tuple(entry for entry in found if entry is not None)
        results.append(Sweep(setting.level, supply, setting.deltas, reached if len(reached) == len(found) else None))
    return results


def _retime(entries: list[Run], times: Float[np.ndarray, "draws epochs"]) -> None:
    """Give every run but the first, which was trained in this setting, the times of this setting."""
    for number, run in enumerate(entries[1:], start=1):
        entries[number] = dataclasses.replace(run, timings=times[:, : run.timings.shape[1]])


def _policy(setting: Setting, supply: Supply, delta: float) -> SharingPolicy:
    supports: int = setting.options["M"]
    return SharingPolicy(devices=setting.scenario.fleet.size, supports=supports, delta=delta, supply=supply)


def _frame_errors(plan: Experiment, progress: Progress) -> Any:
    options = plan.settings[0].options
    n, k = options["n"], plan.settings[0].scenario.features.dimension
    graph = progressive_edge_growth(n, n - k, options["degree"], seed=_FER_SEED)
    report = lambda done, failures: progress("frame error rate", done, plan.trials)  # noqa: E731
    return frame_error_rate(graph, options["t_tot"], trials=plan.trials, seed=_FER_SEED, progress=report)


def _claims(plan: Experiment, runs: Mapping[str, list[Run]], sweeps: list[Sweep], rate: Any) -> list[claims.Claim]:
    once_92, _, once_128, reissued_128 = sweeps
    wide, strong = plan.settings
    once, reissued = "best Delta, each support used once", "best Delta, all supports issued again in every epoch"
    few = (
        f"{once}: only M = 4 of the 15 slow devices can ever hand over, so every epoch waits for the others, who now "
        "multiply encoded data"
    )
    result = [
        claims.speedup("speedup-92", wide.speedup, once_92.best, once),
        claims.speedup("speedup-128", strong.speedup, reissued_128.best, reissued),
        claims.speedup("speedup-128-once", strong.speedup, once_128.best, few),
    ]
    for setting, sweep in ((wide, once_92), (strong, reissued_128)):
        if sweep.speedups:
            values = [entry.mean for entry in sweep.speedups]
            tried = claims.best_delta(f"best-delta-{setting.level}", setting.options["delta"], setting.deltas, values)
            result.append(dataclasses.replace(tried, claimed=setting.delta))
    result += [_security_level(setting) for setting in plan.settings]
    result.append(claims.frame_errors(1.33e-5, rate))
    errors = [run.summary["gradient_error"] for name, entries in runs.items() for run in entries if name != "minibatch"]
    result.append(claims.gradient_error(max(errors), 1e-4))
    for setting in plan.settings:
        sizes = setting.options["t_tot"], setting.options["t"], setting.options["M"]
        found, least = family(*sizes).overlap, least_overlap(*sizes)
        result.append(claims.overlap(f"support-overlap-{setting.level}", *sizes, found, least))
    return result


def _security_level(setting: Setting) -> claims.Claim:
    options, k = setting.options, setting.scenario.features.dimension
    name = f"security-level-{setting.level}"
    return claims.security_level(name, setting.level, options["n"], k, options["t"], options["beta"])


def _measured(entries: Sequence[Run]) -> dict[str, Any]:
    targets = {target_name(target): target for target in entries[0].scenario.training.targets}
    return {
        "epochs_to_accuracy": {
            name: [first_epoch(run.epochs["accuracy"], target) for run in entries] for name, target in targets.items()
        },
        "time_to_accuracy": {name: [_mean_time(run, target) for run in entries] for name, target in targets.items()},
        "seconds_per_epoch": float(np.mean([run.timings[:, -1].mean() / run.timings.shape[1] for run in entries])),
        "runs": [run.summary["scenario_id"] for run in entries],
        **{key: [run.summary[key] for run in entries] for key in _KEPT},
    }


def _mean_time(run: Run, target: float) -> float | None:
    seconds = run.seconds_to(target)
    return None if seconds is None else float(seconds.mean(dtype=np.float64))


def _table1(setting: Setting) -> dict[str, Any]:
    options, level = setting.options, _security_level(setting)
    shown = {name: options[name] for name in ("n", "beta", "t_tot", "t", "M")}
    known = {"log2_q": 32, "k": setting.scenario.features.dimension, **shown}
    return {**known, "distance": options["t"] - options["beta"], "claimed": level.claimed, "formula": level.measured}
