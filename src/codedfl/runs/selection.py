"""The weight of the ridge term, chosen on rows that devices hold out.

For each fold, one training on the other rows gives the models of all weights (``codedfl.solvers.ridge_path``); devices
then sum the squared errors of all models on the rows of the fold. Nothing but sums over all devices is opened.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl.data import Preparation
from codedfl.errors import DataError
from codedfl.progress import Progress
from codedfl.scenario import Scenario
from codedfl.task.folds import RowChoice, best_weight
from codedfl.task.preparing import ERRORS, Prepared, Summer, SumRequest, prepare_fold

Fit = Callable[[RowChoice, Preparation, float], Float[np.ndarray, "l d c"]]
"""Trains the models of all weights on some rows, whose number is given, with columns prepared so."""


@final
@dataclass(frozen=True, eq=False)
class Selection:
    """The chosen weight, and the mean squared error of each on held-out rows."""

    ridge: float
    ridges: tuple[float, ...]
    errors: tuple[float, ...]
    folds: int

    def to_table(self) -> dict[str, Any]:
        """Return what a summary shows."""
        path = [{"ridge": ridge, "error": error} for ridge, error in zip(self.ridges, self.errors, strict=True)]
        return {"ridge": self.ridge, "folds": self.folds, "path": path}


def fold_count(scenario: Scenario) -> int:
    """Return into how many folds devices divide their rows."""
    share = scenario.task.held_out
    return scenario.task.folds if share is None else round(1 / share)


def choose_ridge(
    scenario: Scenario, summer: Summer, prepared: Prepared | None, fit: Fit, progress: Progress
) -> Selection:
    """Train on all folds but one, in turn, and choose the weight that predicts the held-out rows best."""
    folds = fold_count(scenario)
    judged = folds if scenario.task.held_out is None else 1
    whole = prepared or Prepared(Preparation.identity(*summer.shape), None, None)
    errors = []
    for fold in range(judged):
        progress("choosing task.ridge", fold, judged)
        training = RowChoice(fold, folds, scenario.partition.seed, held_out=False)
        preparation, rows = prepare_fold(scenario, summer, whole, training)
        models = fit(training, preparation, rows)
        request = SumRequest(ERRORS, {"models": models}, preparation, replace(training, held_out=True))
        *sums, count = summer.total(request)
        if np.rint(count) > 0:  # few rows may leave a fold empty
            errors.append(np.array(sums) / np.rint(count))
    if not errors:
        raise DataError("no device holds a row out, so that no weight can be chosen; give task.ridge a number")
    progress("choosing task.ridge", judged, judged)
    found = np.array(errors)
    best = scenario.ridges[best_weight(found)]
    return Selection(best, scenario.ridges, tuple(found.mean(axis=0).tolist()), len(errors))


def fold_scenario(scenario: Scenario, rows: float, counted: int) -> Scenario:
    """Return the scenario of a training on some rows of ``counted`` that schemes count.

    A device that has none of the rows counts as one row of zeros, which changes the mean over rows and nothing else.
    """
    ridges = [ridge * rows / counted for ridge in scenario.ridges]
    return scenario.with_settings({"task.ridge": ridges, "training.targets": []})
