"""What if the fleet were another: plans whose costs are counted once, and whose times are drawn again.

Costs follow from shapes, options, noise, and what a scheme chooses by the delays of the fleet. All else, rates, losses
and the numbers of epochs, only changes times. So a plan after such a change is a replay of known costs, on random
numbers that are kept, too. It equals the plan that is made from nothing.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl import schemes
from codedfl.errors import NotCountedError, ScenarioError
from codedfl.network import RandomBook
from codedfl.scenario import Scenario
from codedfl.studies.plan.costs import CostCounter, Costs, probe, short_scenario
from codedfl.studies.plan.shapes import Shapes
from codedfl.task import Problem

_TIMES_ONLY = (
    "name",
    "links",
    "timing",
    "fleet.devices",
    "fleet.server_mac_rate",
    "training.epochs",
    "training.targets",
)
"""Keys of a scenario that change no costs, but by what a scheme chooses by delays."""
_BOOK_BYTES = 700_000_000


@final
class KeptRandomBook(RandomBook):
    """Random numbers that are drawn once; forgets everything when it would hold more than ``most`` bytes."""

    def __init__(self, most: int = _BOOK_BYTES) -> None:
        self._most, self._held = most, 0
        self._known: dict[tuple[object, ...], Float[np.ndarray, "rows columns"]] = {}

    def logarithms(
        self, seed: int, epochs: Sequence[int], stream: int, first: int, draws: int, columns: int
    ) -> Float[np.ndarray, "rows columns"]:
        """Return the numbers of a stream in some epochs; they cannot be changed."""
        key = (seed, epochs[0], epochs[-1], len(epochs), stream, first, draws, columns)
        if key not in self._known:
            made = super().logarithms(seed, epochs, stream, first, draws, columns)
            made.setflags(write=False)
            if self._held + made.nbytes > self._most:
                self._known, self._held = {}, 0
            self._known[key] = made
            self._held += made.nbytes
        return self._known[key]


@final
class KeptCosts(CostCounter):
    """Counts costs once for each scheme, shape and choice; several threads may ask."""

    def __init__(self) -> None:
        self.book = KeptRandomBook()
        self._costs: dict[Any, Costs | ScenarioError] = {}
        self._problems: dict[Any, Problem] = {}
        self._lock = threading.Lock()

    def problem(self, scenario: Scenario, shapes: Shapes) -> Problem:
        """Return hollow data, kept for the newest shapes."""
        key = (shapes, scenario.precision, str(scenario.ridge))
        with self._lock:
            if key not in self._problems:
                self._problems = {key: shapes.hollow(scenario)}
            return self._problems[key]

    def count(self, scenario: Scenario, problem: Problem) -> Costs:
        """Return known costs, with the scheme as it is on this fleet; raise NotCountedError if they are not known."""
        scheme, key = self._identified(scenario, problem)
        with self._lock:
            found = self._costs.get(key)
        if found is None:
            raise NotCountedError(f"the costs of '{scenario.scheme}' are not counted yet")
        if isinstance(found, ScenarioError):
            raise found
        return replace(found, scheme=scheme)

    def known(self, scenario: Scenario, problem: Problem) -> bool:
        """Tell whether the costs are known, or are known to be refused."""
        try:
            self.count(scenario, problem)
        except NotCountedError:
            return False
        except ScenarioError:
            return True
        return True

    def learn(self, scenario: Scenario, problem: Problem, pause: Callable[[], None] = lambda: None) -> None:
        """Count costs, which may take seconds or minutes; ``pause`` may keep it waiting."""
        found: Costs | ScenarioError
        with suppress(ScenarioError):  # refused when the scheme is made: refused again, at once, when it is asked
            _, key = self._identified(scenario, problem)
            try:
                found = probe(scenario, problem, pause)
            except ScenarioError as error:
                found = error
            with self._lock:
                self._costs[key] = found

    def _identified(self, scenario: Scenario, problem: Problem) -> tuple[schemes.Scheme[Any], Any]:
        """Return the scheme of a scenario, and all that its costs depend on."""
        short = short_scenario(scenario)
        scheme = schemes.create(short, problem)
        shapes = tuple((len(shard.x), *shard.y.shape, *shard.x.shape) for shard in problem.shards)
        public = scheme.public
        bounds = public.largest_feature, public.largest_target
        return scheme, (_settings(short), shapes, bounds, scheme.chosen_by_delays, public.release)


def _settings(scenario: Scenario) -> tuple[tuple[str, str], ...]:
    flat = _flat(scenario.to_table())
    return tuple((key, repr(value)) for key, value in sorted(flat.items()) if not key.startswith(_TIMES_ONLY))


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def changed_settings(scenario: Scenario, base: Scenario) -> dict[str, Any]:
    """Return the settings in which a scenario differs from another, by dotted keys."""
    own, other = _flat(scenario.to_table()), _flat(base.to_table())
    return {key: value for key, value in own.items() if key not in other or other[key] != value}
