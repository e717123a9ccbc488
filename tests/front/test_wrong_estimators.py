"""Estimators refuse wrong parameters and rows with scikit-learn's exceptions, in one sentence."""

import pickle
from typing import Any

import numpy as np
import pytest

import codedfl
from codedfl import FederatedRidge, FederatedRidgeClassifier, Scenario
from front.test_estimators import OWNERS, ROWS, X, Y

WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"scheme": "seald"}, {}, "scheme = 'seald' must be one of .* \\(did you mean 'sealed'\\?\\)"),
    ({"scheme": None}, {}, "scheme = None must be a text"),
    ({"ridge": -1}, {}, "task.ridge = -1.0 must be a number at least 0"),
    ({"features": 5}, {}, "features = 5 must be 'none', 'rbf' or a table"),
    ({"features": {"dimensio": 5}}, {}, "unknown key 'features.dimensio'"),
    ({"scale": "minmax"}, {}, "features.scale = 'minmax' must be one of"),
    ({"missing": "median"}, {}, "features.missing = 'median' must be one of"),
    ({"fit_intercept": "yes"}, {}, "features.intercept = 'yes' must be true or false"),
    ({"solver": "adam"}, {}, "training.solver = 'adam' must be one of"),
    ({"solver": "closed-form"}, {}, "needs the sums over all data at the server"),
    ({"accuracy": 2.0}, {}, "task.accuracy = 2.0 must be a number"),
    ({"settings": {"link.loss": 1}}, {}, "unknown key 'link.loss'"),
    ({"fleet": 7}, {}, "fleet.devices = 7 must be a list"),
    ({"fleet": "papr"}, {}, "no preset is called 'papr'"),
    ({"devices": 0}, {}, "devices = 0 must be a whole number of at least 1"),
    ({"devices": 2.5}, {}, "devices = 2.5 must be a whole number of at least 1"),
    ({"devices": 1}, {}, "needs at least 2 devices: with one, the sum is its own data"),
    ({"devices": ROWS + 1}, {}, f"{ROWS} samples cannot be dealt to {ROWS + 1} devices"),
    ({"devices": 3}, {"owners": OWNERS}, "devices = 3 but the rows have 6 owners; leave devices out"),
    ({}, {"owners": ["all"] * ROWS}, "needs at least 2 devices: with one, the sum is its own data"),
    ({}, {"owners": OWNERS[:-1]}, rf"owners have shape \({ROWS - 1},\) but X has {ROWS} rows"),
    ({}, {"owners": "school"}, r"owners have shape \(\) but X has"),
    ({}, {"owners": [None, *OWNERS[1:]]}, "the owner of row 0 .* is missing"),
    ({}, {"owners": [*OWNERS[:-1], ""]}, f"the owner of row {ROWS - 1} .* is missing"),
    ({"out": __file__}, {}, "exists and is not a run directory"),
    ({"scheme": "minibatch", "settings": {"training.learning_rate": 50}}, {}, "training diverged by epoch 8"),
]


@pytest.mark.parametrize(("options", "given", "sentence"), WRONG)
def test_wrong_parameters_are_refused_in_one_sentence(
    options: dict[str, Any], given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        FederatedRidge(**options).fit(X, Y, **given)
    assert isinstance(caught.value.__cause__, codedfl.CodedflError)
    assert "\n" not in str(caught.value)


def test_wrong_rows_and_targets_are_refused() -> None:
    holes = np.where(np.arange(6) == 2, np.nan, X)
    for rows, targets, sentence in ((holes, Y, "contains NaN"), (X, Y[:-1], "inconsistent numbers"), (X, None, "y")):
        with pytest.raises(ValueError, match=sentence):
            FederatedRidge().fit(rows, targets)
    with pytest.raises(ValueError, match=r"y holds 1 class \['low'\]; a classifier needs at least 2 classes"):
        FederatedRidgeClassifier().fit(X, ["low"] * ROWS)
    with pytest.raises(ValueError, match="Unknown label type"):
        FederatedRidgeClassifier().fit(X, Y)


def test_a_broken_cipher_is_named() -> None:
    with (
        pytest.warns(codedfl.CodedflWarning, match="'code-based' is broken") as told,
        pytest.raises(ValueError, match=r"schemes\.code-based does not fit 3 features"),
    ):
        FederatedRidge(scheme="code-based").fit(X[:, :3], Y, owners=OWNERS)
    assert told[0].filename == __file__


def test_scenarios_can_be_pickled() -> None:
    scenario: Scenario = codedfl.load("paper-quick")
    assert pickle.loads(pickle.dumps(scenario)) == scenario
