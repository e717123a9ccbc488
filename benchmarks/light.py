"""What a small site pays in time for the libraries that it does without: its work with and without them.

Sizes are those of the paper: 2000 features, 10 outputs, 480 samples of 784 pixels a device. Ratios above 1 say how many
times longer NumPy and the standard library take; results have the same bits (``tests/codes/modular/test_portable.py``).
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import best_seconds, show
from benchmarks.small_sites import BLOCKER
from codedfl.cipher.seals import portable as portable_triangles
from codedfl.codes.modular import _MODULES, PRIME_31, PRIME_48, PRIME_61, portable
from codedfl.data import plain_csv, tables
from codedfl.data import portable as portable_cosine

D, C, SAMPLES, PIXELS = 2000, 10, 480, 784
ROWS, COLUMNS = 20_000, 20
Task = Callable[[], object]
Pair = tuple[Task, Task]


def main() -> dict[str, Any]:
    """Take turns, and print how many times longer each piece of work takes."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (library, plain) in {**products(), **passes(), **reading(Path(folder))}.items():
            best = best_seconds({"library": library, "plain": plain})
            ratio = best["plain"] / best["library"]
            show(f"{name}: {1e3 * best['library']:.3g} ms, without {1e3 * best['plain']:.3g} ms; ratio", ratio)
            results[name] = {**best, "ratio": ratio}
    results["start"] = {name: start(blocked) for name, blocked in (("all libraries", False), ("small site", True))}
    return results


def _compiled(name: str) -> Callable[..., Any]:
    module = next((module for module, names in _MODULES.items() if name in names), "kernels")
    return getattr(import_module(f"codedfl.codes.modular.{module}"), name)  # type: ignore[no-any-return]


def products() -> dict[str, Pair]:
    """A reply of a worker, and what it does with blocks: numba."""
    rng, found = np.random.default_rng(0), {}
    kinds = {"31": (PRIME_31, np.uint32), "48": (PRIME_48, np.uint64), "61": (PRIME_61, np.uint64)}
    kinds |= {"wrapping": (2**32, np.uint32), "64": (2**63, np.uint64)}
    for bits, (modulus, dtype) in kinds.items():
        left, right = (rng.integers(0, modulus, shape, np.uint64).astype(dtype) for shape in ((C, D), (D, D)))
        out = np.empty((C, D), dtype)

        def product(function: Callable[..., Any], left: Any = left, right: Any = right, out: Any = out) -> Task:
            return lambda: function(left, right, out, 0, D)

        label = f"numba: product {C} x {D} x {D}, {bits}"
        found[label] = product(_compiled(f"product_{bits}")), product(getattr(portable, f"product_{bits}"))
        if bits in ("31", "48", "61"):
            total, block = (rng.integers(0, modulus, D * D, np.uint64).astype(dtype) for _ in range(2))

            def added(function: Callable[..., Any], total: Any = total, block: Any = block) -> Task:
                return lambda: function(total, block.dtype.type(12345), block)

            name = f"add_multiple_{bits}"
            found[f"numba: add a multiple of {D} x {D}, {bits}"] = (
                added(_compiled(name)),
                added(getattr(portable, name)),
            )
    return found


def passes() -> dict[str, Pair]:
    """The set-up of a device: features of its samples, and its Gram matrix as residues; numba."""
    from codedfl.cipher.seals import kernels
    from codedfl.data.kernels import cosine_of_turns

    rng = np.random.default_rng(0)
    matrix, packed = rng.standard_normal((D, D)), np.empty(D * (D + 1) // 2, np.uint64)
    whole, block = np.empty((D, D), np.uint64), rng.standard_normal((SAMPLES, D)).astype(np.float32)
    offset, zero = rng.random(D, np.float32), np.uint64(0)

    def triangle(module: Any) -> Task:
        return lambda: (
            module.encode_upper_wide(matrix, 2.0**20, 100.0, zero, packed),
            module.unpack_upper(packed, whole),
        )

    def cosine(function: Callable[..., Any]) -> Task:
        return lambda: function(block.copy(), offset, np.float32(0.03))

    return {
        f"numba: Gram matrix of {D} to residues and back": (triangle(kernels), triangle(portable_triangles)),
        f"numba: cosines of {SAMPLES} x {D} features": (
            cosine(cosine_of_turns),
            cosine(portable_cosine.cosine_of_turns),
        ),
    }


def reading(folder: Path) -> dict[str, Pair]:
    """A table of numbers: pyarrow."""
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS))
    names = [f"x{place}" for place in range(COLUMNS)]
    path = folder / "rows.csv"
    path.write_text("\n".join([",".join(names), *(",".join(f"{value:.6f}" for value in row) for row in x)]) + "\n")

    def read(table: Any) -> object:
        return tables.part_of(table, path, None)

    return {
        f"pyarrow: read {ROWS} x {COLUMNS} cells of CSV": (
            lambda: read(tables.open_table(path)),
            lambda: read(plain_csv.read_csv(path)),
        )
    }


def start(blocked: bool) -> dict[str, float]:
    """CPU seconds and memory of what a site imports, without its engine, and of one product, in a new process."""
    lines = ["import sys, resource"]
    if blocked:
        lines += [BLOCKER]
    lines += ["import codedfl.deploy.site.host, codedfl.deploy.flare.sites, codedfl.schemes"]
    lines += ["from codedfl.schemes import SCHEMES", "SCHEMES['sealed-coded']", "import numpy as np"]
    lines += ["from codedfl.cipher.seals.rings import FIELD_61 as F"]
    lines += ["F.product(np.ones((2, 2), np.uint64), np.ones((2, 2), np.uint64))"]
    lines += ["used = resource.getrusage(resource.RUSAGE_SELF)"]
    # the peak that getrusage tells is that of the parent, if it was larger
    lines += ["peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))"]
    lines += ["print(used.ru_utime + used.ru_stime, int(peak.split()[1]) / 1024)"]
    runs = []
    for _ in range(4):  # the first writes bytecode
        done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
        runs.append([float(word) for word in done.stdout.split()])
    seconds, megabytes = min(runs[1:])
    about = "small site" if blocked else "all libraries"
    show(f"start, {about}: CPU", seconds, 1.0 if blocked else None, unit="s")
    show(f"start, {about}: memory", megabytes, 150.0 if blocked else None, unit="MB")
    return {"cpu_seconds": seconds, "megabytes": megabytes}


if __name__ == "__main__":
    main()
