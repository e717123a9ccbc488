"""Wrong models, and wrong rows to predict."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from cli.wrong import FOLDER, Wrong
from cli.wrong.data import npz, parquet
from report.exports.made import made
from rundirs import files
from task.model.fitted import fitted

ROWS = "weight,size,colour\n0.1,3000,red\n0.2,2500,blue\n"
Files = dict[str, str | bytes | None]


def saved(labels: str | None = "text", **options: Any) -> Files:
    """The files of a finished run, as far as predictions need them."""
    with tempfile.TemporaryDirectory() as folder:
        fitted(labels, **options).model.save(Path(folder))
        found = {f"run/model/{path.name}": path.read_bytes() for path in Path(folder).iterdir()}
    return {"run/scenario.toml": "", "run/summary.json": "", **found}


def without(name: str) -> Files:
    """A finished run that has lost a file."""
    return {path: content for path, content in RUN.items() if path != f"run/{name}"}


MODEL, NUMERIC = saved(), saved(text=False)
RUN: Files = {f"run/{name}": (made() / name).read_bytes() for name in files(made())}
TABLE = json.loads(MODEL["run/model/model.json"] or "")


def predict(rows: str | bytes | None, *says: str, name: str = "rows.csv", code: int = 1, more: Any = ()) -> Wrong:
    files = {**MODEL, name: rows}
    return Wrong(("predict", "run", name, *more), code, says, files)


def with_model(*says: str, command: tuple[str, ...] = ("predict", "run", "rows.csv"), **files: Any) -> Wrong:
    named = {f"run/model/model.{ending}": content for ending, content in files.items()}
    return Wrong(command, 1, says, {**MODEL, "rows.csv": ROWS, **named})


MODELS = {
    "no run": Wrong(("predict", "run", "rows.csv"), 1, ("'run'", "finished run"), {"rows.csv": ROWS}),
    "a run that is a file": Wrong(("predict", "run", "rows.csv"), 1, ("'run'",), {"rows.csv": ROWS, "run": "text"}),
    "an unfinished run": Wrong(
        ("predict", "run", "rows.csv"), 1, ("not a finished run",), {"rows.csv": ROWS, "run/scenario.toml": "a"}
    ),
    "a run of an earlier version": Wrong(
        ("predict", "run", "rows.csv"),
        1,
        ("no folder 'model'", "train again"),
        {"rows.csv": ROWS, "run/scenario.toml": "", "run/summary.json": "", "run/model.npz": npz(theta=np.eye(3))},
    ),
    "a table that is damaged": with_model("model.json is not JSON", json="{"),
    "a table of a later version": with_model("format is 9", json=json.dumps(TABLE | {"schema_version": 9})),
    "a matrix that is damaged": with_model("no array theta", npz=b"PK\x03\x04"),
    "a matrix of another model": with_model("theta has", npz=npz(theta=np.zeros((3, 3)))),
    "a matrix with NaN": with_model("not finite", npz=npz(theta=np.full((5, 3), np.nan))),
    "no rows": Wrong(("predict", "run", "rows.csv"), 1, ("no file rows.csv",), MODEL),
    "rows that are a folder": predict(FOLDER, "rows.csv"),
    "rows of another ending": predict(ROWS, "'.txt'", ".csv", name="rows.txt"),
    "an empty file": predict("", "rows.csv"),
    "a header alone": predict("size,colour,weight\n", "0 rows"),
    "a missing column": predict(ROWS.replace("size", "length"), "no column 'size'", "size, colour, weight"),
    "a misspelt column": predict(ROWS.replace("colour", "color"), "did you mean 'color'?"),
    "a column twice": predict(ROWS.replace("weight", "size"), "more than one column named 'size'"),
    "an unseen category": predict(ROWS.replace("blue", "pink"), "'colour' holds 'pink'", "row 1"),
    "a category left out": predict(ROWS.replace("blue", ""), "'colour' holds a missing value", "row 1"),
    "a hole": predict(ROWS.replace("0.2", ""), "'weight' holds a missing value", "row 1"),
    "an infinite number": predict(ROWS.replace("0.2", "inf"), "'weight' holds an infinite value", "row 1"),
    "text for a number": predict(ROWS.replace("0.2", "light"), "'weight' holds 'light'", "row 1"),
    "a hole in .parquet": predict(
        parquet(size=[None, 1.0], colour=["red", "red"], weight=[1.0, 2.0]),
        *("'size' holds a missing value", "row 0"),
        name="rows.parquet",
    ),
    "garbage .parquet": predict(b"PAR1", "rows.parquet", name="rows.parquet"),
    "a .npz without x": predict(npz(y=np.zeros(3)), "the arrays y", name="rows.npz"),
    "a .npz of objects": predict(npz(x=np.array([[{}]], dtype=object)), "objects", name="rows.npz"),
    "a .npz of too few columns": predict(npz(x=np.zeros((2, 2))), "shape (2, 2)", "3 columns", name="rows.npz"),
    "a hole in .npz": Wrong(
        ("predict", "run", "rows.npz"),
        1,
        ("'weight' holds a missing value", "row 1"),
        {**NUMERIC, "rows.npz": npz(x=np.array([[1, 1], [1, np.nan]]))},
    ),
    "out of another ending": predict(ROWS, "'out.txt'", ".csv or .parquet", code=2, more=("--out", "out.txt")),
    "out that is a folder": Wrong(
        ("predict", "run", "rows.csv", "--out", "out.csv"),
        2,
        ("'out.csv' is a folder",),
        {**MODEL, "rows.csv": ROWS, "out.csv": FOLDER},
    ),
    "out in no folder": predict(ROWS, "cannot write 'none/out.csv'", more=("--out", "none/out.csv")),
    "out below a device": predict(ROWS, "cannot write", more=("--out", "/dev/null/out.csv")),
    "out that is the rows": predict(ROWS, "is the file of the rows", code=2, more=("--out", "rows.csv")),
    "scores of a regression": Wrong(
        ("predict", "run", "rows.csv", "--scores"), 2, ("--scores", "regression"), {**saved(None), "rows.csv": ROWS}
    ),
    "predict without rows": Wrong(("predict", "run"), 2, ("ROWS",), MODEL),
    "export of no run": Wrong(("export", "run", "model.onnx"), 1, ("'run'", "finished run")),
    "export of a damaged model": with_model("no array theta", command=("export", "run", "model.onnx"), npz=b""),
    "export to another ending": Wrong(("export", "run", "model.pt"), 2, ("'model.pt'", ".onnx"), MODEL),
    "export to no folder": Wrong(("export", "run", "none/model.onnx"), 1, ("cannot write 'none/model.onnx'",), MODEL),
    "export without a file": Wrong(("export", "run"), 2, ("FILE.onnx",), MODEL),
    "export to an unknown format": Wrong(
        ("export", "run", "log", "--to", "tensorbord"),
        2,
        ("'tensorbord'", "mlflow", "did you mean 'tensorboard'?"),
        RUN,
    ),
    "a trace of no run": Wrong(("export", "run", "trace.json"), 1, ("'run'", "not a finished run")),
    "a trace of a model alone": Wrong(("export", "run", "trace.json"), 1, ("not a finished run",), MODEL),
    "a trace without a timeline": Wrong(
        ("export", "run", "trace.json"), 1, ("neither timeline.parquet",), without("timeline.parquet")
    ),
    "a trace of a damaged timeline": Wrong(
        ("export", "run", "trace.json"), 1, ("timeline.parquet' is damaged",), {**RUN, "run/timeline.parquet": b"PAR1"}
    ),
    "a trace of a timeline without columns": Wrong(
        ("export", "run", "trace.json"),
        1,
        ("timeline.parquet' is damaged",),
        {**RUN, "run/timeline.parquet": parquet(epoch=[1])},
    ),
    "a trace of another ending": Wrong(
        ("export", "run", "trace.txt", "--to", "trace"), 2, ("'trace.txt'", ".json or .json.gz"), RUN
    ),
    "a trace over another file": Wrong(
        ("export", "run", "mine.json"), 2, ("'mine.json' exists",), {**RUN, "mine.json": '{"mine": 1}'}
    ),
    "a trace over a folder": Wrong(
        ("export", "run", "mine.json"), 2, ("'mine.json' is a folder",), {**RUN, "mine.json": FOLDER}
    ),
    "a trace to no folder": Wrong(("export", "run", "none/trace.json"), 1, ("cannot write 'none/trace.json'",), RUN),
    **{
        f"{name} {words}": Wrong(("export", "run", place, "--to", name), code, says, {**RUN, **files})
        for name in ("tensorboard", "mlflow")
        for words, place, code, says, files in (
            ("over a file", "mine", 2, ("'mine' is a file",), {"mine": "text"}),
            ("over a folder of others", "mine", 2, ("'mine' exists", "choose another"), {"mine/notes.txt": "text"}),
            ("over the run itself", "run", 2, ("'run' exists",), {}),
            ("below a file", "mine/log", 1, ("cannot write 'mine/log'",), {"mine": "text"}),
            ("below a device", "/dev/null/log", 1, ("cannot write '/dev/null/log'",), {}),
            ("of a name too long", "n" * 300, 1, ("too long",), {}),
        )
    },
    "tensorboard of no run": Wrong(("export", "run", "log", "--to", "tensorboard"), 1, ("not a finished run",)),
    "mlflow of an unfinished run": Wrong(
        ("export", "run", "log", "--to", "mlflow"), 1, ("summary.json is missing",), without("summary.json")
    ),
    "a format and an ending that contradict": Wrong(
        ("export", "run", "trace.json", "--to", "onnx"), 2, ("'trace.json' must end in .onnx",), RUN
    ),
}
