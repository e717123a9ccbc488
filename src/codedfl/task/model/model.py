"""The model that a run leaves behind: what is saved, loaded and predicted with.

    model.json   what the numbers mean: columns, categories, preparation, feature map, classes, and where they come from
    model.npz    theta

The folder may be copied anywhere; neither the run nor the data are needed. Nothing in it is pickled.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from jaxtyping import Float, Shaped

from codedfl import storage
from codedfl.data.features import FeatureMap
from codedfl.data.preparation import Column, Preparation
from codedfl.errors import UsageError
from codedfl.scenario import Scenario
from codedfl.storage import package_version
from codedfl.task.description import Description, Label
from codedfl.task.losses import SOFTMAX, SQUARED, softmax
from codedfl.task.model.inputs import inputs_of
from codedfl.task.objective import Objective

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

SCHEMA = 1
"""Version of the format of ``model.json``."""
_BLOCK_NUMBERS = 1 << 22
"""Features that are computed at once."""


@final
@dataclass(frozen=True)
class FeatureSettings:
    """The settings from which the feature map is drawn again."""

    kind: str
    dimension: int
    gamma: float
    seed: int
    precision: str


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Model:
    """A trained model that predicts from raw rows.

    Rows are a 2-d array with the columns of the model in their order, or named columns in any order: a mapping of
    names to values, a pandas data frame, a pyarrow table. Columns that the model does not use are named in a warning.
    """

    theta: Float[np.ndarray, "d c"]
    kind: str
    """``classification`` or ``regression``."""
    description: Description
    features: FeatureSettings
    ridge: float
    """The weight lambda of the ridge term."""
    intercept: bool
    samples: int
    """Number of rows it was trained on."""
    scheme: str
    privacy: Mapping[str, Any] | None = None
    """Differential privacy of the training; None: none."""
    loss: str = SQUARED
    """What the training minimised: ``squared`` or ``softmax``."""
    scenario_id: str = ""
    version: str = dataclasses.field(default_factory=package_version)
    """The version of codedfl that trained it."""

    @classmethod
    def create(
        cls,
        scenario: Scenario,
        scenario_id: str,
        theta: Float[np.ndarray, "d c"],
        *,
        kind: str,
        samples: int,
        description: Description,
        privacy: Mapping[str, Any] | None = None,
    ) -> "Model":
        """Make the model that a scenario has trained."""
        wanted = scenario.features
        return cls(
            theta=theta,
            kind=kind,
            description=description,
            features=FeatureSettings(wanted.kind, wanted.dimension, wanted.gamma, wanted.seed, scenario.precision),
            ridge=scenario.ridge,
            intercept=scenario.intercept,
            samples=samples,
            scheme=scenario.scheme,
            loss=scenario.task.loss,
            privacy=privacy,
            scenario_id=scenario_id,
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """The raw columns that it predicts from."""
        return self.description.columns

    @property
    def classes(self) -> tuple[Label, ...]:
        """The labels that it predicts, as they were given; none for a regression."""
        return self.description.classes

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of what it predicts."""
        return self.description.targets

    @property
    def preparation(self) -> Preparation | None:
        """What is done to columns before the feature map."""
        return self.description.preparation

    @cached_property
    def feature_map(self) -> FeatureMap:
        """The map from prepared inputs to features."""
        inputs, chosen = sum(len(column.inputs) for column in self.columns), dataclasses.asdict(self.features)
        return FeatureMap.create(inputs=inputs, dtype=chosen.pop("precision"), **chosen)

    def __repr__(self) -> str:
        what = f"{len(self.classes)} classes" if self.classes else ", ".join(self.targets)
        return f"<Model of {what} from {len(self.columns)} columns, trained with {self.scheme}>"

    def outputs(self, rows: Any) -> Float[np.ndarray, "n c"]:
        """Return the outputs of the linear model in the units of the targets; one for each class, if it has classes."""
        return self._outputs(rows)

    def decision_function(self, rows: Any) -> Float[np.ndarray, "n ..."]:
        """Return the decision values of scikit-learn's ``RidgeClassifier``: one a class; of two, that of the second."""
        self._need_classes("decision values")
        return self._decisions(self._outputs(rows))

    def predict(self, rows: Any) -> Shaped[np.ndarray, "n ..."]:
        """Return the labels of rows as they were given, or the values of a regression."""
        outputs = self._outputs(rows)
        if self.kind == "regression":
            return outputs[:, 0] if outputs.shape[1] == 1 else outputs
        return np.asarray(np.array(self.classes)[np.argmax(outputs, axis=1)])

    def predict_proba(self, rows: Any) -> Float[np.ndarray, "n c"]:
        """Return the probability of each class, if the model was trained with the softmax loss."""
        if self.loss != SOFTMAX:
            raise UsageError("only models trained with task.loss = 'softmax' have probabilities; use their predictions")
        return softmax(self._outputs(rows).astype(np.float64))

    def _outputs(self, rows: Any) -> Float[np.ndarray, "n c"]:
        prepared = self.preparation
        inputs = inputs_of(rows, self.columns, may_miss=prepared is not None and prepared.fill is not None)
        step = max(1, _BLOCK_NUMBERS // len(self.theta))
        blocks = [inputs[first : first + step] for first in range(0, max(1, len(inputs)), step)]
        return np.concatenate([self._block(block) for block in blocks])

    def _block(self, inputs: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n c"]:
        if self.preparation is None:
            return np.asarray(self.feature_map.transform(inputs) @ self.theta)
        features = self.feature_map.transform(self.preparation.inputs(inputs))
        return self.preparation.outputs(self.preparation.features(features) @ self.theta)

    def _decisions(self, outputs: Float[np.ndarray, "n c"]) -> Float[np.ndarray, "n ..."]:
        # outputs fit y = 0 and 1, RidgeClassifier fits 2 y - 1. The fit is linear in its targets and those of a row sum
        # to 1, so the fit of 2 y - 1 is twice the output less the sum of all outputs, with and without intercept
        decisions = 2 * outputs - outputs.sum(axis=1, keepdims=True)
        return np.asarray(decisions[:, 1] if decisions.shape[1] == 2 else decisions)

    def _need_classes(self, what: str) -> None:
        if self.kind == "regression":
            raise UsageError(f"a regression has no {what}; use its predictions")

    def to_sklearn(self) -> "Pipeline":
        """Return a scikit-learn pipeline that predicts the same from columns in the model's order.

        It computes in float64; the predictions of a float32 model differ by the rounding of float32.
        """
        from codedfl.task.model.pipeline import pipeline

        self.refuse_filled_text("a scikit-learn pipeline")
        return pipeline(self)

    def refuse_filled_text(self, what: str) -> None:
        """Refuse to write a model that fills missing text in a format that cannot."""
        filled = self.preparation is not None and self.preparation.fill is not None
        text = next((column.name for column in self.columns if column.categories), None)
        if filled and text is not None:
            raise UsageError(
                f"the model fills missing values of the text column {text!r}, which {what} cannot; predict with codedfl"
            )

    def save(self, folder: Path) -> None:
        """Write the model into a folder, which may be copied anywhere."""
        storage.make_folder(folder)
        storage.remove_unfinished(folder)
        # json last: its digest tells whether both files belong together
        storage.write_arrays(folder / "model.npz", {"theta": self.theta})
        storage.write_json(folder / "model.json", self.to_table())

    def to_table(self) -> dict[str, Any]:
        """Return the contents of ``model.json``."""
        prepared = self.preparation
        return {
            "schema_version": SCHEMA,
            "kind": self.kind,
            "columns": [{"name": column.name, "categories": list(column.categories)} for column in self.columns],
            "targets": list(self.targets),
            "classes": list(self.classes),
            "preparation": None if prepared is None else prepared.to_table(),
            "features": dataclasses.asdict(self.features),
            "ridge": self.ridge,
            "intercept": self.intercept,
            "samples": self.samples,
            "scheme": self.scheme,
            "loss": self.loss,
            "privacy": self.privacy,
            "scenario_id": self.scenario_id,
            "version": self.version,
            "theta": {"shape": list(self.theta.shape), "dtype": self.theta.dtype.name, "sha256": digest(self.theta)},
        }

    @classmethod
    def load(cls, path: Path) -> "Model":
        """Read a model from its folder, or from the run that trained it; refuse anything else in one sentence."""
        from codedfl.task.model.reading import read_model

        return read_model(path)


def digest(theta: Float[np.ndarray, "d c"]) -> str:
    """Return the SHA-256 of the numbers of a model."""
    return hashlib.sha256(np.ascontiguousarray(theta).tobytes()).hexdigest()


def save_model(
    folder: Path,
    scenario: Scenario,
    scenario_id: str,
    objective: Objective,
    theta: Float[np.ndarray, "d c"],
    privacy: Mapping[str, Any] | None = None,
) -> None:
    """Save the model of a run; nothing where the server does not know the columns that the feature map begins with."""
    if objective.described is not None:
        facts: Any = {"kind": objective.kind, "samples": objective.samples, "description": objective.described}
        Model.create(scenario, scenario_id, theta, **facts, privacy=privacy).save(folder)
