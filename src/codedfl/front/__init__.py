"""The front door: what ``import codedfl`` offers, as functions and as scikit-learn estimators.

``import codedfl`` imports its modules, and what they need, when one of their names is first used.
"""

from codedfl.front.functions import attack, broken_ciphers, compare, load_model, load_run, plan, run, sweep

__all__ = ["attack", "broken_ciphers", "compare", "load_model", "load_run", "plan", "run", "sweep"]
