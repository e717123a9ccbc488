"""Training: the loop, its records, and the time and costs of a training."""

from codedfl.training.loop import BLOCK, first_gradient, train
from codedfl.training.records import COLUMNS, History, StageRecord, State
from codedfl.training.solving import create_solver, with_noise_ridge

__all__ = [
    "BLOCK",
    "COLUMNS",
    "History",
    "StageRecord",
    "State",
    "create_solver",
    "first_gradient",
    "train",
    "with_noise_ridge",
]
