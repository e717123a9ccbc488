"""Run directories: results, checkpoints, and runs that resume."""

from codedfl.runs.directory import (
    Run,
    default_directory,
    execute,
    finished,
    load,
    model_difference,
    target_name,
    times_to_targets,
)

__all__ = [
    "Run",
    "default_directory",
    "execute",
    "finished",
    "load",
    "model_difference",
    "target_name",
    "times_to_targets",
]
