"""CodedPaddedFL at the paper's size: its product, its speed-up for many alpha, and one training for real.

Epochs to 95% are those of gradient descent with all data, as the conventional trainings of ``sealed_schemes`` need
them, five feature seeds each; mini-batch FL is trained there, too. What an epoch and the set-up take is predicted from
the costs of a set-up that really happens (``codedfl.studies.plan``), in 250 timing draws. Three ways to count the
set-up: the simulated relay through the server, the published formula, and links between devices.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.cipher import CLASSES
from benchmarks.measure import best_seconds, show
from benchmarks.sealed_schemes import DRAWS, SEEDS, TARGET, VARIANTS, accuracy_gap, seconds_to_target, trained
from codedfl.cipher.mceliece.parameters import PAPER_92
from codedfl.cipher.seals import FIELD_48, packed_size
from codedfl.network import DelayModel, Draws
from codedfl.progress import silent
from codedfl.runs import Run
from codedfl.scenario import Scenario, load
from codedfl.studies.plan import Costs, Shapes, predict, probe
from codedfl.task.shared import SharedProblem
from codedfl.training.timing import first_epoch

ALPHAS = (1, 4, 8, 12, 16, 20, 22, 25)
PUBLISHED_ALPHA, PUBLISHED, NEAR = 16, 6.5, 0.1
"""The speed-up under the published count of the set-up, and how near ours must be."""
WAYS = ("relay", "published", "direct")
ROUNDS = 60


def products() -> dict[str, float]:
    """c x d by d x d in the field, against the products of BLAS, on one thread each."""
    rng, d = np.random.default_rng(1), PAPER_92.k
    theta, D = rng.standard_normal((CLASSES, d)), rng.standard_normal((d, d))
    small, large = theta.astype(np.float32), D.astype(np.float32)
    left, right = (rng.integers(0, FIELD_48.modulus, array.shape, dtype=np.uint64) for array in (theta, D))
    tasks: dict[str, Callable[[], object]] = {
        "float64": lambda: theta @ D,
        "float32": lambda: small @ large,
        "field": lambda: FIELD_48.product(left, right, workers=1),
    }
    with threadpool_limits(1):
        times = best_seconds(tasks, ROUNDS, clock=time.thread_time)
    show(f"product in {FIELD_48.name}, 1 thread", 1e3 * times["field"], unit="ms")
    for name in ("float64", "float32"):
        show(f"product in {FIELD_48.name} / {name} product of BLAS, 1 thread", times["field"] / times[name])
    return {f"{name}_seconds": seconds for name, seconds in times.items()}


def published_set_up(alpha: int, scenario: Scenario, outputs: int) -> float:
    """Return the published time to share through the server: (alpha - 1) parcels at 7.5 Mbit/s, up and down."""
    d, links = scenario.features.dimension, scenario.links
    bits = (alpha - 1) * (outputs * d + packed_size(d)) * 48
    return bits * (1 + links.overhead) / (1 - links.loss) * 2 / 7.5e6


def sweep(base: list[Run], plain: list[Run]) -> dict[str, Any]:
    """Predict the time to 95% for every alpha, and hold it against mini-batch FL."""
    paper = load("paper").with_settings({"scheme": "coded-padded", "timing.draws": DRAWS})
    shapes = Shapes.of_data(paper)
    hollow, delays = shapes.hollow(paper), DelayModel.create(paper.fleet, paper.links)
    epochs = [_epochs(run) for run in plain]
    minibatch = float(np.mean([seconds_to_target(run) for run in base]))
    found: dict[str, Any] = {"epochs": epochs, "minibatch_seconds": minibatch}
    for alpha in ALPHAS:
        scenario = paper.with_settings({"schemes.coded-padded.alpha": alpha})
        costs = probe(scenario, hollow)
        ends = predict(_without_set_up(costs), scenario, epochs=max(epochs), draws=DRAWS)
        set_up = {
            "relay": _staged(costs, delays, scenario, relayed=True),
            "published": published_set_up(alpha, scenario, shapes.outputs),
            "direct": _staged(costs, delays, scenario, relayed=False),
        }
        training = float(np.mean([ends[:, count - 1] for count in epochs]))
        speedups = {way: minibatch / (training + set_up[way]) for way in WAYS}
        found[f"alpha {alpha}"] = {"epochs_seconds": training, "set_up_seconds": set_up, "speedup": speedups}
        words = ", ".join(f"{way} {set_up[way]:.0f} s -> {speedups[way]:.2f}x" for way in WAYS)
        print(f"  alpha {alpha:>2}: epochs {training:.0f} s; set-up {words}", flush=True)
    return found


def _epochs(run: Run) -> int:
    epoch = first_epoch(run.epochs["accuracy"], TARGET)
    if epoch is None:
        raise RuntimeError(f"{run.path} never reaches {TARGET}")
    return epoch


def _without_set_up(costs: Costs) -> Costs:
    return replace(costs, probed=replace(costs.probed, stages=[]))


def _staged(costs: Costs, delays: DelayModel, scenario: Scenario, *, relayed: bool) -> float:
    """Return the mean time of the set-up, through the server or not."""
    draws = Draws(delays, seed=scenario.timing.seed, count=DRAWS)
    stages = [[replace(entry, relayed=relayed) for entry in stage] for _, stage in costs.probed.stages_after(0)]
    return sum(float(draws.stage(number, stage).seconds.mean()) for number, stage in enumerate(stages))


def main() -> dict[str, Any]:
    """All measurements, as one dictionary."""
    results: dict[str, Any] = {"products": products()}
    shared = SharedProblem(silent)
    base, plain = ([trained(*VARIANTS[name], seed, shared) for seed in SEEDS] for name in ("minibatch", "conventional"))
    found = results["sweep"] = sweep(base, plain)
    own = found[f"alpha {PUBLISHED_ALPHA}"]["speedup"]["published"]
    show(f"alpha = {PUBLISHED_ALPHA}: speed-up to 95%, published set-up", own)
    show(f"the same: | / {PUBLISHED} - 1|", abs(own / PUBLISHED - 1), NEAR)
    for way in WAYS:
        best = max(ALPHAS, key=lambda alpha: found[f"alpha {alpha}"]["speedup"][way])
        show(f"{way}: best alpha", best)
        show(f"{way}: its speed-up", found[f"alpha {best}"]["speedup"][way])
    changes = {"scheme": "coded-padded", "schemes.coded-padded.alpha": PUBLISHED_ALPHA}
    run = trained("paper", changes, SEEDS[0], shared)
    results["training"] = _checked(run, base[0], plain[0])
    return results


def _checked(run: Run, base: Run, plain: Run) -> dict[str, Any]:
    gap, error = accuracy_gap(run, plain), run.summary["gradient_error"]
    speedup = float(seconds_to_target(base).mean() / seconds_to_target(run).mean())
    name = f"trained, alpha = {PUBLISHED_ALPHA}, feature seed {SEEDS[0]}"
    show(f"{name}: gap to plaintext accuracy at the end, in points", 100 * gap, 0.1)
    show(f"{name}: gradient error", error)
    show(f"{name}: epochs to 95%", _epochs(run))
    show(f"{name}: speed-up to 95% against mini-batch FL", speedup)
    show(f"{name}: wall time", run.summary["wall_seconds"], unit="s")
    return {
        "epochs": _epochs(run),
        "plaintext_epochs": _epochs(plain),
        "accuracy_gap": gap,
        "gradient_error": error,
        "speedup": speedup,
        "wall_seconds": run.summary["wall_seconds"],
    }


if __name__ == "__main__":
    main()
