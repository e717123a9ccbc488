"""Schemes side by side: ``compare`` on one fleet, ``compare_all`` on three fleets, label-sorted and attacked.

On the first fleet every scheme is trained. On the others a scheme is trained again if its model depends on the fleet,
and predicted if it does not. A scheme that cannot be used has a row that says why.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from codedfl.errors import UsageError
from codedfl.progress import Progress, silent
from codedfl.scenario import Scenario
from codedfl.schemes.registry import refuse_unknown
from codedfl.storage import refuse_file
from codedfl.studies.compare.fleets import fleets_of, own_fleet
from codedfl.studies.compare.measuring import Measurements
from codedfl.studies.compare.rows import BENCHMARK, rows_of
from codedfl.studies.tables import write_rows

__all__ = ["BENCHMARK", "REPEATS", "compare", "compare_all", "fleets_of"]

REPEATS = 2
"""Trainings on further fleets behind the band of a scheme whose model follows the timing."""


def compare(scenario: Scenario, names: Sequence[str], out: Path, progress: Progress = silent) -> list[dict[str, Any]]:
    """Train the named schemes and the benchmark on the fleet of a scenario; write ``compare.json`` and ``.csv``."""
    wanted = _checked(names, out)
    return _rows(Measurements({own_fleet(scenario): scenario}, wanted, out, progress), out)


def compare_all(
    scenario: Scenario,
    names: Sequence[str],
    out: Path,
    progress: Progress = silent,
    *,
    fleets: Mapping[str, Scenario] | None = None,
    repeats: int = REPEATS,
    attacked_epochs: int | None = None,
) -> list[dict[str, Any]]:
    """Measure the named schemes and the benchmark on three fleets; write ``compare.json`` and ``.csv``.

    ``fleets`` are scenarios by name that differ in their fleet, the own one first. Attackers see ``attacked_epochs``,
    as many as decide if None; with 0 there are no attacks. Finished parts are read from ``out``.
    """
    wanted = _checked(names, out)
    if scenario.partition.kind != "iid":
        raise UsageError(
            f"partition.kind = '{scenario.partition.kind}' must be 'iid' with --all, which trains on data dealt at "
            "random and on data sorted by label"
        )
    changes: dict[str, Any] = {"training.stop_at_last_target": True}
    chosen = {}
    for name, moved in (fleets or fleets_of(scenario)).items():
        chosen[name] = moved.with_settings(changes)
        changes["timing.repeats"] = repeats  # the first fleet keeps the number of the scenario
    return _rows(Measurements(chosen, wanted, out, progress, sort=True, attacked_epochs=attacked_epochs), out)


def _checked(names: Sequence[str], out: Path) -> list[str]:
    """Return the benchmark and the named schemes, each once."""
    refuse_unknown(names)
    refuse_file(out)
    return list(dict.fromkeys([BENCHMARK, *names]))


def _rows(measurements: Measurements, out: Path) -> list[dict[str, Any]]:
    measurements.run()
    rows = rows_of(measurements)
    write_rows(out, "compare", rows)
    return rows
