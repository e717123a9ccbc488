"""Parity data at the server at the paper's size, trained for real: deadlines, set-up, time to 90% and 95%, leaks.

Trainings are against mini-batch FL with the same feature seed. A training has one timing draw; its set-up, which a few
random numbers decide, is replaced by the mean of 250 draws. Finished runs are kept in out/bench and not run again.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import show
from codedfl import schemes
from codedfl.engines.virtual import move
from codedfl.network import DelayModel, Draws, TransferCosts
from codedfl.progress import silent
from codedfl.runs import Run, execute
from codedfl.scenario import Scenario, load
from codedfl.schemes import message_bits
from codedfl.schemes.coded.parity import Parity
from codedfl.security.attacks.parity_data import ParityGram, ParitySpan, read_targets
from codedfl.security.scoring import Truth, relative_error, score
from codedfl.security.views.kinds import ParityMembershipView, ParityView
from codedfl.task import Problem, gram
from codedfl.task.shared import SharedProblem
from codedfl.training.timing import first_epoch

TARGETS = (0.9, 0.95)
DRAWS = 250
VARIANTS: dict[tuple[str, float], tuple[int, ...]] = {
    ("summed", 0.1): (0,),
    ("own", 0.1): (0,),
    ("own", 0.3): (0,),
    ("own", 0.5): (0, 1),
}
"""Rows and redundancy, and the feature seeds that are trained."""
SEVERAL = 3.0
"""Several-fold."""


def main() -> dict[str, Any]:
    """Train every variant, and look at what the server was sent."""
    shared = SharedProblem(silent)
    results: dict[str, Any] = {"deadlines": _deadlines(shared)}
    for seed in sorted({seed for seeds in VARIANTS.values() for seed in seeds}):
        base = _run(shared, {"scheme": "minibatch", "features.seed": seed}, "sealed-runs")
        for (rows, redundancy), seeds in VARIANTS.items():
            if seed in seeds:
                name = f"{rows} rows, redundancy {redundancy:g}, feature seed {seed}"
                results[name] = _trained(name, shared, base, _changes(rows, redundancy, seed))
    for (rows, redundancy), seeds in VARIANTS.items():
        if seeds[0] == 0 and redundancy == 0.1:
            results[f"leak, {rows} rows, redundancy {redundancy:g}"] = _leak(shared, _changes(rows, redundancy, 0))
    return results


def _changes(rows: str, redundancy: float, seed: int) -> dict[str, Any]:
    options = {"schemes.parity.rows": rows, "schemes.parity.redundancy": redundancy}
    return {"scheme": "parity", "features.seed": seed, "schemes.parity.charge_encoding": True, **options}


def _scenario(changes: dict[str, Any]) -> Scenario:
    common = {"training.stop_at_last_target": True, "timing.draws": DRAWS}
    once = {"timing.repeats": 1} if changes["scheme"] == "parity" else {}
    return load("paper").with_settings({**common, **once, **changes})


def _run(shared: SharedProblem, changes: dict[str, Any], folder: str) -> Run:
    scenario = _scenario(changes)
    place = Path("out/bench") / folder / f"{scenario.scheme}-{scenario.id()}"
    return execute(scenario, place, problem=shared.get(scenario))


def _deadlines(shared: SharedProblem) -> dict[str, Any]:
    """Show the deadline of an epoch and who works on how many of 480 points."""
    results = {}
    for redundancy in (0.05, 0.1, 0.2, 0.3, 0.5):
        scenario = _scenario(_changes("summed", redundancy, 0))
        scheme = schemes.create(scenario, shared.get(scenario)())
        assert isinstance(scheme, Parity)
        allocation = scheme.allocations[0]
        groups = [0, 10, 15, 20]  # the first device of each rate
        show(f"redundancy {redundancy:g}: deadline of an epoch", allocation.deadline, unit="s")
        show(f"redundancy {redundancy:g}: points of the slowest devices, of 480", int(allocation.loads[-1]))
        results[f"{redundancy:g}"] = {
            "deadline": allocation.deadline,
            "loads": allocation.loads[groups].tolist(),
            "chances": allocation.chances[groups].tolist(),
        }
    return results


def _trained(name: str, shared: SharedProblem, base: Run, changes: dict[str, Any]) -> dict[str, Any]:
    run = _run(shared, changes, "parity-runs")
    problem = shared.get(run.scenario)()
    drawn, mean, uploads = _set_up(run, problem)
    accuracy, times = run.epochs["accuracy"], run.epochs["time"]
    result: dict[str, Any] = {
        "set_up": mean,
        "set_up_without_encoding": uploads,
        "seconds_per_epoch": float((times[-1] - times[0]) / (len(times) - 1)),
        "best_accuracy": float(accuracy.max()),
    }
    show(f"{name}: set-up", mean, unit="s")
    show(f"{name}: set-up, encoding not charged", uploads, unit="s")
    show(f"{name}: an epoch", result["seconds_per_epoch"], unit="s")
    for target in TARGETS:
        epoch, plain = first_epoch(accuracy, target), base.seconds_to(target)
        if epoch is None or plain is None:
            show(f"{name}: {target:.0%} is not reached; the best accuracy", float(accuracy.max()))
            continue
        training = float(times[epoch - 1]) - drawn
        speedups = [float(plain.mean()) / (training + set_up) for set_up in (mean, uploads)]
        result[f"{target}"] = {
            "epochs": epoch,
            "seconds": training + mean,
            "minibatch_epochs": first_epoch(base.epochs["accuracy"], target),
            "minibatch_seconds": float(plain.mean()),
            "speedup": speedups[0],
            "speedup_without_encoding": speedups[1],
        }
        wanted = SEVERAL if target == TARGETS[-1] else None
        show(f"{name}: epochs to {target:.0%}", epoch)
        show(f"{name}: speed-up to {target:.0%} over mini-batch FL", speedups[0], wanted, at_least=True)
        show(f"{name}: the same, encoding not charged", speedups[1], wanted, at_least=True)
    return result


def _set_up(run: Run, problem: Problem) -> tuple[float, float, float]:
    """Return the time of the set-up in the run's own draw, on average, and on average without the encoding."""
    scheme = schemes.create(run.scenario, problem)
    assert isinstance(scheme, Parity)
    d, c = problem.shape
    costs = []
    for each in scheme.batches:
        for device, batch in enumerate(each):
            if batch.weighted:
                macs = batch.parity_rows * batch.weighted * (d + c + 1)
                bits = 32 + 8 * problem.dtype.itemsize * batch.parity_rows * (d + c)
                costs.append(TransferCosts(device, -1, 32, macs, bits, 0))
    # what the run itself counted; its first epoch is computed beforehand
    assert sum(entry.export_macs for entry in costs) == run.epochs["device_macs"][0]
    delays, timing = DelayModel.create(run.scenario.fleet, run.scenario.links), run.scenario.timing
    own, many = (
        Draws(delays, seed=timing.seed, first=first, count=count) for first, count in ((timing.draw, 1), (0, DRAWS))
    )
    idle = [dataclasses.replace(entry, export_macs=0) for entry in costs]
    means = [float(many.stage(0, each).seconds.mean()) for each in (costs, idle)]
    return float(own.stage(0, costs).seconds[0]), *means


