"""Audits of the noise from below: canaries in one run of `one-shot` on digits, and a positive control with less noise.

The auditor knows all data but which of the canaries are in them, and sees the sums that the server opens.
"""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float64

from benchmarks.measure import show
from codedfl.cipher.seals import unpack_upper
from codedfl.privacy.accounting import epsilon_of, mu_of
from codedfl.privacy.audit import Audit, Canaries
from codedfl.runs.backend import SimulationBackend
from codedfl.scenario import Scenario, load
from codedfl.schemes.private import clipped
from codedfl.task import Problem, Shard
from codedfl.training import State, train

EPSILONS = (1.0, 3.0, 8.0)
DELTA = 1e-5
AUDITS = 20
CANARIES = 1500
LESS = 4.0
"""The positive control has noise of a standard deviation so many times too small."""


def main() -> dict[str, Any]:
    """Audit runs that add the noise they state, and runs that add too little."""
    base = load("paper-quick").with_settings({"scheme": "one-shot", "training.solver": "closed-form"})
    problem = Problem.build(base.with_settings({"privacy.epsilon": 1.0}))
    results: dict[str, Any] = {}
    for stated in EPSILONS:
        for less in (1.0, LESS):
            true = stated if less == 1 else epsilon_of(less * mu_of(stated, DELTA), DELTA)
            wanted = base.with_settings({"privacy.epsilon": true, "privacy.delta": DELTA})
            found = [dataclasses.asdict(audit(wanted, problem, number)) for number in range(AUDITS)]
            bounds = [entry["bound"] for entry in found]
            results[f"epsilon {stated:g}, noise / {less:g}"] = {"true_epsilon": true, "audits": found}
            words = f"epsilon {stated:g} stated, noise / {less:g} ({true:.3g} in truth), {AUDITS} audits"
            if less == 1:
                show(f"{words}: largest bound", max(bounds), stated)
            else:
                show(f"{words}: least bound", min(bounds), stated / 2, at_least=True)
            estimates = [entry["estimate"] for entry in found]
            print(f"     mean bound {np.mean(bounds):.2f}; estimates {min(estimates):.3g} to {max(estimates):.3g}")
    return results


def audit(scenario: Scenario, problem: Problem, number: int, canaries: int = CANARIES) -> Audit:
    """Put canaries into the data of a run, each by the throw of a coin, and audit the sums that its server opens."""
    rng = np.random.default_rng(number)
    made, included = Canaries.draw(canaries, *problem.shape, rng), rng.random(canaries) < 0.5
    private, inside = scenario.with_settings({"privacy.seed": number}), included[:, None]
    mixed = dataclasses.replace(problem, shards=_with_rows(problem, made.x * inside, made.y * inside))
    backend, state = SimulationBackend(private, mixed), State.fresh(mixed)
    opened = train(mixed, private, backend.scheme, backend.engine(state, {}), state).server
    x, y = (clipped(np.concatenate(rows), 1.0) for rows in zip(*((s.x, s.y) for s in problem.shards), strict=True))
    release = backend.scheme.public.release
    assert release is not None
    return made.audit(unpack_upper(opened["gram"]) - x.T @ x, opened["moments"] - x.T @ y, included, release)


def _with_rows(problem: Problem, x: Float64[np.ndarray, "m d"], y: Float64[np.ndarray, "m c"]) -> tuple[Shard, ...]:
    """Deal further rows to all devices; a canary that is not in the data is a row of zeros, as numbers are public."""
    devices = len(problem.shards)
    return tuple(
        Shard(np.concatenate([shard.x, x[number::devices]]), np.concatenate([shard.y, y[number::devices]]))
        for number, shard in enumerate(problem.shards)
    )


if __name__ == "__main__":
    main()
