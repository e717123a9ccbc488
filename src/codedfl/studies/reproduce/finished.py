"""A finished experiment, read from its folder: nothing is trained."""

import json
from pathlib import Path

from codedfl.errors import RunDirectoryError
from codedfl.runs import Run, load
from codedfl.storage import DAMAGED
from codedfl.studies.reproduce.experiment import experiment
from codedfl.studies.reproduce.readings import CHANNELS, hollow_problem
from codedfl.studies.reproduce.sealed import sealed_figure, sealed_times
from codedfl.studies.reproduce.study import Reproduction
from codedfl.studies.reproduce.tasks import place, wanted


def load_reproduction(out: Path, *, sealed: bool = True) -> Reproduction:
    """Read the folder of ``reproduce``; the times of sealed schemes, which it does not keep, are computed again.

    Without ``sealed`` they are left out, which is much quicker.
    """
    try:
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        names = {label: [str(name) for name in entry["runs"]] for label, entry in summary["schemes"].items()}
        seeds, quick = list(summary["feature_seeds"]), bool(summary["quick"])
    except DAMAGED:
        raise RunDirectoryError(f"the summary.json of '{out}' is damaged; run codedfl reproduce again") from None
    runs = {label: [_run(out, name) for name in own] for label, own in names.items()}
    if "minibatch" not in runs:
        raise RunDirectoryError(f"the summary.json of '{out}' has no runs of minibatch; run codedfl reproduce again")
    if not sealed:
        return Reproduction(summary, runs, {})
    plan = experiment(quick=quick)
    trained = [case.label for case in plan.sealed if case.trained]
    others = {label: [load(out / place(wanted(plan, seed)[label])) for seed in seeds] for label in trained}
    epochs = plan.minibatch.training.epochs
    times = sealed_times(plan.sealed, hollow_problem(plan), {}, epochs=epochs, draws=plan.draws, channel=CHANNELS[0])
    return Reproduction(summary, runs, sealed_figure(plan.sealed, {**runs, **others}, times, plan.settings[0].name))


def _run(out: Path, name: str) -> Run:
    """Load a run by its scenario id, which does not change when a preset does."""
    found = sorted((out / "runs").glob(f"*-{name}")) if name.isalnum() else []
    if not found:
        raise RunDirectoryError(f"'{out}' has no run of scenario {name}; run codedfl reproduce again")
    return load(found[0])
