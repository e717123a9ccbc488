"""Softmax regression by gradient descent with noise in each epoch under secagg, at the paper's size.

25 devices, 2000 features, delta 1e-5, five feature seeds and noise seeds. One training runs the whole protocol. The
others add the same noise of the same devices to their gradients in clear, for all epsilons at once. That opens the same
sums: the first epochs of the one training are also computed from the devices' replies in clear, and give the same model
to the last bit. Clip and learning rates were chosen on Fashion-MNIST before anything was measured on MNIST: ``python -m
benchmarks.private_descent choose`` prints the candidates there, for one seed.
"""

import sys
import time
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float

from benchmarks.measure import show
from codedfl import schemes
from codedfl.privacy.descent import GradientRelease, noisy_gradient
from codedfl.runs.backend import SimulationBackend
from codedfl.scenario import Scenario, load
from codedfl.schemes.messages import Work
from codedfl.schemes.plain.row_gradients import ClippedGradients, factors, model_digest
from codedfl.schemes.private import device_seed, noise_key
from codedfl.task import Problem
from codedfl.task.losses import SOFTMAX, residuals
from codedfl.task.objective import PublicObjective
from codedfl.training import State, create_solver, train

EPOCHS, CLIP = 80, 0.5
RATES = {1.0: 32.0, 3.0: 64.0, 8.0: 128.0}
"""Learning rates by epsilon."""
CANDIDATES = {"clip": (0.25, 0.5, 1.0), "rate": (32.0, 64.0, 128.0)}
SEEDS = range(5)
WHOLE = (0, 1.0)
"""Seed and epsilon of the training with the whole protocol."""
CHECKED = 10
"""Epochs of it that are also computed in clear."""


def main(source: str = "mnist") -> dict[str, Any]:
    """Measure the accuracy on the test set for every seed and epsilon, and without noise."""
    names = ("clear", *(f"{epsilon:g}" for epsilon in RATES))
    found: dict[str, Any] = {name: [] for name in names}
    for seed in SEEDS:
        problem = Problem.build(_scenario(source, seed, 1.0))
        for name, model in _all_in_clear(problem, [_scenario(source, seed, epsilon) for epsilon in RATES]).items():
            found[name].append(_accuracy(problem, model))
        print(
            f"  seed {seed}: {', '.join(f'{name} {found[name][-1]:.4f}' for name in found if name != 'whole')}",
            flush=True,
        )
        if seed == WHOLE[0]:
            found["whole"] = _whole(problem, _scenario(source, *WHOLE))
    for name in names:
        scores = 100 * np.array(found[name])
        show(f"{source}, epsilon {name}: mean accuracy of {len(scores)} seeds", scores.mean(), unit="%")
        show(f"{source}, epsilon {name}: standard deviation", scores.std(ddof=1), unit="%")
    return found


def choose(source: str = "fashion") -> list[dict[str, float]]:
    """Print the accuracy of every candidate on other data."""
    problem, found = Problem.build(_scenario(source, 0, 1.0)), []
    for clip, rate in product(*CANDIDATES.values()):
        wanted = [_scenario(source, 0, epsilon, clip=clip, rate=rate) for epsilon in RATES]
        models = _all_in_clear(problem, wanted)
        for epsilon in RATES:
            scored = _accuracy(problem, models[f"{epsilon:g}"])
            show(f"{source}, epsilon {epsilon:g}, clip {clip:g}, rate {rate:g}: accuracy", 100 * scored, unit="%")
            found.append({"epsilon": epsilon, "clip": clip, "rate": rate, "accuracy": scored})
    return found


def _scenario(source: str, seed: int, epsilon: float, *, clip: float = CLIP, rate: float | None = None) -> Scenario:
    return load("paper").with_settings(
        {
            "scheme": "secagg",
            "data.source": source,
            "features.seed": seed,
            "task.loss": "softmax",
            "training.solver": "nesterov",
            "training.epochs": EPOCHS,
            "training.learning_rate": RATES[epsilon] if rate is None else rate,
            "training.decay_epochs": [],
            "privacy.epsilon": epsilon,
            "privacy.release": "each-epoch",
            "privacy.clip_residuals": clip,
            "privacy.seed": seed,
        }
    )


