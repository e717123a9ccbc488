"""Whether federation pays: models of each owner's rows alone, and one of all rows, judged on the same held-out rows."""

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from codedfl import storage
from codedfl.data import TABLES, read_known_table, read_rows
from codedfl.errors import CodedflError, DataError, RunDirectoryError, UsageError
from codedfl.progress import Progress, silent
from codedfl.runs import Run, execute
from codedfl.scenario import Scenario
from codedfl.scenario.sections import RIDGE_PATH
from codedfl.task import load_data

LEAST_ROWS = 5
"""An owner with fewer training rows predicts the mean of its own."""

CLEAR = 2.0
"""Standard errors by which mean losses must differ."""

EQUAL = 1e-6
"""Relative difference of predictions up to which two models are equal."""


@final
@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """How one way to train predicts the held-out rows.

    ``losses`` are squared errors, or 0 for a right class and 1 for a wrong one.
    """

    way: str
    losses: Float[np.ndarray, " k"]
    scores: dict[str, float]


@final
@dataclass(frozen=True, eq=False)
class OwnersTable:
    """The ways to train side by side: on ``rows`` of so many ``owners``, judged on ``held_out`` rows."""

    owners: int
    rows: int
    held_out: int
    ways: tuple[HeldOutScores, ...]
    better_off: float
    """Share of the owners with held-out rows whose loss is smaller with federation than alone."""
    verdict: str
    difference: float | None = None
    """Largest difference of federated and pooled predictions, relative to the largest pooled one, if it is known."""

    @property
    def equal(self) -> bool:
        """Whether the federated model is known to be the pooled one."""
        return self.difference is not None and self.difference < EQUAL


def study_owners(
    scenario: Scenario, out: Path, *, group: str = "", progress: Progress = silent
) -> tuple[OwnersTable, Run]:
    """Train a scenario on all but the held-out rows of each owner, and compare ways to predict those.

    Its ``data.test_fraction`` of each owner's rows is held out, for classes of each class; rows with the same value in
    the column ``group``, which is no feature, together. The training rows are written into ``out``, beside the run.
    """
    check_scenario(scenario)
    # all rows, so that what is refused is named by its row in the file
    loaded = load_data(scenario.with_settings({"data.test_fraction": 0}), progress)
    if len(loaded.target_names) != 1:
        raise UsageError(f"data.target = '{scenario.data.target}' names several columns; compare owners by one target")
    owner, (target,) = scenario.partition.column, loaded.target_names
    columns = [column for column in loaded.columns if column.name != group]
    source = scenario.data.source
    table = read_known_table(source, progress) if source in TABLES else read_rows(Path(source))
    if group and (group in (owner, target) or group not in table.column_names):
        raise UsageError(f"--group '{group}' must be a column beside owner and target; choose one of the table's")
    stratum = target if loaded.kind == "classification" else ""
    parts = split_by_owner(table, owner, scenario.data.test_fraction, scenario.data.seed, stratum=stratum, group=group)
    train, test = (part.select([*(column.name for column in columns), owner, target]) for part in parts)
    if not test.num_rows:
        raise DataError(
            f"{source}: a fraction of {scenario.data.test_fraction:g} holds out no row of any owner; raise "
            "data.test_fraction."
        )
    different = set(test.column(target).to_pylist())
    if len(different) == 1:
        raise DataError(
            f"{source}: all held-out rows have the same {target!r}, {different.pop()}; hold out more rows, or name "
            "another target."
        )
    texts = {column.name: column.categories for column in columns if column.categories}
    known = [{"column": name, "values": values} for name, values in texts.items()]
    changes = {"data.kind": loaded.kind, "data.target": target, "data.test_fraction": 0, "training.targets": []}
    run = _train(scenario.with_settings(changes | {"features.categories": known}), out, train, progress)
    model = run.load_model()
    found = alone_federated_pooled(
        *(_with_texts(part, texts) for part in (train, test)),
        target=target,
        owner=owner,
        kind=loaded.kind,
        federated=model.outputs(test.drop_columns([owner, target])),
        joint_ridges=(model.ridge,),
        progress=progress,
    )
    return found, run


