"""Sums of columns under the scheme of a run, in virtual time, and what each party sees because of them.

Every exact scheme computes minus the sum of right-hand sides X_i^T Y_i in its first epoch. So a sum of vectors v_i is
the first epoch of the scheme on data of one row each, x = (1, 0) and y = v_i: the same messages, ciphertexts and times
as in a training, and no second protocol.
"""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl import schemes
from codedfl.data import Column, FeatureMap
from codedfl.engines import VirtualEngine
from codedfl.network import Clock, DelayModel, Draws, RoundCosts
from codedfl.privacy.promise import KNOWN_SEED
from codedfl.scenario import Scenario
from codedfl.schemes.secrecy import CLEAR
from codedfl.task import Problem, Shard
from codedfl.task.folds import DeviceRows
from codedfl.task.preparing import LocalSummer, SumRequest
from codedfl.training import History, State, first_gradient
from codedfl.training.timing import Variant

SEED_STEP = 1_000_003
"""Distance of the seeds of random delays of sums, so that sums and training meet independent delays."""

SumRecord = tuple[History | Variant, History, int]
"""What a sum costs: how it is replayed, its history, and the seed of its delays."""


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
        "task.loss": "squared",
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
        "timing.seed": scenario.timing.seed + SEED_STEP * (number + 1),
    }
    return exact.with_settings(changes)


def sum_shard(sums: Float[np.ndarray, "k"]) -> Shard:
    """Return the data whose right-hand side are these sums."""
    return Shard(np.array([[1.0, 0.0]]), sums[None])


def sum_error(scheme: schemes.Scheme[Any]) -> float:
    """Return a bound on the error of a sum whose scale is 1."""
    return 0.0 if scheme.rounding is None else scheme.rounding.moments


@final
class SchemeSummer(LocalSummer):
    """Adds the sums of simulated devices under the scheme of a scenario, and records what it costs."""

    def __init__(
        self,
        scenario: Scenario,
        devices: Sequence[DeviceRows],
        features: FeatureMap,
        records: list[SumRecord],
        columns: Sequence[Column] = (),
    ) -> None:
        """To ``records``, what a sum costs is added."""
        super().__init__(devices, features, columns)
        self._scenario = scenario
        self._records = records
        self._delays = DelayModel.create(scenario.fleet, scenario.links)

    def add(self, request: SumRequest, scales: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
        """Run the first epoch of the scheme on the sums."""
        wanted = sum_scenario(self._scenario, len(self._records))
        shards = tuple(sum_shard(vector) for vector in self.scaled(request, scales))
        problem = Problem(shards, np.zeros((0, 2)), np.zeros((0, len(scales))), "regression", 0.0)
        scheme, state = schemes.create(wanted, problem), State.fresh(problem)
        self.error = sum_error(scheme)
        devices = [scheme.device(index, shard) for index, shard in enumerate(shards)]
        engine = VirtualEngine(devices, self._delays, seed=wanted.timing.seed, draw=wanted.timing.draw)
        gradient = first_gradient(scheme, engine, state, offline=wanted.training.first_epoch_offline)
        self._records.append((state.history, state.history, wanted.timing.seed))
        if "models" in request.arrays:
            self._record_download(request.arrays["models"], wanted)
        return np.asarray(-gradient[0] * len(shards))

    def _record_download(self, models: Float[np.ndarray, "l d c"], wanted: Scenario) -> None:
        """Count what it takes to send models to all devices and to predict their rows."""
        count, seed = len(self.devices), wanted.timing.seed + 1
        down, up = np.full(count, 64 * models.size), np.zeros(count, np.int64)
        macs = np.array([len(rows.x) * models.size for rows in self.devices])
        costs = RoundCosts(np.arange(count), down, macs, up, quorum=count, server_macs=0)
        clock = Clock(Draws(self._delays, seed=seed, first=wanted.timing.draw))
        clock.ask(1, 0, costs)
        history = History()
        history.add_epoch([costs], epoch=1, time=float(clock.now[0]))
        self._records.append((history, history, seed))


def leakage_table(scenario: Scenario, scheme: schemes.Scheme[Any]) -> dict[str, str]:
    """Return one sentence per party.

    Sums of an unencrypted scheme are seen by the server device by device (``codedfl.runs.sums.sum_scenario``).
    """
    found = scheme.leakage().to_table()
    if (release := scheme.public.release) is not None:
        found["server"] += f"; all of it with noise: {release.statement}"
        alone = KNOWN_SEED if release.known_seed else release.promise(1)
        found["devices"] += f"; all of it with noise, of which each knows its own: {alone}"
    several, held_out = len(scenario.ridges) > 1, scenario.data.held_out > 0
    if not (scenario.prepared or several or held_out):
        return found
    clear = schemes.nominal(sum_scenario(scenario)).verdict == CLEAR
    whose = "of each device, in clear," if clear else "over all devices"
    server, devices, bounded = [], [], "each column"
    if scenario.prepared or several:
        kernel = " and of the kernel features" if scenario.features.kind == "rbf" and scenario.intercept else ""
        server.append(f"sums {whose} of every column, of its squares and of the targets{kernel}")
        devices.append("the means and variances of columns and targets over all devices")
    if several:
        server.append(f"for each fold, what the training reveals without its rows, and sums {whose} of errors on them")
        devices.append("the models of each fold")
        bounded = "each column and the errors of each model"
    server.append(f"from each device its number of rows and powers of two that bound {bounded}")
    devices.append("the largest of the powers of two by which devices bound each column")
    found["server"] += f"; before the training: {_listed(server)}"
    found["devices"] += f"; before the training: {_listed(devices)}"
    if held_out:
        found["server"] += (
            f"; after the training, of the held-out rows: sums {whose} of counts by class and predicted class, or of "
            "targets, errors and their squares, and from each device powers of two that bound targets and errors"
        )
    return found


def _listed(parts: list[str]) -> str:
    return ", and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
