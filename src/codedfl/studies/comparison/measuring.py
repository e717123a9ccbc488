"""Every scheme on every fleet: trained where the model depends on the fleet, predicted where it does not."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from codedfl.errors import CodedflError, DataError, RunDirectoryError
from codedfl.progress import Progress
from codedfl.runs import Run, execute
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES
from codedfl.security.audit import attack_scenario
from codedfl.studies.compare import SharedProblem, served
from codedfl.studies.comparison.attacking import DECISIVE, strongest
from codedfl.studies.comparison.fleets import label_sorted
from codedfl.studies.comparison.overall import Overall
from codedfl.studies.comparison.predicting import predictable, predicted_summary
from codedfl.studies.comparison.stored import stored
from codedfl.studies.plan import Shapes
from codedfl.task import Problem

__all__ = ["IID", "SORTED", "Field", "Found"]

IID, SORTED = "iid", "sorted"
_TRAINING, _ATTACKING, _PREDICTING = 20, 15, 10
"""About how long these take, one against the other."""


@final
@dataclass(frozen=True, eq=False)
class Found:
    """What came out for a scheme on a fleet: a summary, from a run or predicted, or why there is none."""

    scenario: Scenario
    summary: Mapping[str, Any] | None = None
    run: Run | None = None
    predicted: bool = False
    refused: str | None = None


@final
class Field:
    """Schemes on fleets; the first fleet is the one on which everything is trained and attacked."""

    def __init__(
        self,
        fleets: Mapping[str, Scenario],
        names: Sequence[str],
        out: Path,
        progress: Progress,
        *,
        repeats: int,
        attacked_epochs: int,
    ) -> None:
        self._fleets = fleets
        self._names = names
        self._own = next(iter(fleets))
        self._out = out
        self._repeats = repeats
        self._attacked_epochs = attacked_epochs
        self._progress = Overall(progress, sum(weight for weight, _ in self._steps()))
        self._shared = SharedProblem(self._progress)
        self._hollow: tuple[str, Problem] | None = None
        self.found: dict[tuple[str, str, str], Found] = {}
        """By partition, fleet and scheme."""
        self.attacked: dict[str, dict[str, Any]] = {}
        """The strongest finding by scheme, where the attacks were run."""

    def measure(self) -> None:
        """Do everything that is not done yet; fleets of one size share their data, so they come one after the other."""
        for weight, step in self._steps():
            with self._progress.step(weight):
                step()

    def _steps(self) -> Iterator[tuple[int, Callable[[], None]]]:
        for partition in (IID, SORTED):
            for fleet in self._fleets:
                for name in self._names:
                    chosen = self._scenario(partition, fleet, name)
                    yield self._weight(partition, fleet, chosen), self._step(partition, fleet, name, chosen)
                if self._attacked_epochs and (partition, fleet) == (IID, self._own):
                    yield from ((_ATTACKING, self._attack_step(name)) for name in self._names)

    def _scenario(self, partition: str, fleet: str, name: str) -> Scenario:
        """Return what is to be run; a single training will do for an accuracy."""
        base = self._fleets[fleet].with_settings({"scheme": name, "training.stop_at_last_target": True})
        if partition == SORTED:
            return served(label_sorted(base).with_settings({"timing.repeats": 1}))
        return served(base if fleet == self._own else base.with_settings({"timing.repeats": self._repeats}))

    def _weight(self, partition: str, fleet: str, scenario: Scenario) -> int:
        if (partition, fleet) == (IID, self._own) or not predictable(scenario):
            return _TRAINING * (scenario.timing.repeats if SCHEMES[scenario.scheme].follows_timing else 1)
        return _PREDICTING if partition == IID else 0

    def _step(self, partition: str, fleet: str, name: str, scenario: Scenario) -> Callable[[], None]:
        def step() -> None:
            known = self.found.get((IID, self._own, name))
            if known is None or known.run is None or not predictable(scenario):
                found = self._train(scenario, must=(partition, fleet) == (IID, self._own))
            elif partition == SORTED:  # only its accuracy is asked for, and that of all data is the same, however dealt
                found = replace(known, predicted=True)
            else:
                found = self._predict(fleet, scenario, known.run)
            self.found[partition, fleet, name] = found

        return step

    def _train(self, scenario: Scenario, *, must: bool) -> Found:
        place = self._out / "runs" / f"{scenario.scheme}-{scenario.id()}"
        try:
            run = execute(scenario, place, problem=self._shared.get(scenario), progress=self._progress)
        except RunDirectoryError:
            raise
        except CodedflError as error:
            if must and isinstance(error, DataError):  # without data there is nothing to compare
                raise
            return Found(scenario, refused=str(error))
        return Found(scenario, run.summary, run)

    def _predict(self, fleet: str, scenario: Scenario, known: Run) -> Found:
        place = self._out / "predictions" / f"{scenario.scheme}-{scenario.id()}-{known.scenario.id()}.json"
        try:
            summary = stored(place, lambda: predicted_summary(scenario, self._hollow_problem(fleet), known))
        except RunDirectoryError:
            raise
        except CodedflError as error:
            return Found(scenario, predicted=True, refused=str(error))
        return Found(scenario, summary, predicted=True)

    def _hollow_problem(self, fleet: str) -> Problem:
        if self._hollow is None or self._hollow[0] != fleet:
            base = self._fleets[fleet]
            self._hollow = fleet, Shapes.of_data(base, self._progress).hollow(base)
        return self._hollow[1]

    def _attack_step(self, name: str) -> Callable[[], None]:
        scenario = self._scenario(IID, self._own, name)

        def attack() -> list[dict[str, Any]]:
            problem, epochs = self._shared.get(scenario)(), self._attacked_epochs
            outcomes = attack_scenario(scenario, problem, names=DECISIVE, epochs=epochs, progress=self._progress)
            return [outcome.to_table() for outcome in outcomes]

        def step() -> None:
            if self.found[IID, self._own, name].run is not None:
                place = self._out / "attacks" / f"{name}-{scenario.id()}-{self._attacked_epochs}.json"
                self.attacked[name] = strongest(stored(place, attack))

        return step
