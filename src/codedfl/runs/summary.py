"""The contents of ``summary.json`` and ``epochs.parquet``."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from codedfl.runs.backend import RunBackend
from codedfl.runs.scoring import HELD_OUT, TEST_SET, Scoring
from codedfl.runs.sums import leakage_table
from codedfl.schemes.private import privacy_entries
from codedfl.task.objective import Objective
from codedfl.training import COLUMNS, State
from codedfl.training.checking import lie_words
from codedfl.training.costs import LINKS, mean_and_largest, spent_in
from codedfl.training.timing import Band, band, time_to

Timed = tuple[Float[np.ndarray, "epochs"], Float[np.ndarray, "draws epochs"]]
"""The accuracy of every epoch of a run, and the epoch's end in each draw."""


def target_name(target: float) -> str:
    """Return the key of a target accuracy in summaries."""
    return repr(target)


def tabulate(state: State, timings: list[Float[np.ndarray, "draws epochs"]]) -> dict[str, Any]:
    """Return the columns of ``epochs.parquet``."""
    columns: dict[str, Any] = {name: np.array(state.history.columns[name]) for name in COLUMNS}
    shortest = min(seconds.shape[1] for seconds in timings)
    together = np.concatenate([seconds[:, :shortest] for seconds in timings])
    bands = [band(together[:, epoch]) for epoch in range(shortest)]
    bands += [Band(math.nan, math.nan, math.nan)] * (len(columns["epoch"]) - shortest)
    return columns | {f"time_{name}": [getattr(each, name) for each in bands] for name in ("mean", "low", "high")}


def times_to_targets(
    targets: Sequence[float], runs: Sequence[Timed]
) -> tuple[dict[str, float | None], dict[str, list[float | None] | None]]:
    """Return the mean time to each target and its 95% band over all runs; None if it is never reached."""
    means: dict[str, float | None] = {}
    bands: dict[str, list[float | None] | None] = {}
    for target in targets:
        times = [time_to(accuracy, seconds, target) for accuracy, seconds in runs]
        reached = [seconds for seconds in times if seconds is not None]
        found = band(np.concatenate(reached)) if len(reached) == len(times) else None
        means[target_name(target)] = found.mean if found else None
        bands[target_name(target)] = [_finite(found.low), _finite(found.high)] if found else None
    return means, bands


def final_score(summary: Mapping[str, Any]) -> float | None:
    """Return the final accuracy of a classification or R² of a regression; None if it is not known."""
    accuracy = summary.get("final_accuracy")
    return summary.get("final_r2") if accuracy is None else accuracy


def metric_name(summary: Mapping[str, Any]) -> str:
    """Return the metric of a summary in words."""
    return "accuracy" if summary["metric"] == "accuracy" else "R²"


def _scores(state: State, objective: Objective, scoring: Scoring | None) -> dict[str, Any]:
    """Return the scores on the test set, each under its own name; None what does not apply or is not known.

    Without a test set, the final ones are those on the rows that devices hold out.
    """
    scores = state.history.columns["accuracy"]
    metric = "accuracy" if objective.kind == "classification" else "r2"
    best = max((value for value in scores if math.isfinite(value)), default=None)
    found = {f"final_{metric}": _finite(scores[-1]), f"best_{metric}": best, "metric": metric}
    known: dict[str, Any] = {"metrics": None, "scored_on": None, "remark": None}
    classes, held_out = objective.described.classes if objective.described else (), None
    if scoring is not None:
        held_out = None if scoring.counts is None else scoring.counts.metrics(classes)
        rows = 0 if scoring.counts is None else scoring.counts.rows
        known |= {"scoring": {"rows": rows, "metrics": held_out, **scoring.costs}, "remark": scoring.remark}
    if objective.test is not None:
        counted = objective.test.counts(objective.whole(state.model))
        known |= {"metrics": counted.metrics(classes), "scored_on": TEST_SET, "remark": counted.remark()}
    elif scoring is not None and scoring.counts is not None and held_out is not None:
        found[f"final_{metric}"] = held_out[metric]
        known |= {"metrics": held_out, "scored_on": HELD_OUT, "remark": scoring.counts.remark(HELD_OUT)}
    return dict.fromkeys(("final_accuracy", "best_accuracy", "final_r2", "best_r2")) | found | known


def summarise(backend: RunBackend, state: State, runs: list[Timed], scoring: Scoring | None) -> dict[str, Any]:
    """Return the contents of ``summary.json``; unknown values are None."""
    scenario, scheme = backend.scenario, backend.scheme
    columns = state.history.columns
    means, bands = times_to_targets(scenario.training.targets, runs)
    spent = spent_in(state.history, scenario.fleet.size)
    return {
        "scenario": scenario.name,
        "scheme": scenario.scheme,
        "epochs": state.epoch,
        **_scores(state, backend.objective, scoring),
        "time_to_accuracy": means,
        "time_to_accuracy_band": bands,
        "timing_draws": sum(len(seconds) for _, seconds in runs),
        "seconds_per_epoch": float(np.mean([seconds[:, -1].mean() / seconds.shape[1] for _, seconds in runs])),
        "bits_sent": {kind: int(sum(columns[f"{kind}_bits"])) for kind in LINKS},
        "device_macs": int(sum(columns["device_macs"])),
        "bits_per_device": {link: mean_and_largest(spent[link]) for link in LINKS},
        "macs_per_device": mean_and_largest(spent["macs"]),
        "server_macs": int(sum(columns["server_macs"])),
        "decode_failures": scheme.decode_failures,
        "gradient_error": _largest(columns["gradient_error"]),
        "gradient_bound": _largest(columns["gradient_bound"]),
        "handovers": len(state.history.handovers),
        **_honesty(state),
        "survives_losses": scheme.survives_losses,
        "survives_losses_left": int(columns["losses_left"][-1]),
        "verdict": scheme.verdict,
        "leakage": leakage_table(backend.given, scheme),
        **privacy_entries(scheme.public.release),
        **backend.facts(state),
    }


def _honesty(state: State) -> dict[str, Any]:
    """Return who replied wrong numbers and in which epochs, how many were computed again, and how many were checked."""
    found: dict[int, dict[str, Any]] = {}
    for lie in state.lies:
        entry = found.setdefault(lie.device, {"device": lie.device, "epochs": [], "how": lie_words(lie)})
        entry["epochs"].append(lie.epoch)
    checked = len(state.checked)
    counts = {"spoilt_epochs": state.spoilt, "checked_epochs": checked, "unchecked_epochs": state.epoch - checked}
    return {"liars": list(found.values()), **counts}


def _largest(values: Sequence[float]) -> float | None:
    return max((value for value in values if not math.isnan(value)), default=None)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
