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
from codedfl.codes import family, frame_error_rate, least_overlap, progressive_edge_growth
from codedfl.errors import MissingExtraError
from codedfl.network import DelayModel
from codedfl.progress import Progress
from codedfl.report import figures
from codedfl.report.pages import figure_html, page, table_html, table_markdown
from codedfl.runs import Run, execute, target_name
from codedfl.scenario import Scenario, load
from codedfl.schemes.sharing.policy import SharingPolicy, Supply
from codedfl.storage import make_folder, write_json, write_text
from codedfl.studies import claims
from codedfl.studies.compare import SharedProblem, to_csv
from codedfl.studies.sealed_study import Beyond, Entry, speedup, wanted
from codedfl.task import Evaluator, Problem
from codedfl.training.shared_timing import SharedCosts, Variant, measure, shared_seconds
from codedfl.training.timing import Band, first_epoch

__all__ = ["reproduce"]

_FER_SEED = 1
_HEADER = ("claim", "paper", "measured", "low", "high", "verdict", "reason")


@dataclass(frozen=True)
class Setting:
    """One of the paper's two settings: its scenario, what the paper claims, and which Deltas are tried."""

    level: int
    scenario: Scenario
    speedup: float
    delta: float
    deltas: tuple[float, ...]


@dataclass(frozen=True)
class Plan:
    """What is run: everything at the paper's size, or the same in small."""

    minibatch: Scenario
    settings: tuple[Setting, ...]
    beyond: tuple[Entry, ...]
    draws: int
    trials: int


def _plan(quick: bool) -> Plan:
    if not quick:
        deltas = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
        chosen = (
            Setting(92, load("paper-92"), 4.7, 3.0, deltas),
            Setting(128, load("paper-128"), 4.0, 1.0, deltas),
        )
        return Plan(load("paper"), chosen, wanted(), draws=200, trials=150_000)
    small = load("paper-quick").with_settings({"training.epochs": 200, "timing.draws": 200})
    # computing takes a fortieth of its time at the paper's size, and so do the Deltas
    deltas = (0.0125, 0.025, 0.0375, 0.05, 0.075, 0.1, 0.15)
    wide = _small(small, {"t": 16, "M": 16, "delta": 0.075, "supply": "once"})
    strong = _small(small, {"t": 32, "M": 4, "delta": 0.025, "supply": "reissued"})
    chosen = (Setting(92, wide, 4.7, 0.075, deltas), Setting(128, strong, 4.0, 0.025, deltas))
    return Plan(small, chosen, wanted(small), draws=100, trials=20_000)


def _small(scenario: Scenario, options: Mapping[str, Any]) -> Scenario:
    changes = {f"schemes.code-based.{key}": value for key, value in options.items()}
    return scenario.with_settings({"scheme": "code-based", **changes})


def reproduce(out: Path, *, quick: bool, seeds: Sequence[int], progress: Progress) -> dict[str, Any]:
    """Run everything; write ``summary.json``, ``claims.csv``, the figures and ``index.html``; return the summary."""
    plan = _plan(quick)
    make_folder(out)
    beyond = Beyond(plan.beyond, plan.draws)
    runs, costs, ridge = _train(plan, beyond, out, seeds, progress)
    sweep = _sweep(plan, runs, costs, progress)
    rate = _frame_errors(plan, progress)
    found = _claims(plan, runs, sweep, rate)
    further, faster = beyond.results(runs["minibatch"], runs[_name(plan.settings[0])], sweep[0].best)
    found += further
    if quick:
        reason = "a small scenario that shows the machinery; the claim is about the paper's size"
        found = [claim.unjudged(reason) if claim.name != "gradient-error" else claim for claim in found]
    summary = {
        "scenario": plan.minibatch.name,
        "feature_seeds": list(seeds),
        "timing_draws": plan.draws,
        "ridge_accuracy": ridge,
        "target": plan.minibatch.training.targets[-1],
        "schemes": {name: _measured(entries) for name, entries in runs.items()},
        "beyond": {name: _measured(entries)["time_to_accuracy"] for name, entries in faster.items()},
        "delta_sweep": [entry.to_table() for entry in sweep],
        "table1": [_table1(setting) for setting in plan.settings],
        "claims": [claim.to_table() for claim in found],
    }
    _write(out, plan, summary, runs, faster)
    return summary


def _name(setting: Setting) -> str:
    return f"code-based, claimed {setting.level} bit"


