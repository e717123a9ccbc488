"""The fleets of a comparison: that of a scenario, and two others with the same data, links and training."""

from collections.abc import Mapping
from typing import Any

from codedfl.scenario import Scenario, load

_PRESETS = ("homogeneous", "heavy-tailed", "paper")


def own_fleet(scenario: Scenario) -> str:
    """Return the name of a scenario's fleet: that of the preset with the same devices, if there is one."""
    alike = (name for name in _PRESETS if load(name).fleet.devices == scenario.fleet.devices)
    return next(alike, scenario.name)


def fleets_of(scenario: Scenario) -> dict[str, Scenario]:
    """Return the scenario on three fleets by name: its own first, then those of the presets that are others."""
    presets = {name: load(name) for name in _PRESETS}
    own = own_fleet(scenario)
    others = [name for name in _PRESETS if name != own][:2]
    return {own: scenario} | {name: _moved(scenario, name, presets) for name in others}


def label_sorted(scenario: Scenario) -> Scenario:
    """Return the scenario with data sorted by label, one run of labels a device; one training gives the accuracy."""
    changes = {"partition.kind": "shards", "partition.shards_per_device": 1, "timing.repeats": 1}
    return scenario.with_settings(changes)


def _moved(scenario: Scenario, name: str, presets: Mapping[str, Scenario]) -> Scenario:
    """Put the scenario on the fleet of a preset, with the options of schemes that go with the fleet."""
    tables = [preset.to_table()["schemes"] for preset in presets.values()]
    chosen = presets[name].to_table()
    changes: dict[str, Any] = {"fleet.devices": chosen["fleet"]["devices"]}
    for scheme, options in chosen["schemes"].items():
        for key, value in options.items():
            if any(table.get(scheme, {}).get(key) != value for table in tables):
                changes[f"schemes.{scheme}.{key}"] = value
    return scenario.with_settings(changes)
