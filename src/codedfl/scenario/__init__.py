"""Scenarios: everything that defines an experiment, TOML in and out, and the presets."""

from codedfl.scenario.loading import load, preset_names
from codedfl.scenario.scenario import Scenario, SchemeOptions, known_options, use_options
from codedfl.scenario.sections import (
    AUTO,
    DATA_SETS,
    SOLVER_NAMES,
    Data,
    DeviceGroup,
    Features,
    Fleet,
    Links,
    Partition,
    Task,
    Timing,
    Training,
)

__all__ = [
    "AUTO",
    "DATA_SETS",
    "SOLVER_NAMES",
    "Data",
    "DeviceGroup",
    "Features",
    "Fleet",
    "Links",
    "Partition",
    "Scenario",
    "SchemeOptions",
    "Task",
    "Timing",
    "Training",
    "known_options",
    "load",
    "preset_names",
    "use_options",
]
