"""Wrong data of one's own."""

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from cli.wrong import FOLDER, Wrong

OWN = """
scheme = "conventional"
[data]
source = "data.csv"
[features]
kind = "none"
[training]
epochs = 8
learning_rate = 0.01
targets = []
decay_epochs = []
[[fleet.devices]]
count = 2
mac_rate = 1e6
[timing]
draws = 2
"""
RNG = np.random.default_rng(0)
X, CLASSES, VALUES = RNG.standard_normal((40, 3)), np.arange(40) % 2, RNG.standard_normal(40)


def own(source: str, **more: Any) -> str:
    """A scenario on one's own data; further keys go to [data]."""
    lines = [f'source = "{source}"', *(f"{key} = {value!r}".replace("'", '"') for key, value in more.items())]
    return OWN.replace('source = "data.csv"', "\n".join(lines))


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def parquet(**columns: Any) -> bytes:
    file = io.BytesIO()
    pyarrow.parquet.write_table(pa.table(columns), file)
    return file.getvalue()


def csv(x: Any = X, y: Any = CLASSES, names: str = "a,b,c,y") -> str:
    rows = [",".join(map(str, [*row, target])) for row, target in zip(x, y, strict=True)]
    return "\n".join([names, *rows, ""])


def holed(x: np.ndarray = X, value: float = np.nan) -> np.ndarray:
    broken = x.copy()
    broken[7, 1] = value
    return broken


def data(name: str, content: str | bytes | None, *says: str, code: int = 1, **more: Any) -> Wrong:
    files = {"own.toml": own(name, **more), name: content}
    return Wrong(("run", "own.toml", "--out", "out"), code, says, files)


