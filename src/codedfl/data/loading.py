"""One door to all data: a name or a file."""

from dataclasses import replace
from pathlib import Path

from codedfl.data.dataset import Dataset
from codedfl.data.files import FILE_ENDINGS, load_file
from codedfl.data.sources.download import Progress, Say
from codedfl.data.sources.known import SOURCES, load_named, silent_progress, silent_say
from codedfl.errors import DataError, ScenarioError


def load(
    source: str | Path,
    *,
    kind: str = "auto",
    target: str | None = None,
    test_path: str | Path | None = None,
    test_fraction: float | int = 0.2,
    seed: int = 0,
    dtype: str = "float32",
    say: Say = silent_say,
    progress: Progress = silent_progress,
) -> Dataset:
    """Return the data set of that name, or else load the file at that path.

    ``kind`` to ``seed`` speak of files only (a named data set has its own target and test samples);
    ``say`` and ``progress`` tell of a download.
    """
    if dtype not in ("float32", "float64"):
        raise ScenarioError(f"features cannot be kept as {dtype!r}; choose float32 or float64.")
    if isinstance(source, str) and source in SOURCES:
        data = load_named(source, say, progress)
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
    return load_file(
        source,
        kind=kind,
        target=target,
        test_path=test_path,
        test_fraction=test_fraction,
        seed=seed,
        dtype=dtype,
    )
