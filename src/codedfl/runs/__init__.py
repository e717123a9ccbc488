"""Run directories: results, checkpoints, and runs that resume."""

from codedfl.runs.directory import Run, default_directory, execute, load, model_difference
from codedfl.runs.memory import MemoryRun, run_in_memory
from codedfl.runs.observing import Course, Observer
from codedfl.runs.summary import final_score, metric_name, target_name, times_to_targets

__all__ = [
    "Course",
    "MemoryRun",
    "Observer",
    "Run",
    "default_directory",
    "execute",
    "final_score",
    "load",
    "metric_name",
    "model_difference",
    "run_in_memory",
    "target_name",
    "times_to_targets",
]
