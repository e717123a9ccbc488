"""Train one linear model over many unequal devices, quickly and privately, and know how quickly and how privately.

    import codedfl
    run = codedfl.run("paper-quick", "runs/first", {"scheme": "sealed-coded"})

Names are imported when they are first used, so that ``import codedfl`` costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codedfl import schemes as schemes
    from codedfl.errors import CodedflError as CodedflError
    from codedfl.errors import CodedflWarning as CodedflWarning
    from codedfl.front import attack as attack
    from codedfl.front import compare as compare
    from codedfl.front import load_model as load_model
    from codedfl.front import load_run as load_run
    from codedfl.front import plan as plan
    from codedfl.front import run as run
    from codedfl.front import sweep as sweep
    from codedfl.front.estimators import FederatedRidge as FederatedRidge
    from codedfl.front.estimators import FederatedRidgeClassifier as FederatedRidgeClassifier
    from codedfl.front.estimators import FederatedRidgeCV as FederatedRidgeCV
    from codedfl.front.results import Comparison as Comparison
    from codedfl.runs import Run as Run
    from codedfl.scenario import Scenario as Scenario
    from codedfl.scenario import load as load

__version__ = "0.1.0"

_HOMES = dict.fromkeys(("attack", "compare", "load_model", "load_run", "plan", "run", "sweep"), "front")
_HOMES |= {
    "CodedflError": "errors",
    "CodedflWarning": "errors",
    "Comparison": "front.results",
    "FederatedRidge": "front.estimators",
    "FederatedRidgeCV": "front.estimators",
    "FederatedRidgeClassifier": "front.estimators",
    "Run": "runs",
    "Scenario": "scenario",
    "load": "scenario",
}

__all__ = ["__version__", "schemes", *_HOMES]


def __getattr__(name: str) -> Any:
    if name == "schemes":
        return importlib.import_module("codedfl.schemes")
    if name not in _HOMES:
        raise AttributeError(f"module 'codedfl' has no attribute '{name}'")
    try:
        return getattr(importlib.import_module(f"codedfl.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        from codedfl.errors import HEAVY, missing_study

        if error.name in HEAVY:
            raise missing_study(error.name) from error
        raise


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
