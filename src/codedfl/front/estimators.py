"""Scikit-learn estimators: from arrays, and who owns which row, to a federated model.

The model is that of scikit-learn's ``StandardScaler`` before ``Ridge`` or ``RidgeClassifier`` on all rows together;
``ridge`` is their ``alpha`` divided by the number of rows. Nothing is written to disk unless a folder is given.
"""

import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, TypeVar, final

import numpy as np
from jaxtyping import Float, Shaped
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from codedfl import runs, storage
from codedfl.data import Column, Dataset
from codedfl.data.dataset import check_finite, classification, regression
from codedfl.data.tables import inputs_of_table
from codedfl.errors import CodedflError, CodedflWarning, DataError
from codedfl.front.functions import broken_ciphers
from codedfl.front.scenarios import OWNERS, estimator_scenario
from codedfl.progress import Progress, silent
from codedfl.runs.backend import SimulationBackend
from codedfl.scenario import Scenario
from codedfl.task import RawData
from codedfl.training.timing import band

_REPORTED = (
    *("scheme", "epochs", "virtual_seconds", "bits_sent", "bits_per_device", "macs_per_device", "server_macs"),
    *("preparation", "gradient_error", "survives_losses", "verdict", "leakage", "owners", "wall_seconds"),
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
        self.settings = settings
        self.random_state = random_state
        self.out = out
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "mean"
        tags.target_tags.required = True
        return tags

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
            columns, x = self._read_inputs(X, reset=True)
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

    def _read_inputs(self, X: Any, *, reset: bool) -> tuple[tuple[Column, ...], Float[np.ndarray, "n p"]]:
        """Check rows; named columns may hold text."""
        may_miss = self.missing == "mean"
        if hasattr(X, "columns") or hasattr(X, "column_names"):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if hasattr(self, "feature_names_in_"):
                return self._read_table(X, reset=reset)
        least, finite = 2 if reset else 1, "allow-nan" if may_miss else True
        x = validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite=finite, ensure_min_samples=least)
        return () if reset else self._columns, x

    def _read_table(self, X: Any, *, reset: bool) -> tuple[tuple[Column, ...], Float[np.ndarray, "n p"]]:
        import pyarrow

        known = {} if reset else {each.name: each.categories for each in self._columns if each.categories}
        names = [str(name) for name in self.feature_names_in_]
        columns, x = inputs_of_table(pyarrow.table(X), Path("X"), names, known)
        check_finite("X", "it", x, columns, allow_missing=self.missing == "mean")
        return columns, x

    def _train(self, loaded: Dataset) -> None:
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        scenario = estimator_scenario(self.get_params(deep=False), loaded, seed)
        for sentence in broken_ciphers(scenario, [scenario.scheme]):
            warnings.warn(sentence, CodedflWarning, stacklevel=3)
        data, progress = RawData.create(scenario, loaded), self.progress or silent
        self._run(scenario, data, progress)
        self.scenario_, self._columns, self._features = scenario, loaded.columns, data.features
        if loaded.columns:
            self.input_names_ = [name for column in loaded.columns for name in column.inputs]
        if data.features.kind == "none":
            self._set_coefficients(*self._linear_map())

    def _run(self, scenario: Scenario, data: RawData, progress: Progress) -> None:
        """Train, in memory or in a run directory."""
        if self.out is None:
            done = runs.run_in_memory(scenario, data, progress)
            self._theta, prepared, summary, timings = done.theta, done.problem.prepared, done.summary, done.timings
        else:
            with _stored(scenario, data.loaded) as stored:
                run = runs.execute(stored, Path(self.out), problem=lambda: data, progress=progress)
            self._theta, summary, timings = run.model, run.summary, run.timings
            prepared = SimulationBackend(scenario, data).problem.prepared
        self._preparation = None if prepared is None else prepared.preparation
        ends = band(timings[:, -1].astype(np.float64))
        self.report_ = {name: summary[name] for name in _REPORTED if name in summary}
        self.report_ |= {"seconds": ends.mean, "seconds_band": [ends.low, ends.high]}

    def _linear_map(self) -> tuple[Float[np.ndarray, "p c"], Float[np.ndarray, "c"]]:
        """Return the linear map from raw inputs to outputs."""
        theta, prepared = self._theta.astype(np.float64), self._preparation
        if prepared is None:
            return theta, np.zeros(theta.shape[1])
        weights = theta / prepared.unit[:, None] * prepared.target_unit
        return weights, prepared.target_shift - prepared.shift @ weights

    def _outputs(self, X: Any) -> Float[np.ndarray, "n c"]:
        """Return the outputs of the linear model in the units of the targets."""
        check_is_fitted(self)
        with _value_errors():
            _, x = self._read_inputs(X, reset=False)
        prepared = self._preparation
        if prepared is None:
            return np.asarray(self._features.transform(x) @ self._theta)
        features = prepared.features(self._features.transform(prepared.inputs(x)))
        return prepared.outputs(features @ self._theta)


