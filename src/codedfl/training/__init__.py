"""Training: the loop, its records, and the time and costs of a training."""

from codedfl.training.loop import BLOCK, COLUMNS, History, State, create_solver, train

__all__ = ["BLOCK", "COLUMNS", "History", "State", "create_solver", "train"]
