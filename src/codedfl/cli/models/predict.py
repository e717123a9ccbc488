"""``codedfl predict``: predictions for rows of a file."""

import csv
import io
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from codedfl import storage
from codedfl.cli import common
from codedfl.data import read_rows
from codedfl.errors import CodedflWarning, RunDirectoryError, UsageError
from codedfl.task.model import Model

RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="A finished run, its folder model, or a copy of that.", show_default=False)
]


def predict_command(
    run: RunFolder,
    rows: Annotated[
        Path, typer.Argument(metavar="ROWS", help="A .csv, .parquet or .npz file (array x).", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="A .csv or .parquet file; printed as CSV if not given.")
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Also the decision values of the classes.")] = False,
    json: common.Json = False,
) -> None:
    """Predict rows of a file with the model of a run.

    Columns are matched by name, in any order; columns that the model does not use are ignored and named. A .npz has no
    names: its columns are those of the model, in their order.
    """
    if out is not None:
        check_out(out, ".csv", ".parquet")
        if out.exists() and rows.exists() and out.samefile(rows):
            raise UsageError(f"--out '{out}' is the file of the rows; choose another")
    model = Model.load(run)
    if scores and model.kind == "regression":
        raise UsageError("--scores is for classes, and this model is a regression; leave it out")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", CodedflWarning)
        given = read_rows(rows)
        table = _table(model, model.predict(given))
        if scores:
            warnings.simplefilter("ignore", CodedflWarning)
            table |= _scores(model, model.decision_function(given))
    if out is not None:
        write_out(out, lambda: _write(out, table))
    for warning in seen:
        common.warn(str(warning.message))
    if json:
        listed = list(zip(*table.values(), strict=True))
        if scores:
            common.print_json([dict(zip(table, row, strict=True)) for row in listed])
        else:
            common.print_json([row[0] if len(table) == 1 else list(row) for row in listed])
    elif out is None:
        typer.echo(_csv(table), nl=False)
    else:
        typer.echo(f"predictions of {len(next(iter(table.values()))):,} rows: {out}")


def check_out(out: Path, *endings: str) -> None:
    """Refuse a file of another ending, and a folder."""
    if out.suffix.lower() not in endings:
        raise UsageError(f"'{out}' must end in {' or '.join(endings)}; choose another file")
    if out.is_dir():
        raise UsageError(f"'{out}' is a folder; choose a file")


def write_out(out: Path, write: Any) -> None:
    """Write a file; refuse in one sentence where that is impossible."""
    try:
        write()
    except OSError as error:
        raise RunDirectoryError(f"cannot write '{out}' ({error.strerror}); choose another file") from None


def _table(model: Model, predicted: Any) -> dict[str, list[Any]]:
    columns = [predicted] if predicted.ndim == 1 else predicted.T
    return {name: values.tolist() for name, values in zip(model.targets, columns, strict=True)}


def _scores(model: Model, decisions: Any) -> dict[str, list[Any]]:
    """Return a column for each class; for two classes, that of the second."""
    columns = [decisions] if decisions.ndim == 1 else decisions.T
    names = [f"{model.targets[0]}={label}" for label in model.classes[-len(columns) :]]
    return {name: values.tolist() for name, values in zip(names, columns, strict=True)}


def _csv(table: Mapping[str, list[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return text.getvalue()


def _write(out: Path, table: Mapping[str, list[Any]]) -> None:
    if out.suffix.lower() == ".csv":
        storage.write_text(out, _csv(table))
    else:
        storage.write_parquet(out, table)