def _train(
    plan: Plan, beyond: Beyond, out: Path, seeds: Sequence[int], progress: Progress
) -> tuple[dict[str, list[Run]], dict[int, SharedCosts], list[float]]:
    """Train until the last target is reached: all settings for the first feature seed, then the first setting only.

    Both settings learn the same model up to rounding, since both decode the full gradient; what differs is the time,
    which the search for the best Delta gives for every seed.
    """
    wanted = {"minibatch": plan.minibatch} | {_name(setting): setting.scenario for setting in plan.settings}
    known = _name(plan.settings[0])
    runs: dict[str, list[Run]] = {name: [] for name in wanted}
    costs: dict[int, SharedCosts] = {}
    shared = SharedProblem(progress)
    ridge = []
    for number, seed in enumerate(seeds):
        progress("feature seeds", number, len(seeds))
        changes = {"features.seed": seed, "training.stop_at_last_target": True, "timing.draws": plan.draws}
        for name, scenario in wanted.items():
            if number > 0 and name not in ("minibatch", known):
                runs[name].append(runs[known][-1])
                continue
            chosen = scenario.with_settings(changes)
            place = out / "runs" / f"{chosen.scheme}-{chosen.id()}"
            runs[name].append(execute(chosen, place, problem=shared.get(chosen), progress=progress))
        prepared = shared.get(plan.minibatch.with_settings({"features.seed": seed}))
        beyond.train(changes, out, prepared, progress)
        problem = prepared()
        ridge.append(_ridge_accuracy(problem))
        if not costs:
            costs = {setting.level: _costs(setting.scenario, problem) for setting in plan.settings}
            beyond.time(problem, plan.minibatch.training.epochs)
        del problem  # the next one needs its memory
    progress("feature seeds", len(seeds), len(seeds))
    return runs, costs, ridge


def _costs(scenario: Scenario, problem: Problem) -> SharedCosts:
    scheme = schemes.create(scenario, problem)
    if not isinstance(scheme, schemes.SharingScheme):
        raise TypeError(f"{scenario.scheme} does not share")
    return measure(scheme, problem, first_offline=scenario.training.first_epoch_offline)


