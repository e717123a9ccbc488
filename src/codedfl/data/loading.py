"""Fetch and load data by name, load data from a file."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from codedfl.data.dataset import Dataset
from codedfl.data.files import FILE_ENDINGS, load_file
from codedfl.data.sources.known import SOURCES, load_named
from codedfl.data.sources.known import fetch as fetch_named
from codedfl.data.sources.tables import TABLES, fetch_table, table_file
from codedfl.errors import DataError, ScenarioError
from codedfl.progress import Progress, silent


def fetch(name: str, progress: Progress = silent) -> Path:
    """Fetch a data set or table known by name into the cache, verify it, and return its folder."""
    return fetch_table(name, progress) if name in TABLES else fetch_named(name, progress)


def resolve(source: str | Path, owner: str = "", progress: Progress = silent) -> Path:
    """Return the file of a source: that of a table known by name, with the column of its owners, or the path itself."""
    if not source:
        raise ScenarioError("no data are named; add --set data.source=rows.csv with your own table.")
    return table_file(str(source), owner, progress) if source in TABLES else Path(source)


def load(source: str | Path, *, dtype: str = "float32", progress: Progress = silent, **options: Any) -> Dataset:
    """Return the data set of that name, or load that table or file with the ``options`` of :func:`load_file`."""
    if dtype not in ("float32", "float64"):
        raise ScenarioError(f"features cannot be kept as {dtype!r}; choose float32 or float64.")
    if isinstance(source, str) and source in SOURCES:
        data = load_named(source, progress)
        if dtype == "float32":
            return data
        return replace(data, x_train=data.x_train.astype(dtype), x_test=data.x_test.astype(dtype))
    if source == "sites":
        raise DataError('data.source = "sites" means that only the sites of a deployment have the data; deploy it.')
    path = resolve(source, options.get("owner", ""), progress)
    if not path.suffix:
        raise DataError(
            f"{str(source)!r} is neither a known data set ({', '.join((*SOURCES, *TABLES))}) nor a file that ends in"
            f" {', '.join(FILE_ENDINGS)}."
        )
    return load_file(path, dtype=dtype, **options)
