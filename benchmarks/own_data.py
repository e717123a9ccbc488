"""A table of one's own, 200,000 x 50 rows of 20 owners: wall time and memory beside scikit-learn on the pooled array.

Each contender runs in a process of its own, one after the other, on the same Parquet file. scikit-learn reads the file,
standardises and solves; codedfl does the whole run: sums of columns, set-up, training, timing draws, run directory.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from benchmarks.measure import show

ROWS, COLUMNS, OWNERS, RIDGE = 200_000, 50, 20, 1e-3
SCHEMES = ("conventional", "sealed", "sealed-coded", "one-shot", "secagg", "coded-padded")

POOLED = f"""
import pyarrow.parquet, numpy as np
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
table = pyarrow.parquet.read_table(path)
names = [name for name in table.column_names if name not in ("owner", "y")]
x = np.stack([table[name].to_numpy() for name in names], axis=1)
y = table["y"].to_numpy()
model = make_pipeline(StandardScaler(), Ridge(alpha={RIDGE} * len(x))).fit(x, y)
found = model[-1].coef_.tolist()
"""
FEDERATED = """
import codedfl
run = codedfl.run("own-data", folder, {
    "scheme": scheme, "data.source": path, "data.target": "y", "data.test_fraction": 0.0,
    "partition.kind": "column", "partition.column": "owner", "task.ridge": RIDGE, "timing.draws": 100})
model = codedfl.load_model(folder)
found = (run.model[:, 0] * model.preparation.target_unit[0]).tolist()
"""
REPORT = """
import json, resource, time
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"wall": time.perf_counter() - began, "cpu": used.ru_utime + used.ru_stime,
                  "mb": used.ru_maxrss / 1024, "found": found}))
"""


def make(path: Path) -> None:
    """Write columns of very different scales, and unequal owners."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, COLUMNS)) * np.geomspace(1e-3, 1e5, COLUMNS) + rng.normal(size=COLUMNS) * 100
    y = (x / x.std(axis=0)) @ rng.standard_normal(COLUMNS) * 1e4 + 3e4 * rng.standard_normal(ROWS)
    owner = rng.choice(OWNERS, ROWS, p=rng.dirichlet(np.full(OWNERS, 2.0)))
    columns = {f"x{j}": x[:, j] for j in range(COLUMNS)} | {"owner": [f"owner-{o:02d}" for o in owner], "y": y}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def main() -> dict[str, Any]:
    """Print wall time, CPU time and memory, each as a ratio to scikit-learn's in the same run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        make(path)
        results = {"pooled": _measured(POOLED, path=str(path))}
        for scheme in SCHEMES:
            results[scheme] = _measured(
                FEDERATED, path=str(path), folder=f"{folder}/{scheme}", scheme=scheme, RIDGE=RIDGE
            )
    wanted = np.array(results["pooled"].pop("found"))
    for name, each in results.items():
        if name != "pooled":
            each["difference"] = float(np.abs(np.array(each.pop("found")) - wanted).max() / np.abs(wanted).max())
            each["wall_over_pooled"] = each["wall"] / results["pooled"]["wall"]
            each["memory_over_pooled"] = each["mb"] / results["pooled"]["mb"]
        for key, value in each.items():
            show(f"{name}: {key}", value)
    return results


def _measured(code: str, **given: Any) -> dict[str, Any]:
    lines = ["import time", "began = time.perf_counter()", *(f"{name} = {value!r}" for name, value in given.items())]
    program = "\n".join([*lines, code, REPORT])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))