@final
class FederatedRidge(MultiOutputMixin, RegressorMixin, FederatedEstimator):  # type: ignore[misc]
    """Ridge regression that the owners of rows train together, without pooling them.

    The model is that of scikit-learn's ``StandardScaler`` before ``Ridge(alpha=ridge * rows)`` on all rows.

    Parameters
    ----------
    scheme : str, default="auto"
        How devices and server compute and what they see (``codedfl.schemes.SCHEMES``). ``"auto"`` is
        ``"sealed-coded"``, or ``"one-shot"`` for a single column, which cannot be divided: both show sums over all
        devices only. Private schemes need at least two owners.
    fleet : str, path, Scenario or list, optional
        Whose devices and links are simulated: a preset, a scenario or its file, or groups of devices such as
        ``{"count": 3, "mac_rate": 1e6}``. The preset ``own-data`` if not given. The fleet is spread over the owners.
    features : str or mapping, default="none"
        ``"none"``: the columns as they are; ``"rbf"``: random Fourier features of the Gaussian kernel; or a table as
        ``{"kind": "rbf", "dimension": 500, "gamma": 0.1}``.
    ridge : float, default=1e-3
        Weight of the squared coefficients in the mean loss: scikit-learn's ``alpha`` divided by the number of rows.
    scale : {"standard", "none"}, default="standard"
        Whether columns have mean 0 and variance 1 over all owners, from securely summed columns.
    fit_intercept : bool, default=True
        Whether the model has an intercept, which is not penalised.
    missing : {"refuse", "mean"}, default="refuse"
        Whether missing values are refused or stand at the mean of their column over all owners.
    devices : int, optional
        Number of devices where no owners are given: 5, or the size of ``fleet``, but at most one for each row.
    solver : str, default="auto"
        ``training.solver`` of a scenario; conjugate gradients where the scheme computes exact gradients.
    accuracy, tolerance : float, optional
        ``task.accuracy`` and ``training.tolerance`` of a scenario.
    settings : mapping, optional
        Further settings of a scenario by dotted keys, as ``{"links.loss": 0.2}``; ``codedfl settings`` lists them.
    random_state : int or RandomState, optional
        Seeds the random features, random delays, and rows dealt to devices.
    out : str or path, optional
        A run directory to write (see :func:`codedfl.run`); nothing is written if not given.
    progress : callable, optional
        Called with a stage, how much of it is done, and how much there is.

    Attributes
    ----------
    coef_, intercept_ : array, float or array
        The model in the units of the raw columns; not for random features.
    input_names_ : list of str
        What ``coef_`` belongs to where columns have names: a column, or ``column=category``.
    report_ : dict
        What the training took and shows, in the words of a run's ``summary.json``: ``epochs``, ``bits_per_device``,
        ``verdict``, ``leakage``, ``owners`` and others; ``seconds`` is the mean virtual time, ``seconds_band`` holds
        95% of timing draws.
    scenario_ : Scenario
        What was run.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> import codedfl
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = codedfl.FederatedRidge(random_state=0).fit(X, y, owners=[f"clinic {n % 7}" for n in range(len(y))])
    >>> round(model.score(X, y), 3), model.report_["scheme"], len(model.report_["owners"])
    (0.518, 'sealed-coded', 7)
    """

    _kind = "regression"

    def _read_targets(self, y: Any) -> Float[np.ndarray, "n ..."]:
        values = validate_data(self, y=y, multi_output=True, y_numeric=True)
        self._single = values.ndim == 1
        return np.asarray(values, dtype=np.float64)

    def _set_coefficients(self, weights: Float[np.ndarray, "p c"], intercept: Float[np.ndarray, "c"]) -> None:
        self.coef_ = weights[:, 0] if self._single else weights.T
        self.intercept_ = float(intercept[0]) if self._single else intercept

    def predict(self, X: Any) -> Float[np.ndarray, "n ..."]:
        """Return the predicted values of rows, in the shape of the targets."""
        outputs = self._outputs(X)
        return outputs[:, 0] if self._single else outputs


@final
class FederatedRidgeClassifier(ClassifierMixin, FederatedEstimator):  # type: ignore[misc]
    """Ridge classification that the owners of rows train together, without pooling them.

    The model is that of scikit-learn's ``StandardScaler`` before ``RidgeClassifier(alpha=ridge * rows)`` on all rows.
    Parameters and attributes are those of :class:`FederatedRidge`, and ``classes_``.

    Examples
    --------
    >>> import codedfl
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = codedfl.FederatedRidgeClassifier(random_state=0).fit(X, y, owners=[n % 4 for n in range(len(y))])
    >>> model.predict(X[:2]).tolist(), round(model.score(X, y), 2), model.report_["verdict"]
    ([0, 0], 0.85, 'holds')
    """

    _kind = "classification"

    def _read_targets(self, y: Any) -> Shaped[np.ndarray, "n"]:
        labels = validate_data(self, y=y)
        check_classification_targets(labels)
        self.classes_ = np.unique(labels)
        if len(self.classes_) < 2:
            found = f"{len(self.classes_)} class {self.classes_.tolist()}"
            raise DataError(f"y holds {found}; a classifier needs at least 2 classes")
        return np.asarray(labels.astype(str) if labels.dtype.kind == "O" else labels)

    def _set_coefficients(self, weights: Float[np.ndarray, "p c"], intercept: Float[np.ndarray, "c"]) -> None:
        self.coef_, self.intercept_ = _decisions(weights).T, _decisions(intercept[None])[0]

    def decision_function(self, X: Any) -> Float[np.ndarray, "n ..."]:
        """Return the decision values of ``RidgeClassifier``: one for each class; of two classes, that of the second."""
        decisions = _decisions(self._outputs(X))
        return decisions[:, 0] if decisions.shape[1] == 1 else decisions

    def predict(self, X: Any) -> Shaped[np.ndarray, "n"]:
        """Return the labels of rows."""
        outputs = self._outputs(X)
        return np.asarray(self.classes_[np.argmax(outputs, axis=1)])


def _decisions(outputs: Float[np.ndarray, "n c"]) -> Float[np.ndarray, "n k"]:
    # outputs fit 0 and 1, RidgeClassifier fits -1 and 1. Targets of a row sum to 1, so the fit of 2 y - 1 is twice the
    # output less the sum of all, with and without an intercept
    decisions = 2 * outputs - outputs.sum(axis=1, keepdims=True)
    return np.asarray(decisions[:, 1:] if decisions.shape[1] == 2 else decisions)


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
