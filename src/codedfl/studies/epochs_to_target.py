"""How many epochs a target takes: given, read from finished runs, or assumed from measurements on MNIST."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, final

import numpy as np

from codedfl import schemes
from codedfl.errors import UsageError
from codedfl.runs import load
from codedfl.scenario import Scenario
from codedfl.schemes import Scheme
from codedfl.training.timing import first_epoch


@dataclass(frozen=True)
class Epochs:
    """A number of epochs, and where it comes from."""

    count: int
    source: str


_MOST = 1_000_000
"""Upper bound; that of a scenario."""
_MEASURED = (
    "assumed: {} for three feature seeds on MNIST to 95% (codedfl run paper --set scheme=conventional "
    "--set training.solver={}, docs/solvers.md); other data and targets take other numbers"
)

ASSUMED: Mapping[str, Epochs] = {
    "gradient-descent": Epochs(564, _MEASURED.format("the middle one of 522, 564 and 866", "gradient-descent")),
    "conjugate-gradients": Epochs(
        7,
        "assumed: 6 in clear, 6 or 7 with sealed residues for five feature seeds on MNIST to 95% "
        "(python -m benchmarks sealed_schemes); other data and targets take other numbers",
    ),
    "closed-form": Epochs(1, "by its nature"),
}
"""Epochs by solver where nothing better is known. Gradients of parts of the data are taken to need as many."""


_TASK = (
    *("data.source", "data.target", "features.kind", "features.dimension", "features.gamma", "task.ridge"),
    "training.start",
)
"""What makes two scenarios the same task; seeds, fleets and schemes may differ."""
_RATE = ("training.learning_rate", "training.decay", "training.decay_epochs")


@dataclass(frozen=True)
class Finished:
    """A finished run: how soon it reached the target."""

    path: Path
    scheme: str
    solver: str
    epochs: int
    exact: bool
    """Whether its scheme gave the gradient of all data in every epoch."""


def finished(path: Path, scenario: Scenario) -> Finished:
    """Read off a run directory when the scenario's last target was reached; refuse a run of another task."""
    run = load(path)
    if not scenario.training.targets:
        raise UsageError("--from-run needs a target; add --set training.targets=[0.9]")
    descending = run.scenario.training.solver == "gradient-descent"
    for name in _TASK + (_RATE if descending else ()):
        own, other = map(attrgetter(name), (scenario, run.scenario))
        if own != other:
            raise UsageError(
                f"--from-run '{path}' is of another task: its {name} is {other!r}, that of the scenario {own!r}; "
                "give a run of the same task"
            )
    target = scenario.training.targets[-1]
    epoch = first_epoch(run.epochs["accuracy"], target)
    if epoch is None:
        raise UsageError(
            f"--from-run '{path}' never reached {target} in {run.summary['epochs']} epochs; lower training.targets or "
            "train longer"
        )
    exact = schemes.nominal(run.scenario).exact
    return Finished(path, run.scenario.scheme, run.scenario.training.solver, epoch, exact)


@final
@dataclass(frozen=True)
class EpochsToTarget:
    """What is known of the number of epochs: given by solver, else finished runs, else what is assumed."""

    told: Mapping[str, int] = field(default_factory=dict)
    runs: Sequence[Finished] = ()

    def __post_init__(self) -> None:
        for solver, count in self.told.items():
            if solver not in ASSUMED:
                raise UsageError(f"--epochs '{solver}={count}' must name one of the solvers {', '.join(ASSUMED)}")
            if not 1 <= count <= _MOST:
                raise UsageError(f"--epochs '{solver}={count}' must be between 1 and {_MOST}")

    def of(self, scheme: Scheme[Any], solver: str) -> Epochs:
        """Return the epochs of a scheme with a solver.

        Runs of the same scheme count, else those of any scheme that gives the gradient of all data, because these take
        the same steps; of several runs the mean, rounded up.
        """
        if solver in self.told:
            return Epochs(self.told[solver], "told by --epochs")
        alike = [run for run in self.runs if run.solver == solver]
        own = [run for run in alike if run.scheme == scheme.name]
        chosen = own or [run for run in alike if run.exact]
        if not chosen:
            return ASSUMED[solver]
        mean = math.ceil(np.mean([run.epochs for run in chosen]))
        return Epochs(mean, "finished runs: " + ", ".join(f"{run.path} ({run.scheme}, {run.epochs})" for run in chosen))
