"""Wide models: memory, time and gradient error of runs with up to 10,000 features, and ratios to the bare products.

``python -m benchmarks.wide run SCHEME D`` measures one of them; with ``CODEDFL_MEMORY`` in the environment, large
arrays of a run that needs more gigabytes lie on disk.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import best_seconds
from codedfl.runs import execute
from codedfl.runs.room import Memory
from codedfl.scenario import Scenario, load
from codedfl.task import RawData

CASES = (("conventional", 10_000), ("one-shot", 10_000), ("sealed-coded", 10_000), ("code-based", 4_000))
EPOCHS = 3


def main() -> dict[str, Any]:
    """Measure every case in a process of its own."""
    results: dict[str, Any] = {}
    for scheme, features in CASES:
        command = [sys.executable, "-m", "benchmarks.wide", "run", scheme, str(features)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        results[f"{scheme} {features}"] = found = json.loads(done.stdout.splitlines()[-1])
        print(_line(scheme, features, found), flush=True)
    return results


def _line(scheme: str, features: int, found: dict[str, Any]) -> str:
    return (
        f"{scheme}, {features} features, {found['epochs']} epochs: {found['gigabytes']:.1f} GB (bound "
        f"{found['bound']:.1f}), {found['seconds']:.0f} s, {found['cpu']:.0f} s of CPU, {found['ratio']:.1f} times the "
        f"bare products ({found['bare']:.0f} s); largest error of a gradient {found['error']:.1e}"
    )


def chosen(scheme: str, features: int) -> Scenario:
    """Return the paper's fleet and data with so many features; a code has rate 1/2."""
    settings = {"scheme": scheme, "features.dimension": features, "training.epochs": EPOCHS}
    code = {"schemes.code-based.n": 2 * features} if scheme == "code-based" else {}
    return load("paper").with_settings({**settings, **code, "training.targets": [], "timing.draws": 20})


def measured(scheme: str, features: int) -> dict[str, Any]:
    """Run one case in this process."""
    scenario = chosen(scheme, features)
    bound = Memory.needed(scenario, RawData.load(scenario)).total
    began, before = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        run = execute(scenario, Path(folder) / "run")
    seconds, cpu = time.perf_counter() - began, time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    bare = bare_seconds(scenario, run.summary["epochs"])
    error = float(np.nanmax(run.epochs["gradient_error"])) if len(run.epochs["gradient_error"]) else float("nan")
    sizes = {"gigabytes": peak / 1e9, "bound": bound / 1e9}
    times = {"seconds": seconds, "cpu": cpu, "bare": bare, "ratio": cpu / bare}
    return {
        "epochs": run.summary["epochs"],
        **sizes,
        **times,
        "error": error,
        "accuracy": run.summary["final_accuracy"],
    }


def bare_seconds(scenario: Scenario, epochs: int) -> float:
    """Return what the products of a run take on this thread, measured at their own widths.

    These are the features of 70,000 rows; the sum of Gram matrices that gradients are held against; where a scheme
    computes with Gram matrices, those of the devices as well; their encoding with a code; and scores.
    """
    rng, d, c = np.random.default_rng(0), scenario.features.dimension, 10
    inputs, weights = rng.standard_normal((2000, 784), np.float32), rng.standard_normal((784, d), np.float32)
    rows = rng.standard_normal((2400, d), np.float32)
    double, model = rng.standard_normal((2000, d)), rng.standard_normal((d, c))
    calls = {
        "features": lambda: inputs @ weights,
        "gram": lambda: rows.T @ rows,
        "score": lambda: rows @ model.astype(np.float32),
        "reference": lambda: double @ model,
    }
    if scenario.scheme == "code-based":
        n = scenario.options("code-based").n
        square, generator = rng.standard_normal((1000, d), np.float32), rng.standard_normal((d, n), np.float32)
        calls["encoding"] = lambda: square @ generator
    took = best_seconds(calls, clock=time.thread_time)
    grams = 1 if scenario.scheme == "conventional" else 2
    found = 35 * took["features"] + grams * 25 * took["gram"]
    found += epochs * (took["score"] * 10_000 / 2400 + took["reference"] * d / 2000)
    return float(found + took.get("encoding", 0.0) * 25 * d / 1000)


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[2], int(sys.argv[3]))))
