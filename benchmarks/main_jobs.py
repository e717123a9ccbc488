"""``reproduce`` and ``compare --all`` at full size: wall time, CPU time, and ratios to the bare products they need.

``python -m benchmarks.main_jobs FOLDER`` counts the products of a folder that either command has filled.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.measure import best_seconds, show
from codedfl.runs import Run, load
from codedfl.training.loop import BLOCK

JOBS = {"reproduce": (["reproduce"], 180.0), "compare --all": (["compare", "--all"], 1200.0)}
"""Commands, and the wall time wanted of each on two idle cores."""

_BATCHED = ("minibatch", "parity")
_SUMMED = ("conventional", "drop-slowest", "deadline", *_BATCHED)
"""Schemes in clear whose servers use the sum of replies only (``codedfl.schemes.plain.pooling``)."""


def main() -> dict[str, Any]:
    """Run both jobs in new folders."""
    found = {}
    for name, (command, limit) in JOBS.items():
        with tempfile.TemporaryDirectory() as scratch:
            began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            words = [sys.executable, "-m", "codedfl.cli", *command, "--out", f"{scratch}/out"]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
            wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
            bare = bare_seconds(Path(scratch) / "out")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        total, cores = sum(bare.values()), os.cpu_count() or 1
        show(f"{name}: wall time", wall, limit, "s")
        show(f"{name}: CPU time", cpu, unit="s")
        for part, each in bare.items():
            show(f"{name}: bare products, {part}", each, unit="s")
        show(f"{name}: CPU time in bare products", cpu / total)
        show(f"{name}: wall time in bare products on {cores} cores", wall / (total / cores))
        found[name] = {"wall": wall, "cpu": cpu, "bare": bare, "ratio_cpu": cpu / total}
    return found


def bare_seconds(out: Path) -> dict[str, float]:
    """Return what the products of all runs below a folder take on one thread, measured here at their own shapes.

    Devices: their multiplications, as products of a block of rows and a model; replies in clear are summed in one
    product with the sum of Gram matrices, less what is missing, where that takes fewer. Losses: those of blocks of
    models, by the sum of Gram matrices; scores are left out, because few rows of the test set need a product. Data:
    features and Gram matrices, once for each seed and partition, and Gram matrices of all batches for each scheme that
    uses batches. Encryption: a product with the generator for each device and seed of ``code-based``.
    """
    runs = [load(path.parent) for path in sorted((out / "runs").rglob("summary.json"))]
    data, batches, encoded, macs, blocks = {}, set(), {}, 0.0, 0
    for run in runs:
        scenario = run.scenario
        key = (scenario.features.seed, scenario.partition, scenario.fleet.size)
        data[key] = scenario
        if scenario.scheme == "code-based":
            encoded[key] = scenario
        if scenario.scheme in _BATCHED:
            batches.add((*key, scenario.scheme))
        macs += _needed_macs(run)
        blocks += -(-run.summary["epochs"] // BLOCK)
    rates = _rates(runs[0].model.shape)
    d, c = runs[0].model.shape
    return {
        "devices": macs / rates["model"],
        "losses": blocks * BLOCK * c * d * d / rates["double"],
        "data": (len(data) * 70_000 * 784 * d + (len(data) + len(batches)) * 60_000 * d * d / 2) / rates["wide"],
        "encryption": sum(s.fleet.size * d * d * 2 * d for s in encoded.values()) / rates["wide"],
    }


def _needed_macs(run: Run) -> float:
    """Return the multiplications behind the replies of a run, summed where they may be.

    Of ``coded-padded`` those of the awaited replies and of one that checks them.
    """
    (d, c), devices, replies = run.model.shape, run.scenario.fleet.size, run.epochs["replies"]
    each = run.epochs["device_macs"] / devices
    if run.scenario.scheme == "coded-padded":
        return float((np.minimum(replies + 1, devices) * each).sum())
    if run.scenario.scheme not in _SUMMED:
        return float(run.summary["device_macs"])
    return float(np.minimum(replies * each, d * d * c + (devices - replies) * each).sum())


def _rates(shape: tuple[int, int]) -> Mapping[str, float]:
    """Return multiplications a second on one thread: with a model, wide in single and in double precision."""
    rng, (d, c) = np.random.default_rng(0), shape
    rows = [rng.standard_normal((480, d), np.float32) for _ in range(25)]  # more than fits the caches
    model, square = rng.standard_normal((d, c), np.float32), rng.standard_normal((d, d), np.float32)
    double, models = square.astype(np.float64), rng.standard_normal((d, BLOCK * c))
    with threadpool_limits(1):
        seconds = best_seconds(
            {
                "model": lambda: [each @ model for each in rows],
                "wide": lambda: square @ square,
                "double": lambda: double @ models,
            },
            clock=time.thread_time,
        )
    counts = {"model": 25 * 480 * d * c, "wide": d**3, "double": d * d * BLOCK * c}
    return {name: counts[name] / seconds[name] for name in seconds}


if __name__ == "__main__":
    print(json.dumps(bare_seconds(Path(sys.argv[1])), indent=2))
