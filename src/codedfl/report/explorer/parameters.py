"""The sliders of the explorer, and the scenario that they make."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from codedfl.errors import UsageError
from codedfl.scenario import Scenario
from codedfl.studies.epochs_to_target import ASSUMED

Values = Mapping[str, Any]
"""Positions of the sliders by name."""
CHANNELS = ("parallel", "shared")
_MEGA = 1e6
_RATES = {"down": "links.down_rate", "up": "links.up_rate", "d2d": "links.d2d_rate"}
_EPOCHS = {"gradient_epochs": "gradient-descent", "conjugate_epochs": "conjugate-gradients"}


@dataclass(frozen=True)
class Parameter:
    """A slider: its range, and whether it is logarithmic; whole numbers only if ``whole``."""

    name: str
    label: str
    unit: str
    low: float
    high: float
    logarithmic: bool = False
    whole: bool = False
    recounts: bool = False
    """Whether a change makes costs be counted again."""

    def to_table(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    def read(self, value: Any) -> float:
        """Return a position as a number in the range; refuse anything else."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise UsageError(f"{self.name} = {value!r} must be a number from {self.low:g} to {self.high:g}")
        if not self.low <= value <= self.high or (self.whole and value != int(value)):
            kind = "a whole number" if self.whole else "a number"
            raise UsageError(f"{self.name} = {value:g} must be {kind} from {self.low:g} to {self.high:g}")
        return int(value) if self.whole else float(value)


PARAMETERS = (
    Parameter("devices", "devices", "", 2, 1000, logarithmic=True, whole=True, recounts=True),
    Parameter("speed", "speed of all devices", "times", 0.05, 20, logarithmic=True),
    Parameter("spread", "inequality of devices (0: all as the fastest, 1: as given)", "", 0, 2),
    Parameter("down", "rate from the server", "Mbit/s", 0.05, 1000, logarithmic=True),
    Parameter("up", "rate to the server", "Mbit/s", 0.05, 1000, logarithmic=True),
    Parameter("d2d", "rate between devices", "Mbit/s", 0.05, 1000, logarithmic=True),
    Parameter("loss", "loss of a message", "", 0, 0.6),
    Parameter("gradient_epochs", "epochs of gradient descent", "", 1, 5000, logarithmic=True, whole=True),
    Parameter("conjugate_epochs", "epochs of conjugate gradients", "", 1, 200, logarithmic=True, whole=True),
    Parameter("features", "features", "", 20, 4000, logarithmic=True, whole=True, recounts=True),
    Parameter("epsilon", "epsilon of differential privacy (0: no noise)", "", 0, 20, recounts=True),
)


def initial_values(scenario: Scenario) -> dict[str, Any]:
    """Return where the sliders stand for a scenario; those that do not fit its data are left out."""
    links = scenario.links
    values: dict[str, Any] = {
        "devices": scenario.fleet.size,
        "speed": 1.0,
        "spread": 1.0,
        **{name: getattr(links, key.removeprefix("links.")) / _MEGA for name, key in _RATES.items()},
        "loss": links.loss,
        **{name: ASSUMED[solver].count for name, solver in _EPOCHS.items()},
        "features": scenario.features.dimension,
        "epsilon": scenario.privacy.epsilon or 0.0,
        "channel": links.d2d_channel,
        "privacy": "encrypted",
    }
    if scenario.partition.by_owner:
        del values["devices"]
    if scenario.features.kind == "none":
        del values["features"]
    return values


def sliders(initial: Values) -> list[Parameter]:
    """Return the sliders, with ranges that hold the initial positions."""
    found = []
    for each in (each for each in PARAMETERS if each.name in initial):
        value = initial[each.name]
        limits = asdict(each) | {"low": min(each.low, value), "high": max(each.high, value)}
        found.append(Parameter(**limits))
    return found


def scenario_of(base: Scenario, initial: Values, values: Values) -> Scenario:
    """Return the scenario for some positions; what stands where it stood is left as it is, to the last bit."""
    read = {each.name: each.read(values.get(each.name, initial[each.name])) for each in sliders(initial)}
    moved = {name: value for name, value in read.items() if value != initial[name]}
    changed = base.with_devices(int(moved["devices"])) if "devices" in moved else base
    changes: dict[str, Any] = {key: moved[name] * _MEGA for name, key in _RATES.items() if name in moved}
    if "loss" in moved:
        changes["links.loss"] = moved["loss"]
    if "features" in moved:
        changes["features.dimension"] = moved["features"]
    if "epsilon" in moved and moved["epsilon"] > 0:
        changes["privacy.epsilon"] = moved["epsilon"]
    if moved.keys() & {"speed", "spread"}:
        changes["fleet.devices"] = _groups(changed, read["speed"], read["spread"])
    channel = values.get("channel", initial["channel"])
    if channel not in CHANNELS:
        raise UsageError(f"channel = {channel!r} must be one of {', '.join(CHANNELS)}")
    if channel != initial["channel"]:
        changes["links.d2d_channel"] = channel
    if read.get("epsilon") == 0 and base.private:
        changed = _without_noise(changed)
    return changed.with_settings(changes) if changes else changed


def _groups(scenario: Scenario, speed: float, spread: float) -> list[dict[str, Any]]:
    """Return the groups of devices, faster or slower, and more or less unequal."""
    groups = scenario.fleet.to_table()["devices"]
    fastest = max(group["mac_rate"] for group in groups)
    return [group | {"mac_rate": speed * fastest * (group["mac_rate"] / fastest) ** spread} for group in groups]


def _without_noise(scenario: Scenario) -> Scenario:
    table = scenario.to_table()
    table["privacy"].pop("epsilon", None)
    return type(scenario).from_table(table)


def told_epochs(initial: Values, values: Values) -> dict[str, int]:
    """Return the numbers of epochs that are set, by solver; those that stand where they stood are not told."""
    known = {each.name: each for each in sliders(initial)}
    read = {name: int(known[name].read(values.get(name, initial[name]))) for name in _EPOCHS}
    return {_EPOCHS[name]: count for name, count in read.items() if count != initial[name]}