def _ridge_accuracy(problem: Problem) -> float:
    model = problem.ridge_solution().astype(problem.dtype)
    return float(Evaluator(problem).score(model[None]).accuracy[0])


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
    plan: Plan, runs: Mapping[str, list[Run]], costs: Mapping[int, SharedCosts], progress: Progress
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
    ends = shared_seconds(
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
        found = [speedup(runs["minibatch"], runs[_name(setting)], times) for times in mine]
        options = setting.scenario.to_table()["schemes"]["code-based"]
        if supply == options["supply"]:
            _retime(runs[_name(setting)], mine[setting.deltas.index(options["delta"])])
        reached = tuple(entry for entry in found if entry is not None)
        complete = reached if len(reached) == len(found) else None
        results.append(Sweep(setting.level, supply, setting.deltas, complete))
    return results


def _retime(entries: list[Run], times: Float[np.ndarray, "draws epochs"]) -> None:
    """Give every run but the first, which was trained in this setting, the times of this setting."""
    for number, run in enumerate(entries[1:], start=1):
        entries[number] = dataclasses.replace(run, timings=times[:, : run.timings.shape[1]])


def _policy(setting: Setting, supply: Supply, delta: float) -> SharingPolicy:
    supports: int = setting.scenario.to_table()["schemes"]["code-based"]["M"]
    return SharingPolicy(devices=setting.scenario.fleet.size, supports=supports, delta=delta, supply=supply)


def _frame_errors(plan: Plan, progress: Progress) -> Any:
    options = plan.settings[0].scenario.to_table()["schemes"]["code-based"]
    n, k = options["n"], plan.settings[0].scenario.features.dimension
    graph = progressive_edge_growth(n, n - k, options["degree"], seed=_FER_SEED)
    return frame_error_rate(
        graph,
        options["t_tot"],
        trials=plan.trials,
        seed=_FER_SEED,
        progress=lambda done, failures: progress("frame error rate", done, plan.trials),
    )


def _claims(plan: Plan, runs: Mapping[str, Sequence[Run]], sweeps: Sequence[Sweep], rate: Any) -> list[claims.Claim]:
    by_key = {(entry.level, entry.supply): entry for entry in sweeps}
    wide, strong = plan.settings
    words = {"once": "each support used once", "reissued": "all supports issued again in every epoch"}
    result = [
        claims.speedup("speedup-92", wide.speedup, by_key[92, "once"].best, f"best Delta, {words['once']}"),
        claims.speedup("speedup-128", strong.speedup, by_key[128, "reissued"].best, f"best Delta, {words['reissued']}"),
        claims.speedup(
            "speedup-128-once",
            strong.speedup,
            by_key[128, "once"].best,
            f"best Delta, {words['once']}: only M = 4 of the 15 slow devices can ever hand over, so every epoch waits "
            "for the others, who now multiply encoded data",
        ),
    ]
    for setting, sweep in ((wide, by_key[92, "once"]), (strong, by_key[128, "reissued"])):
        found = sweep.speedups
        if found:
            values = [entry.mean for entry in found]
            result.append(claims.best_delta(f"best-delta-{setting.level}", setting.delta, setting.deltas, values))
    for setting in plan.settings:
        options = setting.scenario.to_table()["schemes"]["code-based"]
        sizes = options["n"], setting.scenario.features.dimension, options["t"], options["beta"]
        result.append(claims.security_level(f"security-level-{setting.level}", setting.level, *sizes))
    result.append(claims.frame_errors(1.33e-5, rate))
    errors = [run.summary["gradient_error"] for name, entries in runs.items() for run in entries if name != "minibatch"]
    result.append(claims.gradient_error(max(errors), 1e-4))
    for setting in plan.settings:
        options = setting.scenario.to_table()["schemes"]["code-based"]
        length, weight, count = options["t_tot"], options["t"], options["M"]
        found_family = family(length, weight, count)
        least = least_overlap(length, weight, count)
        name = f"support-overlap-{setting.level}"
        result.append(claims.overlap(name, length, weight, count, found_family.overlap, least))
    return result


def _measured(entries: Sequence[Run]) -> dict[str, Any]:
    targets = entries[0].scenario.training.targets
    times = {target_name(target): [run.seconds_to(target) for run in entries] for target in targets}
    return {
        "epochs_to_accuracy": {
            target_name(target): [first_epoch(run.epochs["accuracy"], target) for run in entries] for target in targets
        },
        "time_to_accuracy": {
            target: [None if seconds is None else float(seconds.mean(dtype=np.float64)) for seconds in found]
            for target, found in times.items()
        },
        "seconds_per_epoch": float(np.mean([run.timings[:, -1].mean() / run.timings.shape[1] for run in entries])),
        "runs": [run.summary["scenario_id"] for run in entries],
        "handovers": [run.summary["handovers"] for run in entries],
        "gradient_error": [run.summary["gradient_error"] for run in entries],
        "final_accuracy": [run.summary["final_accuracy"] for run in entries],
        "wall_seconds": [run.summary["wall_seconds"] for run in entries],
    }


def _table1(setting: Setting) -> dict[str, Any]:
    options = setting.scenario.to_table()["schemes"]["code-based"]
    k = setting.scenario.features.dimension
    claim = claims.security_level("", setting.level, options["n"], k, options["t"], options["beta"])
    shown = {name: options[name] for name in ("n", "beta", "t_tot", "t", "M")}
    distance = options["t"] - options["beta"]
    return {"log2_q": 32, "k": k, **shown, "distance": distance, "claimed": setting.level, "formula": claim.measured}


def _write(
    out: Path,
    plan: Plan,
    summary: dict[str, Any],
    runs: Mapping[str, Sequence[Run]],
    faster: Mapping[str, Sequence[Run]],
) -> None:
    curves = [figures.Curve(name, entries) for name, entries in runs.items()]
    all_curves = [*curves, *(figures.Curve(name, entries) for name, entries in faster.items())]
    targets = plan.minibatch.training.targets
    try:
        figures.save(figures.accuracy_against_time(curves, targets=targets), out / "figure1.png")
        figures.save(figures.speedup_against_delta(summary["delta_sweep"], targets[-1]), out / "delta.png")
        figures.save(figures.accuracy_against_time(all_curves, targets=targets), out / "beyond.png")
    except MissingExtraError as error:
        summary["figures"] = str(error)  # the numbers are worth writing without them
    write_text(out / "claims.csv", to_csv(summary["claims"]))
    write_text(out / "claims.md", table_markdown(_HEADER, [list(claim.values()) for claim in summary["claims"]]))
    write_text(out / "index.html", _page(out, summary))
    write_json(out / "summary.json", summary)


def _page(out: Path, summary: dict[str, Any]) -> str:
    rows = [list(claim.values()) for claim in summary["claims"]]
    table1 = summary["table1"]
    seeds = len(summary["feature_seeds"])
    caption = f"Mean and 95% band over {seeds} feature seeds and {summary['timing_draws']} timing draws."
    sections = [
        ("Every claim", table_html(_HEADER, rows)),
        ("Table I", table_html(list(table1[0]), [list(row.values()) for row in table1])),
    ]
    if "figures" not in summary:
        sections[1:1] = [
            ("Figure 1: accuracy against training time", figure_html(out / "figure1.svg", caption)),
            ("Which Delta is best", figure_html(out / "delta.svg", caption)),
            ("Beyond the paper: sealed sharing on the same fleet and links", figure_html(out / "beyond.svg", caption)),
        ]
    return page("Computational Code-Based Privacy in Coded Federated Learning: claimed and measured", sections)