def _leak(shared: SharedProblem, changes: dict[str, Any]) -> dict[str, Any]:
    """Attack the parity data of the first batch of one of the slowest devices."""
    scenario = _scenario(changes)
    problem = shared.get(scenario)()
    scheme = schemes.create(scenario, problem)
    assert isinstance(scheme, Parity)
    view, x, y = _seen(scheme, problem)
    name = f"{changes['schemes.parity.rows']} rows"
    guess = gram(problem.x_test) * (np.sum(x**2) / np.sum(problem.x_test**2))
    rng = np.random.default_rng(0)
    found = ParityGram(guess).run(view, rng).gram
    assert found is not None
    candidates = np.concatenate([x, problem.x_test])
    asked = ParityMembershipView(view.parity, view.points, candidates)
    scored = score(ParitySpan().run(asked, rng), Truth(members=np.arange(len(candidates)) < len(x)))
    assert scored.auc is not None
    labels = np.mean(np.argmax(read_targets(view, x), axis=1) == np.argmax(y, axis=1))
    result = {
        "parity_rows": len(view.parity),
        "points": view.points,
        "megabits": message_bits({"parity": view.parity, "targets": view.targets}) / 1e6,
        "membership": scored.auc,
        "labels_read": float(labels),
        "gram_error": relative_error(found, gram(x)),
        "guess_error": relative_error(guess, gram(x)),
    }
    show(f"{name}: parity rows of a device for {view.points} points", len(view.parity))
    show(f"{name}: membership by the span, area under the curve", scored.auc)
    show(f"{name}: share of members' labels that are read right", result["labels_read"])
    show(f"{name}: relative error of the Gram matrix", result["gram_error"])
    show(f"{name}: relative error of the guess from test images", result["guess_error"])
    return result


def _seen(scheme: Parity, problem: Problem) -> tuple[ParityView, Any, Any]:
    """Return what the last device uploads of its first batch, and the points and targets under it."""
    device = len(problem.shards) - 1
    batch, server = scheme.batches[0][device], scheme.server()
    devices = {device: scheme.device(device, problem.shards[device])}
    parcels: list[Any] = []
    transfer = next(each for each in server.set_up()[0].transfers if each.sender == device)
    move(devices, transfer, lambda sender, parcel: parcels.append(parcel))  # type: ignore[arg-type]
    view = ParityView(parcels[0]["features"], parcels[0]["targets"], batch.weighted, batch.mass)
    shard = problem.shards[device]
    return view, shard.x[batch.rows], shard.y[batch.rows]


if __name__ == "__main__":
    main()
