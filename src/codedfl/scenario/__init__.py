"""Scenarios: everything that defines an experiment, TOML in and out, and the presets."""

from codedfl.scenario.scenario import (
    Data,
    DeviceGroup,
    Features,
    Fleet,
    Links,
    Partition,
    Scenario,
    SchemeOptions,
    Task,
    Timing,
    Training,
    load,
    preset_names,
    register_options,
)

__all__ = [
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
    "load",
    "preset_names",
    "register_options",
]
