"""Secure aggregation at the paper's size: what masks take and send, how exact sums are, and one-shot from end to end.

Ratios are against the plain reply of the same run. MNIST, 2000 features, 25 devices; feature seed 0.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import best_seconds, show
from codedfl import schemes
from codedfl.cipher.masks.shamir import SecretSharing
from codedfl.progress import silent
from codedfl.runs import Run, execute
from codedfl.scenario import Scenario, load
from codedfl.schemes import Message, Round, Work, message_bits
from codedfl.task import Problem
from codedfl.task.shared import SharedProblem
from codedfl.training.timing import first_epoch

TARGET = 0.95
OUT = Path("out/bench/secagg-runs")


def main() -> dict[str, Any]:
    """Measure shares, an epoch under masks, and one-shot."""
    scenario = load("paper").with_settings({"timing.draws": 250})
    shared = SharedProblem(silent)
    problem = shared.get(scenario)()
    return {
        "shares": _shares(),
        "epoch": _epoch(scenario, problem),
        "runs": _runs(scenario, shared),
    }


def _shares() -> dict[str, float]:
    """Two secrets of each of 120 devices, split for all and joined again from 80 shares."""
    numbers, sharing = range(1, 121), SecretSharing(80)
    secrets = [bytes(32), bytes(32)]

    def split() -> None:
        for _ in numbers:
            sharing.split(secrets, numbers)

    shares = np.repeat(sharing.split(secrets[:1], numbers), 120, axis=1)
    best = best_seconds({"split": split, "join": lambda: sharing.join(numbers[:80], shares[:80])})
    show("120 devices split two secrets each, threshold 80", best["split"], 1.0, "s")
    show("the server joins 120 secrets", best["join"], 1.0, "s")
    return best


def _epoch(scenario: Scenario, problem: Problem) -> dict[str, Any]:
    """Let every device go through one epoch for real, with masks and without, and hold the gradients together."""
    model = 0.1 * np.random.default_rng(0).standard_normal(problem.shape)
    talks = {
        name: _Talk(scenario.with_settings({"scheme": name}), problem, model) for name in ("conventional", "secagg")
    }
    best = best_seconds({name: talk.take for name, talk in talks.items()})
    plain, masked = talks["conventional"], talks["secagg"]
    devices = len(problem.shards)
    result: dict[str, Any] = {
        "plain_seconds": best["conventional"] / devices,
        "masked_seconds": best["secagg"] / devices,
        "bits": {name: talk.bits for name, talk in talks.items()},
        "macs": {name: talk.macs for name, talk in talks.items()},
    }
    show("a device's plain reply, and its share of combining", 1e3 * result["plain_seconds"], None, "ms")
    extra = result["masked_seconds"] - result["plain_seconds"]
    show("masks, shares and envelopes of a device, and its share of opening", 1e3 * extra, None, "ms")
    for link in ("up", "down"):
        ratio = masked.bits[link] / plain.bits[link]
        show(f"bits {link} under masks / plain ({masked.bits[link] / 1e3:.0f} kbit a device)", ratio)
    show("multiplications under masks / plain", masked.macs / plain.macs)
    exact = _gradient(problem, model)
    for name, talk in talks.items():
        result[f"{name}_error"] = float(np.linalg.norm(talk.gradient - exact) / np.linalg.norm(exact))
        show(f"{name}: relative error of the gradient, against float64", result[f"{name}_error"], 1e-5)
    difference = np.abs(masked.gradient - plain.gradient).max() * problem.samples
    result["difference_of_sums"] = float(difference)
    show("largest difference of the two sums, entry by entry", result["difference_of_sums"])
    return result


class _Talk:
    """A server and its devices, and what the newest epoch sent and multiplied."""

    def __init__(self, scenario: Scenario, problem: Problem, model: np.ndarray) -> None:
        scheme = schemes.create(scenario, problem)
        self._server = scheme.server()
        self._devices = [scheme.device(index, shard) for index, shard in enumerate(problem.shards)]
        self._model = model
        self.bits = {"up": 0.0, "down": 0.0}
        self.macs = 0.0
        self.gradient = np.zeros(problem.shape)

    def take(self) -> None:
        """Go through all questions of an epoch."""
        work, n = Work(), len(self._devices)
        self.bits = {"up": 0.0, "down": 0.0}
        question: Round | None = self._server.ask(2, self._model)
        replies: dict[int, Message] = {}
        while question is not None:
            requests = question.requests
            replies = {device: self._devices[device].reply(2, request, work) for device, request in requests.items()}
            self.bits["down"] += sum(map(message_bits, requests.values())) / n
            self.bits["up"] += sum(map(message_bits, replies.values())) / n
            question = self._server.follow_up(2, replies, Work())
        self.macs = work.macs / n
        self.gradient = self._server.combine(2, replies, Work())


def _gradient(problem: Problem, model: np.ndarray) -> np.ndarray:
    """The plaintext gradient at the model as it is sent, from the data in float64."""
    theta, total = model.astype(problem.dtype).astype(np.float64), np.zeros(problem.shape)
    for shard in problem.shards:
        x, y = shard.x.astype(np.float64), shard.y.astype(np.float64)
        total += x.T @ (x @ theta - y)
    return np.asarray(total / problem.samples)


def _runs(scenario: Scenario, shared: SharedProblem) -> dict[str, Any]:
    """Train one-shot in both rings, and conjugate gradients with masks and without; finished runs are kept."""
    closed = {"scheme": "one-shot", "training.solver": "closed-form"}
    cg = {"training.solver": "conjugate-gradients", "training.epochs": 20, "training.stop_at_last_target": True}
    wanted: dict[str, dict[str, Any]] = {
        "one-shot, 32 bits": {**closed, "schemes.one-shot.ring": "Z_2^32"},
        "one-shot, 64 bits": {**closed, "schemes.one-shot.ring": "Z_2^64"},
        "conventional, conjugate gradients": {"scheme": "conventional", **cg},
        "secagg, conjugate gradients": {"scheme": "secagg", **cg},
        "sealed, conjugate gradients": {"scheme": "sealed", **cg},
        "secagg round sealed, conjugate gradients": {"scheme": "secagg", "schemes.secagg.inner": "sealed", **cg},
    }
    runs = {name: _run(scenario.with_settings(changes), shared) for name, changes in wanted.items()}
    problem = shared.get(scenario)()
    return {name: _told(name, run, problem) for name, run in runs.items()}


def _run(scenario: Scenario, shared: SharedProblem) -> Run:
    return execute(scenario, OUT / f"{scenario.scheme}-{scenario.id()}", problem=shared.get(scenario))


def _told(name: str, run: Run, problem: Problem) -> dict[str, Any]:
    seconds = run.seconds_to(TARGET)
    result: dict[str, Any] = {
        "epochs": first_epoch(run.epochs["accuracy"], TARGET),
        "final_accuracy": run.summary["final_accuracy"],
        "seconds": None if seconds is None else float(seconds.mean()),
        "wall_seconds": run.summary["wall_seconds"],
        "gradient_error": run.summary["gradient_error"],
        "up_bits": run.summary["bits_sent"]["up"],
    }
    if result["seconds"] is not None:
        show(f"{name}: virtual seconds to 95%", result["seconds"], None, "s")
    if name.startswith("one-shot"):
        result["solution_error"] = _solution_error(run, problem)
        show(f"{name}: relative error of the solution", result["solution_error"])
    show(f"{name}: accuracy at the end, in percent", 100 * result["final_accuracy"])
    return result


def _solution_error(run: Run, problem: Problem) -> float:
    with np.load(run.path / "model.npz") as arrays:
        model: Sequence[Any] = arrays["theta"]
    true = problem.ridge_solution()
    return float(np.linalg.norm(np.asarray(model) - true) / np.linalg.norm(true))


if __name__ == "__main__":
    main()
