"""What is run: everything at the paper's size, or the same in small; and the readings of what the paper leaves open."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from codedfl.scenario import Scenario, load
from codedfl.studies.reproduce.claims import SCALE
from codedfl.studies.reproduce.sealed import SealedCase, sealed_cases

_DELTAS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True)
class Reading:
    """One reading of four points that the paper leaves open."""

    channel: str = "parallel"
    """``links.d2d_channel``: whether parcels between devices share one channel."""
    detect_from: int = 2
    """The first epoch whose stragglers hand over."""
    supply: str = "once"
    """Whether each support is used once, or all are issued again in every epoch."""
    odd_set: str = "partner"
    """What makes an odd set of stragglers even."""

    def settings(self, delta: float) -> dict[str, Any]:
        """Return the settings of a scenario in this reading, at a Delta."""
        options = {"detect_from": self.detect_from, "supply": self.supply, "odd_set": self.odd_set, "delta": delta}
        changes = {f"schemes.code-based.{key}": value for key, value in options.items()}
        return {"links.d2d_channel": self.channel, **changes}


READINGS = tuple(
    Reading(*values)
    for values in itertools.product(("parallel", "shared"), (2, 1), ("once", "reissued"), ("partner", "two-errors"))
)
"""All readings; the first is the default of the settings."""


@dataclass(frozen=True)
class Setting:
    """One of the paper's two settings: its scenario, what the paper claims, and which Deltas are tried."""

    level: int
    scenario: Scenario
    speedup: float
    delta: float
    """The best Delta at the paper's size, as the paper claims."""
    deltas: tuple[float, ...]
    printed_supports: int
    """The number of supports in Table I, which contradicts the text."""

    @property
    def name(self) -> str:
        """The label of the setting in tables and figures: level and support policy."""
        words = {"once": "each support once", "reissued": "supports reissued"}
        return f"code-based, claimed {self.level} bit, {words[self.options['supply']]}"

    @property
    def options(self) -> dict[str, Any]:
        """The options of its scheme; the Delta among them is the claimed one, in small if the scenario is."""
        options: dict[str, Any] = self.scenario.to_table()["schemes"]["code-based"]
        return options

    @property
    def reading(self) -> Reading:
        """The reading in which it is trained."""
        return Reading(supply=self.options["supply"])


@dataclass(frozen=True)
class Experiment:
    """What is run: everything at the paper's size, or the same in small."""

    minibatch: Scenario
    settings: tuple[Setting, Setting]
    padded: Scenario
    """CodedPaddedFL over direct links, at the published alpha."""
    sealed: tuple[SealedCase, ...]
    draws: int
    trials: int
    """Random erasure sets behind the frame error rate."""


def experiment(*, quick: bool) -> Experiment:
    """Return the experiment at the paper's size, or in small."""
    if not quick:
        first = Setting(92, load("paper-92"), 4.7, 3.0, _DELTAS, printed_supports=4)
        second = Setting(128, load("paper-128"), 4.0, 1.0, _DELTAS, printed_supports=16)
        paper, chosen = load("paper"), (first, second)
        return Experiment(paper, chosen, _padded(paper, 16), sealed_cases(), draws=100, trials=150_000)
    small = load("paper-quick").with_settings({"training.epochs": 200, "timing.draws": 200})
    deltas = tuple(delta / SCALE for delta in _DELTAS)
    wide = _small(small, {"t": 16, "M": 16, "delta": 3.0 / SCALE, "supply": "once"})
    strong = _small(small, {"t": 32, "M": 4, "delta": 1.0 / SCALE, "supply": "reissued"})
    first, second = Setting(92, wide, 4.7, 3.0, deltas, 4), Setting(128, strong, 4.0, 1.0, deltas, 16)
    padded = _padded(small, min(16, small.fleet.size))
    return Experiment(small, (first, second), padded, sealed_cases(small), draws=40, trials=20_000)


def _small(scenario: Scenario, options: Mapping[str, Any]) -> Scenario:
    changes = {f"schemes.code-based.{key}": value for key, value in options.items()}
    return scenario.with_settings({"scheme": "code-based", **changes})


def _padded(scenario: Scenario, alpha: int) -> Scenario:
    options = {"schemes.coded-padded.alpha": alpha, "schemes.coded-padded.sharing": "direct"}
    return scenario.with_settings({"scheme": "coded-padded", **options})