def check_scenario(scenario: Scenario) -> None:
    """Refuse a scenario without owners, and one that trains another model than those it is compared with."""
    data, features = scenario.data, scenario.features
    if scenario.partition.kind != "column" or data.named or data.elsewhere or data.source.lower().endswith(".npz"):
        raise UsageError(
            f"the scenario '{scenario.name}' does not say who owns each row; choose {', '.join(TABLES)}, or name a "
            ".csv or .parquet file in data.source and its column of owners with --owner"
        )
    if scenario.private:
        raise UsageError(
            f"owners are compared without noise; leave privacy.epsilon = {scenario.privacy.epsilon:g} out "
            "(python -m benchmarks.private_owners compares with noise)"
        )
    if data.test_source or data.held_out or not data.test_fraction:
        raise UsageError(
            "data.test_fraction of each owner's rows is held out; set only that, not data.test_source or data.held_out"
        )
    if features.kind != "none" or not (scenario.scaled and scenario.intercept) or features.missing != "refuse":
        raise UsageError(
            "owners are compared by linear models of standardised columns with an intercept, without missing values; "
            "set features.kind = 'none' and leave features.scale, intercept and missing out"
        )


def _train(scenario: Scenario, out: Path, train: Any, progress: Progress) -> Run:
    """Write the training rows and run the scenario on them; an error leaves no file behind that was not there."""
    import pyarrow.parquet

    content, path = io.BytesIO(), out / "train.parquet"
    pyarrow.parquet.write_table(train, content)
    begun, made = path.is_file(), [folder for folder in (out, *out.parents) if not folder.exists()]
    if begun and path.read_bytes() != content.getvalue():
        raise RunDirectoryError(f"'{out}' holds other training rows; choose another --out")
    if out.is_dir() and not begun and any(out.iterdir()):
        raise RunDirectoryError(f"'{out}' holds other files; choose another --out")
    storage.make_folder(out)
    try:
        storage.write_whole(path, lambda file: file.write(content.getvalue()))
        return execute(scenario.with_settings({"data.source": str(path)}), out / "run", progress=progress)
    except (CodedflError, OSError) as error:
        if not begun and not (out / "run").exists():
            path.unlink(missing_ok=True)
            for folder in made:
                folder.rmdir()
        if isinstance(error, OSError):
            raise RunDirectoryError(f"cannot write to '{out}' ({error.strerror}); fix it and run again") from None
        raise


def _with_texts(table: Any, names: Iterable[str]) -> Any:
    """Return the table with these columns as texts: categories may be declared of numbers."""
    import pyarrow

    for name in names:
        place = table.column_names.index(name)
        table = table.set_column(place, name, table.column(name).cast(pyarrow.string()))
    return table


def split_by_owner(
    table: Any, owner: str, fraction: float, seed: int, *, stratum: str = "", group: str = ""
) -> tuple[Any, Any]:
    """Draw the held-out rows, the same fraction of each owner and each value of the column ``stratum``.

    Rows with the same value in the column ``group`` are drawn together. A training row is kept of each.
    """
    generator = np.random.default_rng(seed)
    keys = np.array([_column(table, name) for name in (owner, stratum) if name], dtype=np.str_)
    units = _column(table, group) if group else np.arange(table.num_rows)
    test: Bool[np.ndarray, " m"] = np.zeros(table.num_rows, dtype=bool)
    for rows in _groups(np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)):
        own = np.unique(units[rows])
        drawn = generator.permutation(own)[: min(round(fraction * len(own)), len(own) - 1)]
        test[rows] = np.isin(units[rows], drawn)
    return table.filter(~test), table.filter(test)


def alone_federated_pooled(
    train: Any,
    test: Any,
    *,
    target: str,
    owner: str,
    kind: str,
    ridges: Sequence[float] = RIDGE_PATH,
    joint_ridges: Sequence[float] = (),
    federated: Shaped[np.ndarray, "k ..."] | None = None,
    progress: Progress = silent,
) -> OwnersTable:
    """Compare ways to predict the rows of ``test``: each owner alone, federated (predictions of a run), and pooled.

    Owners alone may use the mean of their own rows, or a model of them. Numbers are standardised, as in runs, and the
    intercept is not penalised; each model chooses its weight among ``ridges`` (``joint_ridges``, if given, for the
    pooled one) by the leave-one-out errors of its rows. ``federated`` are labels or values, or the outputs of a model.
    """
    x, x_test, numeric = _inputs(train, test, [name for name in train.column_names if name not in (target, owner)])
    y, y_test = _column(train, target), _column(test, target)
    owners, owners_test = _column(train, owner), _column(test, owner)
    classes = np.unique(y) if kind == "classification" else None
    targets = y[:, None].astype(float) if classes is None else (y[:, None] == classes).astype(float)

    rows_of = {owners[rows[0]]: rows for rows in _groups(owners)}
    means, alone = (np.empty((len(y_test), targets.shape[1])) for _ in range(2))
    groups = list(_groups(owners_test))
    for done, held in enumerate(groups, start=1):
        own = rows_of.get(owners_test[held[0]])
        if own is None:
            raise DataError(
                f"the owner '{owners_test[held[0]]}' has held-out rows but none to train on; hold out fewer rows."
            )
        means[held] = targets[own].mean(axis=0)
        alone[held] = _fit_and_predict(x[own], targets[own], x_test[held], numeric, ridges)
        progress("models of owners alone", done, len(groups))
    predictions = {"mean of own rows": means, "alone": alone}
    if federated is not None:
        predictions["federated"] = np.asarray(federated)
    predictions["pooled"] = pooled = _fit_and_predict(x, targets, x_test, numeric, joint_ridges or ridges)
    difference = None
    if federated is not None and federated.shape == pooled.shape:
        difference = float(np.abs(federated - pooled).max() / np.abs(pooled).max())
    ways = tuple(_judge(way, predicted, y_test, classes) for way, predicted in predictions.items())
    own_way, joint = min(ways[:2], key=lambda way: way.losses.sum()), ways[2]
    gains = [own_way.losses[held].sum() > joint.losses[held].sum() for held in groups]
    verdict = _verdict(own_way, joint)
    return OwnersTable(len(rows_of), len(y), len(y_test), ways, float(np.mean(gains)), verdict, difference)


