"""Scenarios: everything that defines an experiment, TOML in and out, and the presets."""

from codedfl.scenario.loading import load, preset_names
from codedfl.scenario.privacy import ColumnRange, Privacy
from codedfl.scenario.scenario import InexactOptions, Scenario, SchemeOptions, known_options, use_options
from codedfl.scenario.sections import DeviceGroup, Fleet, Links, Training

__all__ = [
    "ColumnRange",
    "DeviceGroup",
    "Fleet",
    "InexactOptions",
    "Links",
    "Privacy",
    "Scenario",
    "SchemeOptions",
    "Training",
    "known_options",
    "load",
    "preset_names",
    "use_options",
]