def _all_in_clear(problem: Problem, scenarios: Sequence[Scenario]) -> dict[str, Float[np.ndarray, "d c"]]:
    """Train with noisy gradients for each scenario, and without clipping and noise in the steps of the last one."""
    names = [f"{scenario.privacy.epsilon:g}" for scenario in scenarios]
    releases = [schemes.create(scenario, problem).public.release for scenario in scenarios]
    solvers = [create_solver(problem, scenario, State.fresh(problem)) for scenario in (*scenarios, scenarios[-1])]
    scales = [factors(shard.x, scenarios[0].privacy.clip_features)[:, None] for shard in problem.shards]
    for epoch in range(1, EPOCHS + 1):
        queries = [solver.query() for solver in solvers]
        columns, totals = np.concatenate(queries, axis=1), np.zeros((len(solvers), *problem.shape))
        for device, (shard, scale) in enumerate(zip(problem.shards, scales, strict=True)):
            scores = np.split(shard.x @ columns, len(solvers), axis=1)
            found = [residuals(SOFTMAX, part * scale, shard.y) for part in scores[:-1]]
            for part, release in zip(found, releases, strict=True):
                assert isinstance(release, GradientRelease)
                part *= factors(part, release.clip_residuals)[:, None] * scale
            found.append(residuals(SOFTMAX, scores[-1], shard.y))
            sums = np.split(shard.x.T @ np.concatenate(found, axis=1), len(solvers), axis=1)
            for number, (release, query) in enumerate(zip(releases, queries[:-1], strict=True)):
                assert isinstance(release, GradientRelease)
                seed = device_seed(noise_key(scenarios[number].privacy), device)
                clear = np.ascontiguousarray(sums[number])
                steps = noisy_gradient(clear, release, seed, epoch, model_digest(query))
                totals[number] += np.ldexp(steps.astype(np.float64), -release.bits)
            totals[-1] += sums[-1]
        for solver, total in zip(solvers, totals, strict=True):
            solver.update(total / problem.samples)
    return {name: solver.model for name, solver in zip([*names, "clear"], solvers, strict=True)}


def _in_clear(problem: Problem, scenario: Scenario, epochs: int) -> Float[np.ndarray, "d c"]:
    """Train for some epochs with the sum of the very replies of the devices."""
    release, key = schemes.create(scenario, problem).public.release, noise_key(scenario.privacy)
    assert isinstance(release, GradientRelease)
    devices = [ClippedGradients(shard, release, device_seed(key, i)) for i, shard in enumerate(problem.shards)]
    solver = create_solver(problem, scenario, State.fresh(problem))
    for epoch in range(1, epochs + 1):
        total = sum(device.steps(epoch, solver.query(), Work()) for device in devices)
        solver.update(np.ldexp(np.asarray(total, np.float64), -release.bits) / problem.samples)
    return solver.model


def _whole(problem: Problem, scenario: Scenario) -> dict[str, Any]:
    """Train with keys, shares, masks and openings in every epoch; compare with the replies in clear."""
    backend, models = SimulationBackend(scenario, problem), []
    sizes: Any = {"samples": problem.samples, "shape": problem.shape, "dtype": problem.dtype}
    objective = PublicObjective(**sizes, ridge=problem.ridge, kind=problem.kind, test=problem.test)
    state, began = State.fresh(objective), time.perf_counter()
    engine = backend.engine(state, {})
    state = train(objective, scenario, backend.scheme, engine, state, lambda now: models.append(now.model))
    seconds, release = time.perf_counter() - began, backend.scheme.public.release
    assert release is not None
    print(f"  {release.statement}")
    differing = int(np.sum(models[CHECKED - 1] != _in_clear(problem, scenario, CHECKED)))
    scored = _accuracy(problem, state.model)
    show(f"whole protocol, seed {WHOLE[0]}, epsilon {WHOLE[1]:g}: accuracy", 100 * scored, unit="%")
    show(f"entries of the model after {CHECKED} epochs that differ from those in clear", differing, 0)
    show("virtual time of the training", state.now, unit="s")
    show("wall time of the training", seconds, unit="s")
    return {"accuracy": scored, "differing_entries": differing, "virtual_seconds": state.now, "wall_seconds": seconds}


def _accuracy(problem: Problem, model: Float[np.ndarray, "d c"]) -> float:
    assert problem.test is not None
    return float(problem.test.score(model, 1)[0])


if __name__ == "__main__":
    choose() if sys.argv[1:] == ["choose"] else main(*sys.argv[1:])
