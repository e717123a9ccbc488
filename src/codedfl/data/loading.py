"""Load data by name or from a file."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from codedfl.data.dataset import Dataset
from codedfl.data.files import FILE_ENDINGS, load_file
from codedfl.data.sources.known import SOURCES, load_named
from codedfl.errors import DataError, ScenarioError
from codedfl.progress import Progress, silent


def load(source: str | Path, *, dtype: str = "float32", progress: Progress = silent, **options: Any) -> Dataset:
    """Return the data set of that name, or load the file at that path with the ``options`` of :func:`load_file`."""
    if dtype not in ("float32", "float64"):
        raise ScenarioError(f"features cannot be kept as {dtype!r}; choose float32 or float64.")
    if isinstance(source, str) and source in SOURCES:
        data = load_named(source, progress)
        if dtype == "float32":
            return data
        return replace(data, x_train=data.x_train.astype(dtype), x_test=data.x_test.astype(dtype))
    if source == "sites":
        raise DataError('data.source = "sites" means that only the sites of a deployment have the data; deploy it.')
    if not Path(source).suffix:
        raise DataError(
            f"{str(source)!r} is neither a known data set ({', '.join(SOURCES)}) nor a file that ends in"
            f" {', '.join(FILE_ENDINGS)}."
        )
    return load_file(source, dtype=dtype, **options)
