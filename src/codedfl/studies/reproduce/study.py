"""The whole experiment: run its parts, put every claim beside its measurement, write the summary."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from codedfl.progress import Progress
from codedfl.runs import Run, target_name
from codedfl.runs import load as load_run
from codedfl.storage import make_folder, write_json, write_text
from codedfl.studies.processes import Task, in_processes
from codedfl.studies.reproduce import claims
from codedfl.studies.reproduce.experiment import Experiment, Setting, experiment
from codedfl.studies.reproduce.readings import curves, hollow_problem, readings_table, timed_readings
from codedfl.studies.reproduce.rows import Evidence, padded_table, security_level, support_rows, timing_rows
from codedfl.studies.reproduce.sealed import sealed_claims
from codedfl.studies.reproduce.tasks import CHANNELS, place, time_others, time_readings, train_seed, try_codes, wanted
from codedfl.studies.tables import to_csv
from codedfl.training.curves import bands
from codedfl.training.timing import first_epoch

_KEPT = ("handovers", "gradient_error", "final_accuracy", "wall_seconds")


@dataclass(frozen=True, eq=False)
class Reproduction:
    """The contents of ``summary.json``, and the runs behind it by label: of the paper's schemes, and of sealed ones."""

    summary: dict[str, Any]
    runs: Mapping[str, Sequence[Run]]
    sealed: Mapping[str, Sequence[Run]]


def reproduce(
    out: Path, *, quick: bool, seeds: Sequence[int], progress: Progress, workers: int | None = None
) -> Reproduction:
    """Run everything; write ``summary.json`` and ``claims.csv``. In small, all is run in this process."""
    plan = experiment(quick=quick)
    make_folder(out)
    tasks: list[Task] = [(train_seed, (quick, str(out), seed)) for seed in seeds]
    tasks += [(time_readings, (quick, channel)) for channel in CHANNELS]
    tasks += [(time_others, (quick,)), (try_codes, (quick,))]
    if quick or workers == 1:
        results = [function(*arguments, progress) for function, arguments in tasks]
    else:
        results = in_processes(tasks, workers, lambda done, total: progress("parts of the experiment", done, total))
    trained, (parallel, shared, others, codes) = results[: len(seeds)], results[len(seeds) :]
    runs = _runs(plan, out, seeds)
    timed = timed_readings(plan, runs, dict(zip(CHANNELS, (parallel, shared), strict=True)))
    problem = hollow_problem(plan)
    measured = Evidence(plan, runs, timed, trained, others, codes, problem)
    found = [*timing_rows(measured), *support_rows(measured)]
    sealed: dict[str, list[Run]] = {}
    for channel in CHANNELS:
        own = claims.PAPER_LINKS[channel]
        best = timed[92, dataclasses.replace(plan.settings[0].reading, channel=channel)].best
        rows, figure = sealed_claims(plan.sealed, runs, others.sealed[channel], plan.settings[0].name, best, own)
        found += [dataclasses.replace(row, name=row.name + ("-shared" if channel == "shared" else "")) for row in rows]
        sealed = sealed or figure
    if quick:
        found = [claims.without_verdict(claim) for claim in found]
    mine = {label: entries for label, entries in runs.items() if label in ("minibatch", *_labels(plan))}
    summary: dict[str, Any] = {
        "scenario": plan.minibatch.name,
        "quick": quick,
        "feature_seeds": list(seeds),
        "timing_draws": plan.draws,
        "ridge_accuracy": [result.ridge_accuracy for result in trained],
        "target": plan.minibatch.training.targets[-1],
        "schemes": {name: _measured(entries) for name, entries in mine.items()},
        "beyond": {name: _measured(entries)["time_to_accuracy"] for name, entries in sealed.items()},
        "delta_sweep": [
            timed[setting.level, dataclasses.replace(setting.reading, supply=supply)].to_table()
            for setting in plan.settings
            for supply in ("once", "reissued")
        ],
        "readings": readings_table(timed),
        "coded_padded": padded_table(measured),
        "active_devices": [_curve(plan, setting, supply, problem) for setting in plan.settings for supply in _SUPPLIES],
        "larger_supports": codes.larger,
        "table1": [_table1(setting) for setting in plan.settings],
        "claims": [dataclasses.asdict(claim) for claim in found],
    }
    write_text(out / "claims.csv", to_csv(summary["claims"]))
    write_text(out / "readings.csv", to_csv(summary["readings"]))
    write_json(out / "summary.json", summary)
    return Reproduction(summary, mine, sealed)


_SUPPLIES = ("once", "reissued")


def _labels(plan: Experiment) -> tuple[str, ...]:
    return tuple(setting.name for setting in plan.settings)


def _runs(plan: Experiment, out: Path, seeds: Sequence[int]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for seed in seeds:
        for label, scenario in wanted(plan, seed).items():
            found.setdefault(label, []).append(load_run(place(out, scenario)))
    return found


def _curve(plan: Experiment, setting: Setting, supply: str, problem: Any) -> dict[str, Any]:
    """Return active devices and supports left by epoch at the claimed Delta, with bands, until nothing changes."""
    found = curves(plan, setting, setting.options["delta"], problem, supply=supply)
    columns = {"active": bands(found.active), "supports": bands(found.supports)}
    changes = np.flatnonzero(np.any(np.diff(found.active, axis=1) != 0, axis=0))
    last = min(found.active.shape[1], int(changes[-1]) + 3 if len(changes) else 2)
    table = {
        f"{name}{part}": [getattr(each, kind) for each in values[:last]]
        for name, values in columns.items()
        for part, kind in (("", "mean"), ("_low", "low"), ("_high", "high"))
    }
    return {"level": setting.level, "supply": supply, "delta": setting.options["delta"], **table}


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
    """Return a row of Table I: M of the text, which we use, beside M of the table."""
    options, level = setting.options, security_level(setting)
    shown = {name: options[name] for name in ("n", "beta", "t_tot", "t")}
    known = {"log2_q": 32, "k": setting.scenario.features.dimension, **shown}
    supports = {"M": options["M"], "M_in_table": setting.printed_supports}
    distance = options["t"] - options["beta"]
    return {**known, "distance": distance, **supports, "claimed": level.claimed, "formula": level.measured}
