"""Scikit-learn estimators: from arrays, and who owns which row, to a federated model.

The model is that of scikit-learn's ``StandardScaler`` before ``Ridge`` or ``RidgeClassifier`` on all rows together;
``ridge`` is their ``alpha`` divided by the number of rows. Nothing is written to disk unless a folder is given.
"""

from collections.abc import Mapping
from os import PathLike
from typing import Any, final

import numpy as np
from jaxtyping import Float, Shaped
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from codedfl.errors import DataError
from codedfl.front.estimator_base import FederatedEstimator
from codedfl.progress import Progress
from codedfl.task.losses import SOFTMAX, softmax


class _Regressor(MultiOutputMixin, RegressorMixin, FederatedEstimator):  # type: ignore[misc]
    """Predicts values."""

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
class FederatedRidge(_Regressor):
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
    ridge : float, list or "auto", default=1e-3
        Weight of the squared coefficients in the mean loss: scikit-learn's ``alpha`` divided by the number of rows.
        Of a list, or of 30 values from 1e-6 to 10 (``"auto"``), the weight that predicts held-out rows best.
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
    epsilon, delta : float, optional
        Differential privacy of one row on all that the training reveals (docs/privacy.md); no noise if not given. The
        scheme ``"auto"`` is then ``"one-shot"``; columns are scaled by ``ranges``, and the intercept is penalised.
    ranges : mapping, optional
        What is known of the columns without looking at the data, which ``epsilon`` needs: ``{"age": (0, 120)}`` for
        every numeric column (``"0"``, ``"1"``... where they have no names, ``"*"`` for all others) and for the targets
        of a regression (``"y"``, or ``"y0"``, ``"y1"``...); the list of its values for every text column.
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
        The model in the units of the raw columns; not for random features. Values beyond ``ranges`` are moved to their
        ends before.
    ridge_ : float
        The weight of the squared coefficients, given or chosen.
    input_names_ : list of str
        What ``coef_`` belongs to where columns have names: a column, or ``column=category``.
    report_ : dict
        What the training took and shows, in the words of a run's ``summary.json``: ``epochs``, ``bits_per_device``,
        ``verdict``, ``leakage``, ``owners`` and others; ``seconds`` is the mean virtual time, ``seconds_band`` holds
        95% of timing draws.
    model_ : Model
        The model as a run saves it: ``save``, ``to_sklearn``.
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


@final
class FederatedRidgeCV(_Regressor):
    """Ridge regression that chooses its weight on rows that owners hold out; only summed errors are opened.

    Other parameters and attributes are those of :class:`FederatedRidge`; ``report_["selection"]`` has the mean squared
    error of each weight on held-out rows.

    Parameters
    ----------
    ridge : list or "auto", default="auto"
        Weights to choose from, increasing; ``"auto"``: 30 values from 1e-6 to 10.
    cv : int, default=5
        Number of folds into which owners divide their rows.

    Examples
    --------
    >>> import codedfl
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = codedfl.FederatedRidgeCV(ridge=[1e-3, 1e-1, 10], random_state=0).fit(X, y)
    >>> model.ridge_
    0.1
    """

    def __init__(
        self,
        *,
        ridge: Any = "auto",
        cv: int = 5,
        scheme: str = "auto",
        fleet: Any = None,
        features: Any = "none",
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
        super().__init__(
            scheme=scheme,
            fleet=fleet,
            features=features,
            ridge=ridge,
            scale=scale,
            fit_intercept=fit_intercept,
            missing=missing,
            devices=devices,
            solver=solver,
            accuracy=accuracy,
            tolerance=tolerance,
            settings=settings,
            random_state=random_state,
            out=out,
            progress=progress,
        )
        self.cv = cv


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
    ([0, 0], 0.85, 'server sees sums')
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

    @available_if(lambda self: (self.settings or {}).get("task.loss") == SOFTMAX)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Float[np.ndarray, "n c"]:
        """Return the probability of each class, where ``settings`` choose the softmax loss."""
        return softmax(self._outputs(X))

    def predict(self, X: Any) -> Shaped[np.ndarray, "n"]:
        """Return the labels of rows."""
        outputs = self._outputs(X)
        return np.asarray(self.classes_[np.argmax(outputs, axis=1)])


def _decisions(outputs: Float[np.ndarray, "n c"]) -> Float[np.ndarray, "n k"]:
    # outputs fit 0 and 1, RidgeClassifier fits -1 and 1. Targets of a row sum to 1, so the fit of 2 y - 1 is twice the
    # output less the sum of all, with and without an intercept
    decisions = 2 * outputs - outputs.sum(axis=1, keepdims=True)
    return np.asarray(decisions[:, 1:] if decisions.shape[1] == 2 else decisions)
