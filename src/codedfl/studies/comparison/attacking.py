"""The attack suite on one scheme, and its strongest finding."""

from collections.abc import Mapping, Sequence
from typing import Any

from codedfl.security.attacks import ATTACKS, Null
from codedfl.security.views.kinds import MembershipView

__all__ = ["DECISIVE", "strongest"]

DECISIVE = tuple(name for name, attack in ATTACKS.items() if attack.view_type is not MembershipView)
"""Attacks on what is sent; who is in the data, given a matrix that one of them found, decides nothing any more."""

_WORST_FIRST = ("falls", "leaks", "holds")
_KEPT = ("verdict", "attack", "view", "holder", "assumption", "relative_error", "auc")


def strongest(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the worst verdict, and the attack and the view that it comes from.

    What counts are attacks on the scheme as it is; what they get under a further assumption stands in ``assuming``. The
    attacker who does not look is not counted.
    """
    real = [outcome for outcome in outcomes if not outcome["assumption"] and outcome["attack"] != Null.name]
    assumed = [outcome for outcome in outcomes if outcome["assumption"]]
    return {**_worst(real), "tried": len(real), "assuming": _worst(assumed) if assumed else None}


def _worst(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if not outcomes:
        return dict.fromkeys(_KEPT)
    found = min(outcomes, key=lambda outcome: (_WORST_FIRST.index(outcome["verdict"]), _error(outcome)))
    return {key: found[key] for key in _KEPT}


def _error(outcome: Mapping[str, Any]) -> float:
    error = outcome["relative_error"]
    return float("inf") if error is None else float(error)
