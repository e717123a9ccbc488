"""What all estimators do: read arrays and owners, train in virtual time, report, compute outputs."""

import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from jaxtyping import Float, Shaped
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from codedfl import runs, storage
from codedfl.data import Column, Dataset
from codedfl.data.dataset import check_finite, classification, regression
from codedfl.data.tables import inputs_of_table
from codedfl.errors import CodedflError, CodedflWarning, DataError
from codedfl.front.functions import broken_ciphers, shortened, taken_as_public
from codedfl.front.scenarios import OWNERS, declared_values, estimator_scenario
from codedfl.progress import Progress, silent
from codedfl.runs.facts import noise_text
from codedfl.runs.markup import facts_html, seconds_and_band
from codedfl.scenario import Scenario
from codedfl.task import RawData
from codedfl.training.timing import band

_REPORTED = (
    *("scheme", "epochs", "virtual_seconds", "bits_sent", "bits_per_device", "macs_per_device", "server_macs"),
    *("preparation", "selection", "scoring", "gradient_error", "survives_losses", "verdict", "leakage", "owners"),
    *("epsilon", "delta", "privacy"),
    "wall_seconds",
)
"""What ``report_`` takes from the summary of the run."""


_Fitted = TypeVar("_Fitted", bound="FederatedEstimator")


class FederatedEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """A linear model that the owners of rows train together."""

    _kind: ClassVar[str]

    def __init__(
        self,
        *,
        scheme: str = "auto",
        fleet: Any = None,
        features: Any = "none",
        ridge: Any = 1e-3,
        scale: str = "standard",
        fit_intercept: bool = True,
        missing: str = "refuse",
        devices: int | None = None,
        solver: str = "auto",
        accuracy: float | None = None,
        tolerance: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        ranges: Mapping[Any, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        random_state: Any = None,
        out: str | PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.scheme = scheme
        self.fleet = fleet
        self.features = features
        self.ridge = ridge
        self.scale = scale
        self.fit_intercept = fit_intercept
        self.missing = missing
        self.devices = devices
        self.solver = solver
        self.accuracy = accuracy
        self.tolerance = tolerance
        self.epsilon = epsilon
        self.delta = delta
        self.ranges = ranges
        self.settings = settings
        self.random_state = random_state
        self.out = out
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "mean"
        tags.target_tags.required = True
        return tags

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + self._report_html()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        return bundle | ({"text/html": bundle["text/html"] + self._report_html()} if "text/html" in bundle else {})

    def _report_html(self) -> str:
        """Return what a notebook shows below scikit-learn's diagram: what the training took and reveals."""
        if not hasattr(self, "report_"):
            return ""
        report = self.report_
        facts = {"scheme": report["scheme"], "epochs": f"{report['epochs']:,}"}
        facts["virtual time"] = seconds_and_band(report["seconds"], report["seconds_band"])
        facts |= {"secrecy": report["verdict"], "the server sees": report["leakage"]["server"]}
        return facts_html(facts | ({"noise": noise_text(report["privacy"])} if report.get("privacy") else {}))

    def fit(self: _Fitted, X: Any, y: Any, owners: Any = None) -> _Fitted:
        """Train in virtual time.

        Parameters
        ----------
        X : array or data frame of shape (rows, columns)
            Text columns of a data frame become columns of zeros and ones, one for each category.
        y : array of shape (rows,) or (rows, targets)
            Values, or the labels of classes; several targets for values only.
        owners : array of shape (rows,), optional
            Who owns each row: texts or whole numbers. If not given, rows are dealt to ``devices`` at random.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Data or parameters cannot be used; one sentence says why.
        """
        with _value_errors():
            targets = self._read_targets(y)
            columns, x = self._inputs(self._read_rows(X, reset=True))
            check_consistent_length(x, targets)
            make = classification if self._kind == "classification" else regression
            more = {"columns": columns, "owners": _owner_names(owners, len(x)), "missing": self.missing == "mean"}
            self._train(make("X", x, targets, x[:0], targets[:0], **more))
        return self

    @abstractmethod
    def _read_targets(self, y: Any) -> Shaped[np.ndarray, "n ..."]:
        """Check targets."""

    @abstractmethod
    def _set_coefficients(self, weights: Float[np.ndarray, "p c"], intercept: Float[np.ndarray, "c"]) -> None:
        """Set ``coef_`` and ``intercept_`` from the linear map of raw inputs to outputs."""

    def _read_rows(self, X: Any, *, reset: bool) -> Any:
        """Check rows: an array of numbers, or a table whose named columns may hold text."""
        if hasattr(X, "columns") or hasattr(X, "column_names"):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if hasattr(self, "feature_names_in_"):
                return X
        least, finite = 2 if reset else 1, "allow-nan" if self.missing == "mean" else True
        return validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite=finite, ensure_min_samples=least)

    def _inputs(self, rows: Any) -> tuple[tuple[Column, ...], Float[np.ndarray, "n p"]]:
        """Return the columns of checked rows, if they have names, and the inputs that these become."""
        if isinstance(rows, np.ndarray):
            return (), rows
        import pyarrow

        names = [str(name) for name in self.feature_names_in_]
        declared = declared_values(self.ranges)
        if unknown := [name for name in declared if name not in names]:
            raise DataError(f"ranges declare the values of {unknown[0]!r}, which is no column of X; correct its name")
        columns, x = inputs_of_table(pyarrow.table(rows), Path("X"), names, declared)
        check_finite(type(self).__name__, "X", x, columns, allow_missing=self.missing == "mean")
        return columns, x

    def _train(self, loaded: Dataset) -> None:
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        scenario = estimator_scenario(self.get_params(deep=False), loaded, seed)
        for sentence in broken_ciphers(scenario, [scenario.scheme]):
            warnings.warn(sentence, CodedflWarning, stacklevel=3)
        data, progress = RawData.create(scenario, loaded), self.progress or silent
        summary = self._run(scenario, data, progress)
        for sentence in (*taken_as_public(scenario, self.model_.classes), *shortened(summary)):
            warnings.warn(sentence, CodedflWarning, stacklevel=3)
        self.scenario_, self.ridge_ = scenario, self.model_.ridge
        if loaded.columns:
            self.input_names_ = [name for column in loaded.columns for name in column.inputs]
        if data.features.kind == "none":
            self._set_coefficients(*self._linear_map())

    def _run(self, scenario: Scenario, data: RawData, progress: Progress) -> Mapping[str, Any]:
        """Train, in memory or in a run directory; return the summary."""
        done: runs.MemoryRun | runs.Run
        if self.out is None:
            done = runs.run_in_memory(scenario, data, progress)
            self.model_ = done.model
        else:
            with _stored(scenario, data.loaded) as stored:
                done = runs.execute(stored, Path(self.out), problem=lambda: data, progress=progress)
            self.model_ = done.load_model()
        summary, timings = done.summary, done.timings
        ends = band(timings[:, -1].astype(np.float64))
        self.report_ = {name: summary[name] for name in _REPORTED if name in summary}
        self.report_ |= {"seconds": ends.mean, "seconds_band": [ends.low, ends.high]}
        return summary

    def _linear_map(self) -> tuple[Float[np.ndarray, "p c"], Float[np.ndarray, "c"]]:
        """Return the linear map from raw inputs to outputs."""
        theta, prepared = self.model_.theta.astype(np.float64), self.model_.preparation
        if prepared is None:
            return theta, np.zeros(theta.shape[1])
        weights = theta[: len(prepared.unit)] / prepared.unit[:, None] * prepared.target_unit
        intercept = prepared.target_shift - prepared.shift @ weights
        if prepared.constant is not None:
            intercept = intercept + prepared.constant @ theta[-1:] * prepared.target_unit
        return weights, intercept

    def _outputs(self, X: Any) -> Float[np.ndarray, "n c"]:
        """Return the outputs of the linear model in the units of the targets."""
        check_is_fitted(self)
        with _value_errors():
            return self.model_.outputs(self._read_rows(X, reset=False))


def _owner_names(owners: Any, rows: int) -> Shaped[np.ndarray, "n"] | None:
    """Return the owner of each row as text."""
    if owners is None:
        return None
    given = np.asarray(owners)
    if given.shape != (rows,):
        raise DataError(f"owners have shape {given.shape} but X has {rows} rows; name the owner of each row")
    values = given.tolist()
    empty = next((row for row, value in enumerate(values) if value is None or value != value or value == ""), None)
    if empty is not None:
        raise DataError(f"the owner of row {empty} (counted from 0) is missing; name one for every row")
    return np.array([str(value) for value in values])


@contextmanager
def _stored(scenario: Scenario, loaded: Dataset) -> Iterator[Scenario]:
    """Write arrays to a private file for as long as a run needs it; its contents are part of the run's identity."""
    arrays = {"x": loaded.x_train, "y": loaded.y_train}
    if loaded.owners is not None:
        arrays[OWNERS] = loaded.owners
    with tempfile.TemporaryDirectory(prefix="codedfl-") as folder:
        path = Path(folder) / scenario.data.source
        storage.write_arrays(path, arrays, durable=False)
        yield scenario.with_settings({"data.source": str(path)})


@contextmanager
def _value_errors() -> Iterator[None]:
    """Raise errors of codedfl as what scikit-learn expects."""
    try:
        yield
    except CodedflError as error:
        raise ValueError(str(error)) from error
