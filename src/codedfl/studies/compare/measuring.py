"""Every scheme on every fleet: trained where the model depends on the fleet, predicted where it does not."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, final

from codedfl import schemes
from codedfl.errors import CodedflError, DataError, RunDirectoryError, ScenarioError
from codedfl.progress import Progress
from codedfl.runs import Run, execute
from codedfl.scenario import Scenario
from codedfl.security.attacks import ATTACKS
from codedfl.security.audit import attack_scenario
from codedfl.security.views.kinds import MembershipView, ModelView, TwoRunsView
from codedfl.storage import make_folder, write_json
from codedfl.studies.compare.fleets import label_sorted
from codedfl.studies.compare.predicting import predictable, predicted_summary
from codedfl.studies.plan import Shapes
from codedfl.task import Problem
from codedfl.task.shared import SharedProblem

GIVEN, SORTED = "as given", "sorted by label"
"""Partitions of the data: that of the scenario, and one run of labels a device."""
Part = tuple[str, str, str]
"""Partition, fleet and scheme."""
_DECISIVE = tuple(
    name for name, attack in ATTACKS.items() if attack.view_type not in (MembershipView, ModelView, TwoRunsView)
)
"""Attacks on what is sent in one run. Membership inference needs a matrix that one of these has found."""


@final
@dataclass(frozen=True, eq=False)
class Measured:
    """Result of a scheme on a fleet: a summary, from a run or predicted, or the error that refuses it."""

    scenario: Scenario
    summary: Mapping[str, Any] | None = None
    run: Run | None = None
    predicted: bool = False
    error: CodedflError | None = None

    @property
    def refused(self) -> str | None:
        """Why there is no result."""
        return None if self.error is None else str(self.error)


@final
class Measurements:
    """Schemes on fleets; on the first fleet all of them are trained and attacked."""

    def __init__(
        self,
        fleets: Mapping[str, Scenario],
        names: Sequence[str],
        out: Path,
        progress: Progress,
        *,
        sort: bool = False,
        attacked_epochs: int | None = 0,
        refused: Mapping[Part, CodedflError] | None = None,
        shared: SharedProblem | None = None,
    ) -> None:
        """``refused`` are errors that are known before, ``shared`` may have the data of an earlier comparison."""
        self.fleets, self.names = list(fleets), names
        self._base, self._out, self._attacked_epochs = fleets, out, attacked_epochs
        self.partitions = (GIVEN, SORTED) if sort else (GIVEN,)
        self._progress = Percentage(progress, steps=len(list(self._steps())))
        self._shared, self._refused = shared or SharedProblem(self._progress), refused or {}
        self._hollow_problem = lru_cache(maxsize=1)(self._make_hollow_problem)
        self.found: dict[Part, Measured] = {}
        self.outcomes: dict[str, list[dict[str, Any]]] = {}
        """What the attacks found, by scheme, where they were run."""

    def run(self) -> None:
        """Take every step whose result is not stored; raise the first error if no scheme has a result."""
        for step in self._steps():
            step()
            self._progress.next_step()
        errors = [found.error for found in self.found.values()]
        if errors[0] is not None and all(errors):
            raise errors[0]

    def _steps(self) -> Iterator[Callable[[], None]]:
        """Go fleet by fleet, since fleets of one size share their data."""
        for partition in self.partitions:
            for fleet in self.fleets:
                cases = [self.scenario(partition, fleet, name) for name in self.names]
                yield from (partial(self._measure, partition, fleet, case) for case in cases)
                if self._attacked_epochs != 0 and (partition, fleet) == (GIVEN, self.fleets[0]):
                    yield from (partial(self._attack, case) for case in cases)

    def compute(self, part: Part) -> Measured:
        """Compute one part alone: what it is predicted from, itself, and the attacks on it."""
        first = (GIVEN, self.fleets[0], part[2])
        if part != first and predictable(self.scenario(*part)):
            self._measure(*first[:2], self.scenario(*first))
        self._measure(*part[:2], self.scenario(*part))
        if part == first and self._attacked_epochs != 0:
            self._attack(self.scenario(*part))
        return self.found[part]

    def places(self, part: Part) -> list[str]:
        """Return where results of a part are stored, in the folder of the comparison."""
        scenario, first = self.scenario(*part), self.scenario(GIVEN, self.fleets[0], part[2])
        return [
            _run_place(scenario),
            _prediction_place(scenario, first),
            _attack_place(scenario, self._attacked_epochs),
        ]

    def scenario(self, partition: str, fleet: str, name: str) -> Scenario:
        """Return the scenario of a part."""
        base = self._base[fleet].with_settings({"scheme": name})
        return _served(label_sorted(base) if partition == SORTED else base)

    def _measure(self, partition: str, fleet: str, scenario: Scenario) -> None:
        known = self.found.get((GIVEN, self.fleets[0], scenario.scheme))
        run = known.run if known and known.run and predictable(scenario) else None
        try:
            if (error := self._refused.get((partition, fleet, scenario.scheme))) is not None:
                raise error
            if known is None or run is None:
                found = self._trained(scenario)
            elif partition == SORTED:  # only the accuracy counts, and that of all data is the same in every partition
                found = replace(known, predicted=True)
            else:
                found = self._predicted(fleet, scenario, run)
        except RunDirectoryError:
            raise
        except CodedflError as error:
            if known is None and isinstance(error, DataError):
                self._shared.get(scenario)()  # raises if there are no data, and nothing to compare
            found = Measured(scenario, predicted=run is not None, error=error)
        self.found[partition, fleet, scenario.scheme] = found

    def _trained(self, scenario: Scenario) -> Measured:
        place = self._out / _run_place(scenario)
        run = execute(scenario, place, shared=self._shared, progress=self._progress)
        return Measured(scenario, run.summary, run)

    def _predicted(self, fleet: str, scenario: Scenario, known: Run) -> Measured:
        place = self._out / _prediction_place(scenario, known.scenario)
        summary = stored(place, lambda: predicted_summary(scenario, self._hollow_problem(fleet), known))
        return Measured(scenario, summary, predicted=True)

    def _make_hollow_problem(self, fleet: str) -> Problem:
        return Shapes.of_data(self._base[fleet], self._progress).hollow(self._base[fleet])

    def _attack(self, scenario: Scenario) -> None:
        name, epochs = scenario.scheme, self._attacked_epochs

        def outcomes() -> list[dict[str, Any]]:
            problem = self._shared.get(scenario)()
            found = attack_scenario(scenario, problem, names=_DECISIVE, epochs=epochs, progress=self._progress)
            return [outcome.to_table() for outcome in found]

        if self.found[GIVEN, self.fleets[0], name].run is not None and not scenario.private:
            self.outcomes[name] = stored(self._out / _attack_place(scenario, epochs), outcomes)


def _run_place(scenario: Scenario) -> str:
    return f"runs/{scenario.scheme}-{scenario.id()}"


def _prediction_place(scenario: Scenario, known: Scenario) -> str:
    return f"predictions/{scenario.scheme}-{scenario.id()}-{known.id()}.json"


def _attack_place(scenario: Scenario, epochs: int | None) -> str:
    return f"attacks/{scenario.scheme}-{scenario.id()}-{epochs or 'decisive'}.json"


def _served(scenario: Scenario) -> Scenario:
    """Return the scenario with the solver that its scheme is made for, or gradient descent if it cannot serve it."""
    with suppress(ScenarioError):  # wrong options of the scheme: its run is refused with the same sentence
        solver, own = scenario.training.solver, schemes.nominal(scenario).solver
        if solver == "gradient-descent" and own is not None:
            return scenario.with_settings({"training.solver": own})
        if not schemes.serves(scenario, solver):
            return scenario.with_settings({"training.solver": "gradient-descent"})
    return scenario


def stored(path: Path, compute: Callable[[], Any]) -> Any:
    """Return the JSON value of a file; where there is none, or a damaged one, compute it and write it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        value = compute()
    make_folder(path.parent)
    write_json(path, value)
    return value


@final
class Percentage:
    """Progress of a list of steps: the percentage of all, and the current step under a short name."""

    def __init__(self, progress: Progress, steps: int) -> None:
        self._progress, self._steps = progress, steps
        self._done = self._shown = 0

    def next_step(self) -> None:
        """Count what is reported from now on towards the next step."""
        self._done += 1
        self._report(0.0)

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Report a stage by its first word, since a bar for each scheme would be too many."""
        if total == 0:
            self._progress(stage, 0, 0)
            return
        word = stage.split()[0]
        self._progress(word, done, total)
        if word in ("training", "running", "predicting"):  # other stages are short
            self._report(done / total)

    def _report(self, share: float) -> None:
        self._shown = max(self._shown, int(100 * (self._done + share) / self._steps))  # a step may train several times
        self._progress("everything, in percent", self._shown, 100)
