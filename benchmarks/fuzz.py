"""A long campaign of mutated inputs against every reader of bytes that other parties make: counts, refusals, crashes.

``python -m benchmarks fuzz``; ``CODEDFL_FUZZ_SECONDS`` sets the seconds for each reader (default 20).
"""

import logging
import os
import re
import tempfile
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import show
from codedfl.testing.mutations import FuzzTarget, fuzz_targets, mutated

SECONDS = 20.0
SHOWN = 3


def campaign(target: FuzzTarget, seconds: float, seed: int = 0) -> dict[str, Any]:
    """Read mutations of a valid input for so long; return counts, and the slowest and largest per byte."""
    rng, count, accepted, refusals, crashes = np.random.default_rng(seed), 0, 0, Counter[str](), Counter[str]()
    slowest, began = 0.0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        given = mutated(target.valid, rng)
        if rng.random() < 0.2:
            given = mutated(given, rng)
        started = time.perf_counter()
        try:
            sentence = target.refusal(given)
        except Exception as error:
            crashes[f"{type(error).__name__}: {error}"[:100]] += 1
            sentence = None
        slowest = max(slowest, (time.perf_counter() - started) / max(len(given), 1024))
        count += 1
        accepted += sentence is None
        if sentence is not None:
            refusals[re.sub(r"'[^']*'|\([^)]*\)|/\S+|\d+", "*", sentence)[:80]] += 1
    tracemalloc.start()
    largest = 0.0
    for _ in range(200):
        given = mutated(target.valid, rng)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        try:
            target.refusal(given)
        except Exception as error:
            crashes[f"{type(error).__name__}: {error}"[:100]] += 1
        largest = max(largest, (tracemalloc.get_traced_memory()[1] - before) / max(len(given), 1024))
    tracemalloc.stop()
    return {
        **{"inputs": count, "accepted": accepted, "refused": count - accepted, "sentences": len(refusals)},
        **{"crashes": sum(crashes.values()), "kinds_of_crashes": dict(crashes)},
        **{"microseconds_per_byte": 1e6 * slowest, "bytes_of_memory_per_byte": largest},
        "most_frequent": dict(refusals.most_common(SHOWN)),
    }


def main() -> dict[str, Any]:
    """Run all campaigns."""
    logging.disable(logging.CRITICAL)
    seconds, results = float(os.environ.get("CODEDFL_FUZZ_SECONDS", SECONDS)), {}
    with tempfile.TemporaryDirectory() as folder:
        for target in fuzz_targets(Path(folder)):
            found = results[target.name] = campaign(target, seconds)
            show(f"{target.name}: inputs", found["inputs"])
            for name in ("refused", "sentences", "crashes", "microseconds_per_byte", "bytes_of_memory_per_byte"):
                show(f"  {name.replace('_', ' ')}", found[name])
            for sentence, times in found["most_frequent"].items():
                show(f"    {sentence}", times)
            for crash in found["kinds_of_crashes"]:
                show(f"    CRASH {crash}", found["kinds_of_crashes"][crash])
            target.refusal(target.valid)  # the next reader finds the file whole
    total, crashes = sum(each["inputs"] for each in results.values()), sum(each["crashes"] for each in results.values())
    show("all inputs", total)
    show("all crashes", crashes, 0)
    return {"seconds_per_reader": seconds, "inputs": total, "crashes": crashes, "readers": results}


if __name__ == "__main__":
    main()
