"""Devices that lie: in every reply, in some, in late ones, in the set-up; and what checking costs honest runs."""

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from codedfl import schemes
from codedfl.engines import VirtualEngine
from codedfl.errors import CodedflError
from codedfl.network import DelayModel
from codedfl.scenario import Scenario, load
from codedfl.schemes.contract import Device
from codedfl.task import Problem
from codedfl.testing.lying import Liar, lie_in_parcels
from codedfl.training import State, train

EPOCHS = 60
SCHEMES = ("sealed-coded", "coded-padded")
FAST, SLOW = 0, -1
"""Which of the workers lies: the fastest, whose replies are used, or the slowest, whose replies are late."""

Corrupt = Callable[[list[Device], Any], None]

CASES: dict[str, tuple[int, Callable[[int], bool]]] = {
    "every reply": (FAST, lambda epoch: epoch > 1),
    "one reply in ten": (FAST, lambda epoch: epoch % 10 == 3),
    "the last reply alone": (FAST, lambda epoch: epoch == EPOCHS),
    "every late reply": (SLOW, lambda epoch: epoch > 1),
}


def chosen(scheme: str) -> Scenario:
    """The preset ``sealed-coded`` (MNIST, 2000 features, 25 devices) or its data with ``coded-padded``."""
    changes = {"training.solver": "gradient-descent", "training.epochs": EPOCHS, "training.targets": []}
    options = {"workers": 12, "threshold": 8} if scheme == "sealed-coded" else {"alpha": 16}
    return load("sealed-coded").with_settings({"scheme": scheme, **changes, f"schemes.{scheme}": options})


def trained(wanted: Scenario, problem: Problem, corrupt: Corrupt | None = None) -> tuple[State, float]:
    """Train in virtual time; return the state, and the wall seconds."""
    scheme: Any = schemes.create(wanted, problem)
    devices = [scheme.device(index, shard) for index, shard in enumerate(problem.shards)]
    if corrupt is not None:
        corrupt(devices, scheme)
    delays, timing = DelayModel.create(wanted.fleet, wanted.links), wanted.timing
    engine, began = VirtualEngine(devices, delays, seed=timing.seed, draw=timing.draw), time.perf_counter()
    state = train(problem, wanted, scheme, engine, State.fresh(problem))
    return state, time.perf_counter() - began


def devices() -> dict[str, Any]:
    """Print a row for each scheme and kind of lie."""
    results: dict[str, Any] = {}
    problem = Problem.build(chosen(SCHEMES[0]))
    for scheme in SCHEMES:
        wanted = chosen(scheme)
        trained(wanted.with_settings({"training.epochs": 3}), problem)  # compiles
        pairs = [(trained(wanted, problem), _without_checks(wanted, problem)) for _ in range(3)]
        (honest, _), (unchecked, _) = pairs[0]
        ratio = min(checked for (_, checked), _ in pairs) / min(bare for _, (_, bare) in pairs)
        same = honest.history.columns["time"] == unchecked.history.columns["time"]
        print(f"  {scheme}, honest: {len(honest.checked)} of {EPOCHS} epochs checked; wall time {ratio:.3f} of that "
              f"without checks, virtual time {'equal' if same else 'NOT EQUAL'}", flush=True)  # fmt: skip
        results[f"{scheme}: honest"] = {"checked": len(honest.checked), "wall_ratio": ratio, "same_virtual_time": same}
        workers = sorted(honest.server["workers"].tolist())
        for name, (which, tells) in CASES.items():
            liar = Liar(workers[which], tells, "one")
            row = _row(wanted, problem, honest, partial(_lie, liar))
            results[f"{scheme}: {name}"] = _shown(f"{scheme}: lies in {name}", row)
        row = _row(wanted, problem, honest, partial(_lie_in_set_up, workers[FAST]))
        results[f"{scheme}: set-up"] = _shown(f"{scheme}: one wrong parcel in the set-up", row)
    return results


def _lie(liar: Liar, made: list[Device], scheme: Any) -> None:
    liar.corrupt(made, scheme.formats.field)


def _lie_in_set_up(device: int, made: list[Device], scheme: Any) -> None:
    """Let one part of a coded block, or the padded data for one recipient, be wrong."""
    lie_in_parcels(made[device], "part" if scheme.name == "sealed-coded" else "words", scheme.formats.field)


def _without_checks(wanted: Scenario, problem: Problem) -> tuple[State, float]:
    """Train with rounds whose replies are not held against each other."""
    scheme = type(schemes.create(wanted, problem))
    make = scheme.server

    def plain(self: Any) -> Any:
        server = make(self)
        ask = server.ask
        server.ask = lambda epoch, model: dataclasses.replace(ask(epoch, model), needed=None)  # type: ignore[method-assign]
        return server

    scheme.server = plain  # type: ignore[method-assign]
    try:
        return trained(wanted, problem)
    finally:
        scheme.server = make  # type: ignore[method-assign]


def _row(wanted: Scenario, problem: Problem, honest: State, corrupt: Corrupt) -> dict[str, Any]:
    try:
        state, _ = trained(wanted, problem, corrupt)
    except CodedflError as error:
        return {"ended": str(error)}
    late = state.history.columns["time"][-1] / honest.history.columns["time"][-1]
    return {
        "exact": bool(np.array_equal(state.model, honest.model)),
        "liars": sorted({lie.device for lie in state.lies}),
        "spoilt": state.spoilt,
        "virtual_ratio": late,
    }


def _shown(label: str, row: dict[str, Any]) -> dict[str, Any]:
    if "ended" in row:
        print(f"  {label:<58} run ended: {row['ended']}", flush=True)
    else:
        words = "exact" if row["exact"] else "WRONG MODEL"
        print(f"  {label:<58} {words}, named {row['liars']}, {row['spoilt']} epochs computed again, virtual time "
              f"{row['virtual_ratio']:.3f} of honest", flush=True)  # fmt: skip
    return row
