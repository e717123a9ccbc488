"""Parts of a comparison that are computed side by side, by processes or a cluster, before all are read in order.

A part is a scheme on a fleet and a partition. It leaves what it finds in the folder of the comparison, as the
comparison itself does, so that nothing is computed twice and the rows are the same whoever computed them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from codedfl import errors, schemes
from codedfl.progress import silent
from codedfl.scenario import Scenario
from codedfl.studies.compare.measuring import GIVEN, SORTED, Measurements, Part
from codedfl.studies.compare.predicting import predictable
from codedfl.studies.tasks import StudyPart
from codedfl.task.shared import SharedProblem

Refusals = dict[Part, errors.CodedflError]


def compute_ahead(
    fleets: Mapping[str, Scenario],
    names: Sequence[str],
    out: Path,
    run: Callable[[Sequence[StudyPart]], list[Any]],
    *,
    sort: bool = False,
    attacked_epochs: int | None = 0,
) -> Refusals:
    """Let ``run`` carry out all parts that take long; return the errors of refused ones.

    First what is trained, then what is predicted from it. What is sorted by label and predictable takes no time. Of
    what shares its data, what is trained most often comes first, and of predictions those of many devices, so that no
    process has a long part at the end.
    """
    measurements = Measurements(fleets, names, out, silent, sort=sort, attacked_epochs=attacked_epochs)
    first, later = list[Part](), list[Part]()
    for partition in measurements.partitions:
        for fleet in measurements.fleets:
            for name in names:
                scenario = measurements.scenario(partition, fleet, name)
                depends = (partition, fleet) != (GIVEN, measurements.fleets[0]) and _predictable(scenario)
                if not depends:
                    first.append((partition, fleet, name))
                elif partition != SORTED:
                    later.append((partition, fleet, name))
    first = _longest_first(first, measurements)
    later.sort(key=lambda part: -fleets[part[1]].fleet.size)
    tables = {name: scenario.to_toml() for name, scenario in fleets.items()}
    refused: Refusals = {}
    for parts in (first, later):
        tasks = []
        for part in parts:
            own = (GIVEN, measurements.fleets[0], part[2])
            known = [[*own, type(refused[own]).__name__, str(refused[own])]] if own in refused else []
            uses, reads = measurements.places(part), measurements.places(own) if parts is later else []
            given = (tables, [*part], sort, attacked_epochs, known)
            tasks.append(StudyPart(compute_part, given, out, tuple(uses), tuple(reads)))
        for part, error in zip(parts, run(tasks) if tasks else [], strict=True):
            if error is not None:
                refused[part] = _error(*error)
    return refused


def _longest_first(parts: Sequence[Part], measurements: Measurements) -> list[Part]:
    """Order parts: those of one partition and number of devices, which share their data, stay together."""
    scenarios = {part: measurements.scenario(*part) for part in parts}
    data = list(dict.fromkeys((part[0], scenarios[part].fleet.size) for part in parts))

    def place(part: Part) -> tuple[int, int]:
        return data.index((part[0], scenarios[part].fleet.size)), -_trainings(scenarios[part])

    return sorted(parts, key=place)


def _trainings(scenario: Scenario) -> int:
    """Return how many trainings a part takes; one that follows the timing more, as it is repeated or ends late."""
    with suppress(errors.ScenarioError):
        return 1 + scenario.timing.repeats if schemes.nominal(scenario).follows_timing else 1
    return 0


_shared = SharedProblem()


def compute_part(
    out: str,
    fleets: Mapping[str, str],
    part: Sequence[str],
    sort: bool,
    attacked_epochs: int | None,
    refused: Sequence[Sequence[str]],
) -> list[str] | None:
    """Compute a part of a comparison in its folder; return kind and sentence of the error that refuses it."""
    known = {(partition, fleet, name): _error(*error) for partition, fleet, name, *error in refused}
    scenarios = {name: Scenario.from_toml(text) for name, text in fleets.items()}
    partition, fleet, name = part
    measurements = Measurements(
        scenarios, [name], Path(out), silent, sort=sort, attacked_epochs=attacked_epochs, refused=known, shared=_shared
    )
    error = measurements.compute((partition, fleet, name)).error
    return None if error is None else [type(error).__name__, str(error)]


def _predictable(scenario: Scenario) -> bool:
    with suppress(errors.ScenarioError):  # wrong options of the scheme: its run is refused
        return predictable(scenario)
    return False


def _error(kind: str, sentence: str) -> errors.CodedflError:
    known = getattr(errors, kind, errors.CodedflError)
    error: errors.CodedflError = known(sentence)
    return error
