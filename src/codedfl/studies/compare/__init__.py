"""Schemes side by side: ``compare`` on one fleet, ``compare_all`` on three fleets, label-sorted and attacked.

On the first fleet every scheme is trained. On the others a scheme is trained again if its model depends on the fleet,
and predicted if it does not. A scheme that cannot be used has a row that says why.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from codedfl.errors import UsageError
from codedfl.progress import Progress, silent
from codedfl.scenario import Scenario
from codedfl.schemes.registry import refuse_unknown
from codedfl.storage import refuse_file
from codedfl.studies.cluster import Cluster
from codedfl.studies.compare.ahead import compute_ahead
from codedfl.studies.compare.fleets import fleets_of, own_fleet
from codedfl.studies.compare.measuring import Measurements
from codedfl.studies.compare.rows import BENCHMARK, rows_of
from codedfl.studies.processes import in_processes, one_blas_thread
from codedfl.studies.tables import write_rows

__all__ = ["BENCHMARK", "REPEATS", "compare", "compare_all", "fleets_of"]

REPEATS = 2
"""Trainings on further fleets behind the band of a scheme whose model follows the timing."""


def compare(
    scenario: Scenario,
    names: Sequence[str],
    out: Path,
    progress: Progress = silent,
    *,
    workers: int | None = 1,
    cluster: Cluster | None = None,
) -> list[dict[str, Any]]:
    """Train the named schemes and the benchmark on the fleet of a scenario; write ``compare.json`` and ``.csv``.

    ``workers`` are processes, None: one a core; a ``cluster`` replaces them.
    """
    wanted = _checked(names, out)
    return _rows({own_fleet(scenario): scenario}, wanted, out, progress, workers, cluster)


def compare_all(
    scenario: Scenario,
    names: Sequence[str],
    out: Path,
    progress: Progress = silent,
    *,
    fleets: Mapping[str, Scenario] | None = None,
    repeats: int = REPEATS,
    attacked_epochs: int | None = None,
    workers: int | None = 1,
    cluster: Cluster | None = None,
) -> list[dict[str, Any]]:
    """Measure the named schemes and the benchmark on three fleets; write ``compare.json`` and ``.csv``.

    ``fleets`` are scenarios by name that differ in their fleet, the own one first. Attackers see ``attacked_epochs``,
    as many as decide if None; with 0 there are no attacks. Finished parts are read from ``out``. ``workers`` are
    processes, None: one a core; a ``cluster`` replaces them. Rows are the same, whoever computes them.
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
    return _rows(chosen, wanted, out, progress, workers, cluster, sort=True, attacked_epochs=attacked_epochs)


def _checked(names: Sequence[str], out: Path) -> list[str]:
    """Return the benchmark and the named schemes, each once."""
    refuse_unknown(names)
    refuse_file(out)
    return list(dict.fromkeys([BENCHMARK, *names]))


def _rows(
    fleets: Mapping[str, Scenario],
    names: Sequence[str],
    out: Path,
    progress: Progress,
    workers: int | None,
    cluster: Cluster | None,
    *,
    sort: bool = False,
    attacked_epochs: int | None = 0,
) -> list[dict[str, Any]]:
    report, refused = partial(progress, "parts of the comparison"), {}
    run = partial(in_processes, workers=workers, done=report) if cluster is None else partial(cluster.run, done=report)
    if cluster is not None or workers != 1:
        refused = compute_ahead(fleets, names, out, run, sort=sort, attacked_epochs=attacked_epochs)
    measurements = Measurements(
        fleets, names, out, progress, sort=sort, attacked_epochs=attacked_epochs, refused=refused
    )
    with one_blas_thread():  # as in processes, so that all have the same bits
        measurements.run()
    rows = rows_of(measurements)
    write_rows(out, "compare", rows)
    return rows
