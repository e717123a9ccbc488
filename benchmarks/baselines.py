"""Schemes that do not wait for everyone, at the paper's size, on data dealt at random and sorted by label.

One timing draw; finished runs are kept in out/bench/baselines-runs and not run again. Before that, which steps of
asynchronous updates are stable, on the digits of paper-quick.
"""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import show
from codedfl.errors import TrainingError
from codedfl.progress import silent
from codedfl.runs import Run, execute, target_name
from codedfl.scenario import Scenario, load
from codedfl.task import Problem
from codedfl.task.shared import SharedProblem

EPOCHS = {
    "iid": {"conventional": 1000, "drop-slowest": 600, "deadline": 600, "asynchronous": 1200},
    "shards": {"drop-slowest": 300, "deadline": 300, "asynchronous": 1200},
}
"""How long each is trained; an update of asynchronous training takes few replies and little time.

The sum over all data is the same whoever holds what, so that conventional training does not mind sorted labels.
"""
COMPARED = 300
"""The epoch at which accuracies are compared."""
GROUPS = {"0-3": range(4), "4-5": range(4, 6), "6-7": range(6, 8), "8-9": range(8, 10)}
"""Sorted by label, these lie with the ten fastest devices, then with five slower, five slower and the five slowest.

25 devices for ten labels: a boundary between devices is up to half a label off that between labels.
"""
BUFFERS = (1, 3, 5, 10, 20, 25)
STEPS = (0.25, 0.5, 0.75, 1.0, 1.25)
OUT = Path("out/bench/baselines-runs")


def main() -> dict[str, Any]:
    """Try steps, then train every scheme on both kinds of data."""
    shared = SharedProblem(silent)
    results: dict[str, Any] = {"steps": {kind: _steps(kind, shared) for kind in EPOCHS}}
    for kind, trained in EPOCHS.items():
        for name, epochs in trained.items():
            scenario = _scenario("paper", kind, {"scheme": name, "training.epochs": epochs})
            prepare = shared.get(scenario)
            run = execute(scenario, OUT / f"{name}-{kind}-{scenario.id()}", problem=prepare)
            results[f"{name}, {kind}"] = found = _found(run, scenario, prepare())
            _show(f"{name}, {kind}", found)
    return results


def _scenario(preset: str, kind: str, changes: dict[str, Any]) -> Scenario:
    common = {"partition.kind": kind, "partition.shards_per_device": 1, "timing.repeats": 1, "timing.draws": 2}
    return load(preset).with_settings({**common, **changes})


def _steps(kind: str, shared: SharedProblem) -> dict[str, Any]:
    """Return the last loss of asynchronous updates for buffers and steps, None where they diverge."""
    stable = shared.get(_scenario("paper-quick", kind, {}))().largest_stable_rate()
    show(f"steps, {kind}: learning rate below which gradient descent is stable", stable)
    found: dict[str, Any] = {"stable_rate": stable}
    for buffer in BUFFERS:
        for step in STEPS:
            changes = {"scheme": "asynchronous", "schemes.asynchronous": {"buffer": buffer, "step": step}}
            scenario = _scenario("paper-quick", kind, changes)
            try:
                run = execute(scenario, OUT / f"steps-{scenario.id()}", problem=shared.get(scenario))
                loss = float(run.epochs["loss"][-1])
            except TrainingError:
                loss = float("nan")
            show(f"steps, {kind}: K = {buffer}, step {step}: loss after 400 epochs", loss)
            found[f"{buffer}, {step}"] = None if np.isnan(loss) else loss
    return found


def _found(run: Run, scenario: Scenario, problem: Problem) -> dict[str, Any]:
    accuracy, time = run.epochs["accuracy"], run.epochs["time"]
    reached = {target: np.flatnonzero(accuracy >= target) for target in scenario.training.targets}
    with np.load(run.path / "model.npz") as arrays:
        right = np.argmax(problem.x_test @ arrays["theta"], axis=1) == problem.y_test
    return {
        "accuracy": {epoch: float(accuracy[epoch - 1]) for epoch in (COMPARED, len(accuracy))},
        "seconds_per_epoch": float(time[-1] / len(time)),
        "replies": float(np.mean(run.epochs["replies"][1:])),
        "seconds_to": {target_name(t): float(time[at[0]]) if len(at) else None for t, at in reached.items()},
        "epochs_to": {target_name(t): int(at[0]) + 1 if len(at) else None for t, at in reached.items()},
        "recall": {group: float(right[np.isin(problem.y_test, list(of))].mean()) for group, of in GROUPS.items()},
        "wall_seconds": run.summary["wall_seconds"],
    }


def _show(label: str, found: dict[str, Any]) -> None:
    for epoch, accuracy in found["accuracy"].items():
        show(f"{label}: accuracy after {epoch} epochs", accuracy)
    show(f"{label}: seconds an epoch, {found['replies']:.1f} replies", found["seconds_per_epoch"], unit="s")
    for target, seconds in found["seconds_to"].items():
        words = f"{label}: to {target}, epoch {found['epochs_to'][target]}"
        show(words, float("nan") if seconds is None else seconds, unit="s")
    for group, recall in found["recall"].items():
        show(f"{label}: labels {group} recognised at the end", recall)


if __name__ == "__main__":
    main()
