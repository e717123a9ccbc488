"""Compare results of this tree with recorded ones, bit by bit.

``python -m benchmarks.same_results record FILE [--full]`` runs every scheme and stores models, epochs and time bands;
``compare FILE [--full]`` runs them again and lists every array that differs; a new one changes no result. Secret seeds
come from a counter here, so that two trees draw the same keys.
"""

import argparse
import hashlib
import itertools
import secrets
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

_SCHEMES = (  # noqa: SIM905
    "conventional minibatch drop-slowest deadline asynchronous parity coded-padded code-based sealed sealed-coded he "
    "secagg one-shot"
).split()
_NOT_COMPARED = {"gradient_error"}
"""Scored against plaintext; of schemes whose gradients are equal it is equal, too, so it is listed but not required."""


def cases(full: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield names and the arguments of ``codedfl run``."""
    for scheme, seed in itertools.product(_SCHEMES, range(2)):
        seeds = [f"{key}.seed={seed}" for key in ("features", "partition", "timing")]
        solver = ["training.solver=closed-form"] if scheme == "one-shot" else []
        yield f"{scheme} {seed}", ["paper-quick", *_sets(f"scheme={scheme}", "timing.repeats=2", *seeds, *solver)]
    if full:
        for preset in ("paper-92", "sealed-coded"):
            yield f"{preset} full", [preset]


def _sets(*pairs: str) -> list[str]:
    return [word for pair in pairs for word in ("--set", pair)]


def _count_seeds() -> None:
    numbers = itertools.count()

    def token_bytes(nbytes: int | None = None) -> bytes:
        return hashlib.shake_256(next(numbers).to_bytes(8, "little")).digest(nbytes or 32)

    secrets.token_bytes = token_bytes


def results(arguments: list[str]) -> dict[str, np.ndarray]:
    """Run one case and return its arrays."""
    import pyarrow.parquet

    from codedfl.cli import main

    _count_seeds()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            main(["run", *arguments, "--out", f"{scratch}/run", "--json"])
        except SystemExit as end:
            if end.code:
                raise
        run = Path(scratch) / "run"
        table = pyarrow.parquet.read_table(run / "epochs.parquet")
        arrays = {name: table[name].to_numpy() for name in table.column_names}
        model = run / "model" / "model.npz"
        with np.load(model if model.exists() else run / "model.npz") as stored:
            arrays["model"] = stored["theta"]
        return arrays | {"timings": np.load(run / "timings.npy")}


def main() -> int:
    """Record or compare."""
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("verb", choices=["record", "compare"])
    ask.add_argument("file", type=Path)
    ask.add_argument("--full", action="store_true")
    ask.add_argument("--only", default="")
    given = ask.parse_args()
    found: dict[str, np.ndarray] = {}
    out, sys.stdout = sys.stdout, sys.stderr
    for name, arguments in cases(given.full):
        if name.startswith(given.only):
            found |= {f"{name}/{key}": value for key, value in results(arguments).items()}
            print(f"{name} done", file=out, flush=True)
    sys.stdout = out
    if given.verb == "record":
        np.savez(given.file, **found)
        return 0
    with np.load(given.file) as stored:
        differing = [key for key in found if key not in stored or not _same(found[key], stored[key])]
        changed = [key for key in differing if key in stored and key.partition("/")[2] not in _NOT_COMPARED]
        for key in differing:
            print(f"differs: {key} {_distance(found[key], stored[key]) if key in stored else '(new)'}")
    print(f"{len(found) - len(differing)} of {len(found)} arrays equal to the last bit")
    return int(bool(changed))


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _distance(a: np.ndarray, b: np.ndarray) -> str:
    if a.shape != b.shape:
        return f"(shapes {a.shape}, {b.shape})"
    scale = float(np.nanmax(np.abs(b))) or 1.0
    return f"by {np.nanmax(np.abs(a - b)) / scale:.1e} of the largest"


if __name__ == "__main__":
    sys.exit(main())
