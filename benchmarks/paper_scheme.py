"""The paper's scheme at full size: gradients against plaintext, and wall time against the bare products it must do."""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import best_seconds, show
from codedfl.runs import Run, execute
from codedfl.scenario import load
from codedfl.task import Problem
from codedfl.training import BLOCK

EPOCHS = 120
LIMITS = {"float32": 1e-4, "float64": 1e-9}


def main() -> dict[str, Any]:
    """Train 120 epochs with float32 and with float64 numbers, through sharing, forwarding and decoding."""
    results: dict[str, Any] = {}
    for precision, limit in LIMITS.items():
        changes = {"task.precision": precision, "training.epochs": EPOCHS, "timing.draws": 2}
        scenario = load("paper-92").with_settings(changes)
        problem = Problem.build(scenario)
        _ = problem.total_gram
        with tempfile.TemporaryDirectory() as folder:
            run = execute(scenario, Path(folder) / "run", problem=lambda problem=problem: problem)  # type: ignore[misc]
        error = run.summary["gradient_error"]
        show(f"{precision}: gradient error over {EPOCHS} epochs, {run.summary['handovers']} hand-overs", error, limit)
        results[precision] = {"gradient_error": error, "handovers": run.summary["handovers"]}
        if precision == "float32":
            results["wall"] = _wall(run, problem)
        del problem
    return results


def _wall(run: Run, problem: Problem) -> dict[str, float]:
    """Compare the run's wall time (keys left out) with its products done bare."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        execute(run.scenario, Path(folder) / "run", problem=lambda: problem)  # keys and encodings are there already
        wall = time.perf_counter() - began
    replies = int(np.sum(run.epochs["replies"][1:]))
    n = run.scenario.to_table()["schemes"]["code-based"]["n"]
    d, c = problem.shape
    random = np.random.default_rng(0)
    theta, held, square, exact, models, tests = (
        random.random(shape, dtype=np.float32)
        for shape in ((c, d), (d, n), (d, d), (d, d), (d, BLOCK * c), problem.x_test.shape)
    )
    exact = exact.astype(np.float64)
    bare = best_seconds(
        {
            "reply": lambda: theta @ held,
            "unscramble": lambda: theta @ square,
            "score": lambda: (tests @ models, exact @ models.astype(np.float64)),
        },
        rounds=5,
    )
    total = replies * bare["reply"] + EPOCHS * bare["unscramble"] + EPOCHS / BLOCK * bare["score"]
    show(f"wall time of {EPOCHS} epochs / bare products ({replies} replies, decoding, scoring)", wall / total)
    return {"wall_seconds": wall, "bare_seconds": total, "ratio": wall / total}


if __name__ == "__main__":
    main()