def _column(table: Any, name: str) -> Shaped[np.ndarray, " m"]:
    return np.asarray(table.column(name).to_pylist())


def _groups(values: Shaped[np.ndarray, " m"]) -> Iterator[Int[np.ndarray, " _"]]:
    """Return the rows of each value."""
    _, counts = np.unique(values, return_counts=True)
    yield from np.split(np.argsort(values, kind="stable"), np.cumsum(counts)[:-1])


def _inputs(
    train: Any, test: Any, names: Sequence[str]
) -> tuple[Float[np.ndarray, "m p"], Float[np.ndarray, "k p"], Bool[np.ndarray, " p"]]:
    """Return numbers as they are and texts as columns of zeros and ones, one for each value, and which are numbers."""
    columns, numeric = [], []
    for name in names:
        values, others = (_column(part, name)[:, None] for part in (train, test))
        known = np.unique(values) if values.dtype.kind == "U" else None
        columns.append([part.astype(float) if known is None else 1.0 * (part == known) for part in (values, others)])
        numeric += [known is None] * columns[-1][0].shape[1]
    x, x_test = (np.hstack(part) for part in zip(*columns, strict=True))
    return x, x_test, np.array(numeric)


def _fit_and_predict(
    x: Float[np.ndarray, "m p"],
    y: Float[np.ndarray, "m c"],
    x_test: Float[np.ndarray, "k p"],
    numeric: Bool[np.ndarray, " p"],
    ridges: Sequence[float],
) -> Float[np.ndarray, "k c"]:
    from sklearn.linear_model import RidgeCV

    if len(x) < LEAST_ROWS:
        return np.broadcast_to(y.mean(axis=0), (len(x_test), y.shape[1]))
    deviation = x.std(axis=0)
    unit = np.where(numeric & (deviation > 0), deviation, 1.0)
    # our loss is a mean over rows, scikit-learn's a sum
    model = RidgeCV(alphas=np.asarray(ridges) * len(x)).fit(x / unit, y)
    predicted: Float[np.ndarray, "k c"] = model.predict(x_test / unit).reshape(len(x_test), -1)
    return predicted


def _judge(
    way: str,
    predicted: Shaped[np.ndarray, "k ..."],
    truth: Shaped[np.ndarray, " k"],
    classes: Shaped[np.ndarray, " c"] | None,
) -> HeldOutScores:
    """Score columns of outputs, or one column of values or labels."""
    if classes is not None:
        labels = classes[predicted.argmax(axis=1)] if predicted.ndim == 2 else predicted
        losses = (labels != truth).astype(float)
        return HeldOutScores(way, losses, {"accuracy": float(1 - losses.mean())})
    losses = (predicted.reshape(len(truth)) - truth) ** 2
    mean = losses.mean()
    return HeldOutScores(way, losses, {"r2": float(1 - mean / truth.var()), "rmse": float(np.sqrt(mean))})


def _verdict(alone: HeldOutScores, joint: HeldOutScores) -> str:
    """Say whether mean losses differ by more than chance."""
    difference = alone.losses - joint.losses
    error = difference.std() / np.sqrt(len(difference))
    metric = next(iter(alone.scores))
    figures = f"{metric} {joint.scores[metric]:.4f} {joint.way}, {alone.scores[metric]:.4f} {alone.way}"
    if abs(difference.mean()) <= CLEAR * error:
        return f"no clear difference: {figures}"
    return f"federation {'pays' if difference.mean() > 0 else 'does not pay'}: {figures}"
