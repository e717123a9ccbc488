"""How long work tells where it stands."""

from collections.abc import Callable

__all__ = ["Progress", "silent"]

Progress = Callable[[str, int, int], None]
"""Called with the name of a stage, how much of it is done and how much there is; a total of 0 is a mere sentence."""


def silent(stage: str, done: int, total: int) -> None:
    """Tell nobody."""