DATA = {
    "missing file": Wrong(("run", "own.toml"), 1, ("data.csv",), {"own.toml": OWN}),
    "folder": data("data.csv", FOLDER, "data.csv"),
    "unknown ending": data("data.txt", csv(), "data.txt", ".csv", ".parquet", ".npz"),
    "hole in .csv": data("data.csv", csv(holed()), "row 7"),
    "gap in .csv": data("data.csv", csv().replace(str(X[3, 1]), ""), "missing"),
    "hole in .parquet": data("data.parquet", parquet(a=holed()[:, 1], y=CLASSES), "missing or infinite"),
    "hole in .npz": data("data.npz", npz(x=holed(), y=CLASSES), "missing or infinite", "row"),
    "infinite in .npz": data("data.npz", npz(x=holed(value=np.inf), y=CLASSES), "missing or infinite"),
    "hole in the targets": data("data.npz", npz(x=X, y=np.where(CLASSES, np.nan, 1.0)), "missing or infinite"),
    "one dimension": data("data.npz", npz(x=X[:, 0], y=CLASSES), "dimensions"),
    "three dimensions": data("data.npz", npz(x=X[:, :, None], y=CLASSES), "dimensions"),
    "lengths differ": data("data.npz", npz(x=X, y=CLASSES[:-1]), "(40, 3)", "(39,)"),
    "columns differ": data(
        "data.npz", npz(x_train=X, y_train=CLASSES, x_test=X[:, :2], y_test=CLASSES), "3 columns", "2"
    ),
    "complex numbers": data("data.npz", npz(x=X * 1j, y=CLASSES), "complex"),
    "other names": data("data.npz", npz(features=X, labels=CLASSES), "features, labels", "x_train"),
    "objects": data("data.npz", npz(x=np.array([{}] * 40, dtype=object), y=CLASSES), "objects"),
    "empty .csv": data("data.csv", "", "data.csv"),
    "empty .parquet": data("data.parquet", b"", "data.parquet"),
    "empty .npz": data("data.npz", b"", "data.npz"),
    "no arrays": data("data.npz", npz(), "data.npz"),
    "no rows": data("data.csv", "a,b,y\n", "0 rows"),
    "garbage .parquet": data("data.parquet", b"PAR1 is how it begins", "data.parquet"),
    "cut .parquet": data("data.parquet", parquet(a=X[:, 0], y=CLASSES)[:-40], "data.parquet"),
    "garbage .npz": data("data.npz", b"PK\x03\x04 is how it begins", "data.npz"),
    "ragged .csv": data("data.csv", "a,b,y\n1,2,0\n1,2\n", "data.csv"),
    "dates as features": data("data.csv", "a,b,y\n1,2020-01-01,0\n2,2020-01-02,1\n", "'b' holds date32"),
    "text among numbers": data("data.csv", "a,b,y\n1,1,0\n2,2,1\n3,x,1\n", "row 2", "'b'", "'x'"),
    "a cell without number": data("data.csv", "a,b,y\n1,1,0\n,2,1\n3,4,1\n", "row 1", "'a'", "features.missing"),
    "only a target": data("data.csv", "y\n1\n2\n", "target y"),
    "a column twice": data("data.csv", "a,a,y\n1,2,0\n3,4,1\n", "'a'"),
    "no such target": data("data.csv", csv(), "'z'", "a, b, c, y", target="z"),
    "target of a .npz": data("data.npz", npz(x=X, y=CLASSES), "'y'", code=2, target="y"),
    "text to regress": data("data.csv", csv(y=["red", "blue"] * 20), "red", "regression", kind="regression"),
    "unknown kind": data("data.csv", csv(), "data.kind", "ranking", code=2, kind="ranking"),
    "all for testing": data("data.csv", csv(), "data.test_fraction", code=2, test_fraction=1.0),
    "class missing from training": data(
        "data.npz", npz(x_train=X, y_train=CLASSES, x_test=X[:3], y_test=np.array([0, 1, 7])), "7", "training"
    ),
    "constant target of the test": data(
        "data.npz", npz(x_train=X, y_train=VALUES, x_test=X[:3], y_test=np.ones(3)), "constant"
    ),
    "too few samples": data("data.csv", csv(X[:2], CLASSES[:2]), "test"),
    "missing test file": data("data.csv", csv(), "test.csv", test_source="test.csv"),
    "two test sets": data(
        *("data.npz", npz(x_train=X, y_train=CLASSES, x_test=X, y_test=CLASSES), "test"),
        code=2,
        test_source="data.npz",
    ),
    "classes for a regression's partition": Wrong(
        ("run", "own.toml", "--set", "partition.kind=dirichlet", "--out", "out"),
        1,
        ("dirichlet", "classes"),
        {"own.toml": own("data.csv"), "data.csv": csv(y=VALUES)},
    ),
    **{
        f"features too large to be sealed, {scheme}": Wrong(
            *(("run", "own.toml", "--set", f"scheme={scheme}", "--set", "task.precision=float64", "--out", "out"), 1),
            *(("whose squares cannot", "scale the column"), {"own.toml": own("data.csv"), "data.csv": csv(X * 1e200)}),
        )
        for scheme in ("sealed", "sealed-coded")
    },
    "a single feature, coded": Wrong(
        ("run", "own.toml", "--set", "scheme=sealed-coded", "--out", "out"),
        2,
        ("sealed-coded", "at least 2 features"),
        {"own.toml": own("data.csv"), "data.csv": csv(X[:, :1], names="a,y")},
    ),
    "test file with other columns": Wrong(
        ("run", "own.toml", "--out", "out"),
        1,
        ("test.csv", "columns"),
        {
            "own.toml": own("data.csv", test_source="test.csv"),
            "data.csv": csv(),
            "test.csv": csv(names="a,b,d,y"),
        },
    ),
    "data set that is nowhere": Wrong(
        ("data", "fetch", "mnist"), 1, ("mnist", "CODEDFL_DATA", "train-images-idx3-ubyte"), narrated=True
    ),
    "tampered data set": Wrong(
        ("run", "paper", "--out", "out"),
        1,
        ("mnist", "does not match its checksum", "CODEDFL_DATA"),
        {"../cache/mnist/train-images-idx3-ubyte": b"\0\0\x08\3 tampered"},
        narrated=True,
    ),
    "tampered data set twice": Wrong(
        ("run", "fashion", "--out", "out"),
        1,
        ("fashion", "does not match its checksum", "is refused"),
        {
            "../cache/fashion/t10k-labels-idx1-ubyte": b"tampered",
            "../data/fashion/t10k-labels-idx1-ubyte": b"tampered",
        },
        narrated=True,
    ),
}
