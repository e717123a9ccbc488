"""Training: the loop, its records, and the time and costs of a training."""

from codedfl.training.loop import BLOCK, create_solver, first_gradient, train
from codedfl.training.records import COLUMNS, History, StageRecord, State

__all__ = ["BLOCK", "COLUMNS", "History", "StageRecord", "State", "create_solver", "first_gradient", "train"]
