"""Gram matrices times models with one BLAS thread and with one a core, while four processes load the machine."""

import os
import subprocess
import sys
from typing import Any

from benchmarks.measure import show

BUSY = 4
ROUNDS = 2
_LOAD = "while True: pass"
_WORK = """
import hashlib, time
import numpy as np
rng = np.random.default_rng(0)
grams = [rng.standard_normal((2000, 2000), np.float32) for _ in range(6)]
model = rng.standard_normal((2000, 10), np.float32)
began, cpu = time.perf_counter(), time.process_time()
for _ in range(40):
    replies = [gram @ model for gram in grams]
    for _ in range(300):  # the server's turn: idle threads of BLAS spin meanwhile
        np.sum(model)
bits = hashlib.sha256(b"".join(reply.tobytes() for reply in replies)).hexdigest()
print(time.perf_counter() - began, time.process_time() - cpu, bits)
"""


def main() -> dict[str, Any]:
    """Print wall and CPU time, and whether bits agree."""
    found: dict[str, list[tuple[float, float, str]]] = {}
    threads = {"one thread": "1", f"{os.cpu_count()} threads": str(os.cpu_count())}
    load = [subprocess.Popen([sys.executable, "-c", _LOAD]) for _ in range(BUSY)]
    try:
        for _ in range(ROUNDS):
            for name, number in threads.items():
                chosen = os.environ | {"OPENBLAS_NUM_THREADS": number, "OMP_NUM_THREADS": number}
                told = subprocess.run(
                    [sys.executable, "-c", _WORK], env=chosen, check=True, capture_output=True, text=True
                ).stdout.split()
                found.setdefault(name, []).append((float(told[0]), float(told[1]), told[2]))
    finally:
        for process in load:
            process.kill()
            process.wait()
    for name, rows in found.items():
        show(f"{name}: wall time beside {BUSY} busy processes", min(row[0] for row in rows), unit="s")
        show(f"{name}: CPU time", min(row[1] for row in rows), unit="s")
    show("different results", len({row[2] for rows in found.values() for row in rows}))
    return {
        name: [{"wall": wall, "cpu": cpu, "bits": bits} for wall, cpu, bits in rows] for name, rows in found.items()
    }
