"""The whole experiment: run its parts, put every claim beside its measurement, write the summary."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from codedfl.progress import Progress
from codedfl.runs import Run, target_name
from codedfl.runs import load as load_run
from codedfl.storage import make_folder, refuse_file, write_json, write_text
from codedfl.studies.cluster import Cluster
from codedfl.studies.processes import in_processes, one_blas_thread
from codedfl.studies.reproduce import claims
from codedfl.studies.reproduce.experiment import Experiment, Setting, experiment
from codedfl.studies.reproduce.readings import CHANNELS, readings_table, timed_readings
from codedfl.studies.reproduce.rows import Evidence, padded_table, security_level, support_rows, timing_rows
from codedfl.studies.reproduce.sealed import sealed_claims
from codedfl.studies.reproduce.tasks import all_tasks, place, wanted
from codedfl.studies.tables import to_csv
from codedfl.training.timing import first_epoch

_KEPT = ("handovers", "gradient_error", "final_accuracy", "wall_seconds")


@dataclass(frozen=True, eq=False)
class Reproduction:
    """The contents of ``summary.json``, and the runs behind it by label: of the paper's schemes, and of sealed ones."""

    summary: dict[str, Any]
    runs: Mapping[str, Sequence[Run]]
    sealed: Mapping[str, Sequence[Run]]


def reproduce(
    out: Path,
    *,
    quick: bool,
    seeds: Sequence[int],
    progress: Progress,
    workers: int | None = None,
    cluster: Cluster | None = None,
) -> Reproduction:
    """Run everything; write ``summary.json`` and ``claims.csv``. In small, all is run in this process."""
    plan = experiment(quick=quick)
    refuse_file(out)
    tasks, report = all_tasks(plan, out, seeds, quick=quick), partial(progress, "parts of the experiment")
    if cluster is not None:
        results = cluster.run(tasks, report)
    elif quick or workers == 1:
        with one_blas_thread():  # as in processes, so that all have the same bits
            results = [task.carry_out(progress) for task in tasks]
    else:
        results = in_processes(tasks, workers, report)
    make_folder(out)
    trained, (readings, others, codes) = results[: len(seeds)], results[len(seeds) :]
    runs = _runs(plan, out, seeds)
    timed = timed_readings(plan, runs, readings.ends)
    measured = Evidence(plan, runs, timed, trained, others, codes, readings.alone)
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
        "active_devices": readings.curves,
        "larger_supports": codes.larger,
        "table1": [_table1(setting) for setting in plan.settings],
        "claims": [dataclasses.asdict(claim) for claim in found],
    }
    write_text(out / "claims.csv", to_csv(summary["claims"]))
    write_text(out / "readings.csv", to_csv(summary["readings"]))
    write_json(out / "summary.json", summary)
    return Reproduction(summary, mine, sealed)


def _labels(plan: Experiment) -> tuple[str, ...]:
    return tuple(setting.name for setting in plan.settings)


def _runs(plan: Experiment, out: Path, seeds: Sequence[int]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for seed in seeds:
        for label, scenario in wanted(plan, seed).items():
            found.setdefault(label, []).append(load_run(out / place(scenario)))
    return found


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
