"""Finding 8: membership is never attacked from sums; the sum that `one-shot` opens gives it away (AUC 1.00)."""

import pytest

from codedfl.scenario import load
from codedfl.security.audit import attack_scenario
from codedfl.task import Problem

NAMES = ["server-replies", "decomposition"]


@pytest.mark.parametrize("scheme", ["one-shot", "sealed-coded"])
def test_who_is_in_the_union_is_told_by_the_sum(scheme: str) -> None:
    """Digits, 300 features: the sum that is opened, or the one that d / c epochs add up to."""
    chosen = load("paper-quick").with_settings({"scheme": scheme})
    found = attack_scenario(chosen, Problem.build(chosen), names=NAMES)
    areas = {entry.asset: entry.score.auc for entry in found if entry.attack == "decomposition" and is_sum(entry)}
    assert round(areas["membership in the union"], 2) == 1.0
    assert areas["membership of a device"] < 0.7, "a sum does not tell whose a record is"


def is_sum(entry: object) -> bool:
    words = str(entry.assumption)  # type: ignore[attr-defined]
    return "sums over all devices" in words and "help" not in words
