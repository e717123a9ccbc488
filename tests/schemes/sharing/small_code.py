"""The paper's scheme at small size: scenario, data, and how far trainings may drift apart."""

from functools import cache
from typing import Any

import numpy as np

from codedfl import schemes
from codedfl.scenario import Scenario
from codedfl.schemes.sharing.code_based import CodeBased
from codedfl.task import Problem
from tiny import scenario

D, C, N, T, T_TOT, M, BETA = 40, 10, 80, 4, 12, 4, 2
EPOCHS = 20
FLEET = [{"count": 4, "mac_rate": 2e6}, {"count": 3, "mac_rate": 1e6}, {"count": 3, "mac_rate": 2e5}]
DEVICES = 10
SUPPLIES = ("once", "reissued")
OPTIONS = {"n": N, "degree": 7, "t_tot": T_TOT, "t": T, "M": M, "beta": BETA, "delta": 0.02}
LIMIT = {"float32": 1e-4, "float64": 1e-9}
"""How far a gradient may be from the plaintext one, relative to the first."""


def wanted(changes: dict[str, Any] | None = None, **options: Any) -> Scenario:
    base = {
        "scheme": "code-based",
        "features.dimension": D,
        "fleet.devices": FLEET,
        "training.epochs": EPOCHS,
        "training.learning_rate": 0.5,
        "training.decay_epochs": [8],
        "timing.draws": 4,
        "schemes.code-based": {**OPTIONS, **options},
    }
    return scenario({**base, **(changes or {})})


@cache
def digits(precision: str = "float32", partition: str = "iid") -> Problem:
    changes = {"task.precision": precision, "partition.kind": partition, "partition.shards_per_device": 1}
    return Problem.build(wanted(changes))


def created(problem: Problem, chosen: Scenario) -> CodeBased:
    scheme = schemes.create(chosen, problem)
    assert isinstance(scheme, CodeBased)
    return scheme


def wanted64(changes: dict[str, Any] | None = None, **options: Any) -> Scenario:
    return wanted({"task.precision": "float64", **(changes or {})}, **options)


def apart(problem: Problem, epochs: int, rate: float = 0.5) -> float:
    """How far two trainings can drift apart whose every gradient is within the limit of the plaintext one.

    A step I - rate (H + ridge) is no expansion below the largest stable rate, so drifts add up at most.
    """
    assert rate <= problem.largest_stable_rate()
    return float(2 * epochs * rate * LIMIT["float64"] * np.linalg.norm(problem.total_moments / problem.samples))
