"""Sums of columns under the scheme of a run, in virtual time.

Every exact scheme computes minus the sum of right-hand sides X_i^T Y_i in its first epoch. So a sum of vectors v_i is
the first epoch of the scheme on data of one row each, x = (1, 0) and y = v_i: the same messages, ciphertexts and times
as in a training, and no second protocol.
"""

from collections.abc import Sequence
from typing import final

import numpy as np
from jaxtyping import Float

from codedfl import schemes
from codedfl.data import FeatureMap
from codedfl.engines import VirtualEngine
from codedfl.network import DelayModel
from codedfl.scenario import Scenario
from codedfl.task import Problem, Shard
from codedfl.task.preparing import DeviceRows, Summer, SumRequest, bounds_of, sums_of
from codedfl.training import History, State, first_gradient

_SEED_STEP = 1_000_003
"""Distance of the seeds of random delays of sums, so that sums and training meet independent delays."""


def sum_scenario(scenario: Scenario, number: int = 0) -> Scenario:
    """Return the scenario of a sum: one epoch of the same scheme.

    Where that gives no exact sums, or its cipher protects nothing, it is conventional federated learning.
    """
    exact = scenario.with_settings({"schemes.secagg.inner": "conventional"} if scenario.scheme == "secagg" else {})
    scheme = schemes.nominal(exact)
    changes = {
        "scheme": scenario.scheme if scheme.exact and scheme.verdict != "broken" else "conventional",
        "task.precision": "float64",
        "task.ridge": 0.0,
        "features.kind": "none",
        "features.scale": "none",
        "features.intercept": False,
        "features.missing": "refuse",
        "features.categories": [],
        "training.solver": "gradient-descent",
        "training.epochs": 1,
        "training.targets": [],
        "training.tolerance": 0.0,
        "training.start": None,
        "timing.seed": scenario.timing.seed + _SEED_STEP * (number + 1),
    }
    return exact.with_settings(changes)


def sum_shard(sums: Float[np.ndarray, "k"]) -> Shard:
    """Return the data whose right-hand side are these sums."""
    return Shard(np.array([[1.0, 0.0]]), sums[None])


@final
class SchemeSummer(Summer):
    """Adds the sums of simulated devices under the scheme of a scenario, and records what it costs."""

    def __init__(self, scenario: Scenario, devices: Sequence[DeviceRows], features: FeatureMap) -> None:
        self._scenario = scenario
        self._devices = devices
        self._delays = DelayModel.create(scenario.fleet, scenario.links)
        self.features = features
        self.samples = sum(len(rows.x) for rows in devices)
        self.shape = devices[0].x.shape[1], devices[0].y.shape[1]
        self.histories: list[History] = []
        """Costs of each sum, in order."""

    def bounds(self, request: SumRequest) -> Float[np.ndarray, "k"]:
        """Return the largest bounds of all devices."""
        return np.asarray(np.max([bounds_of(request, rows) for rows in self._devices], axis=0))

    def add(self, request: SumRequest, scales: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
        """Run the first epoch of the scheme on the sums."""
        wanted = sum_scenario(self._scenario, len(self.histories))
        shards = tuple(sum_shard(sums_of(request, rows, self.features) / scales) for rows in self._devices)
        problem = Problem(shards, np.zeros((0, 2)), np.zeros((0, len(scales))), "regression", 0.0)
        scheme, state = schemes.create(wanted, problem), State.fresh(problem)
        devices = [scheme.device(index, shard) for index, shard in enumerate(shards)]
        engine = VirtualEngine(devices, self._delays, seed=wanted.timing.seed, draw=wanted.timing.draw)
        gradient = first_gradient(scheme, engine, state, offline=wanted.training.first_epoch_offline)
        self.histories.append(state.history)
        return np.asarray(-gradient[0] * len(shards))
