"""Finding 9: replies of ring schemes are exact and model rounding dithers, so every epoch adds c dimensions.

`sealed` without hand-overs falls at d/c epochs; the audit stops at 100. The server of `sealed-coded` should have the
whole summed Gram matrix by then.
"""

from functools import cache

import pytest

from codedfl.scenario import Scenario
from codedfl.security.audit import attack_scenario
from codedfl.task import Problem
from schemes.residues import wanted
from tiny import problem

FEATURES = 130


@cache
def given() -> Problem:
    """One output: 130 epochs for 130 features, more than 100."""
    return problem([30] * 6, features=FEATURES, outputs=1)


def chosen(name: str, epochs: int = 400) -> Scenario:
    settings = {"training.epochs": epochs, "training.learning_rate": 0.01, "schemes.sealed": {"delta": 1e9}}
    return wanted(name, settings)


@pytest.mark.parametrize("name", ["sealed", "sealed-coded"])
def test_d_over_c_epochs_tell_the_whole_matrix(name: str) -> None:
    best, *_ = attack_scenario(chosen(name), given(), names=["server-replies"])
    assert best.score.remark == f"dimension {FEATURES} of {FEATURES} reached"
    assert best.score.verdict == "falls"
    assert best.view == {"sealed": "replies of one device", "sealed-coded": "sums over all devices"}[name]


def test_a_training_that_ends_before_is_attacked_to_its_end_only() -> None:
    best, *_ = attack_scenario(chosen("sealed", 20), given(), names=["server-replies"])
    assert (best.epochs, best.score.remark) == (20, f"dimension 19 of {FEATURES} reached")
