"""Every scheme on three fleets: one table, one figure.

On the scenario's own fleet every scheme is trained, with data dealt at random and sorted by label, and attacked. On
two other fleets a scheme is trained again if its model depends on the fleet, and predicted if it does not.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from codedfl.errors import MissingExtraError, UsageError
from codedfl.progress import Progress, silent
from codedfl.report import figures
from codedfl.scenario import Scenario
from codedfl.security.audit import EPOCHS
from codedfl.storage import make_folder, refuse_file, write_json, write_text
from codedfl.studies.compare import to_csv, wanted_schemes
from codedfl.studies.comparison.fleets import fleets_of
from codedfl.studies.comparison.measuring import Field
from codedfl.studies.comparison.page import page
from codedfl.studies.comparison.rows import rows_of

__all__ = ["REPEATS", "compare_all", "fleets_of"]

REPEATS = 2
"""Trainings on further fleets behind the band of a scheme whose model follows the timing."""


def compare_all(
    scenario: Scenario,
    names: Sequence[str],
    out: Path,
    progress: Progress = silent,
    *,
    fleets: Mapping[str, Scenario] | None = None,
    repeats: int = REPEATS,
    attacked_epochs: int = EPOCHS,
    command: str = "",
) -> list[dict[str, Any]]:
    """Measure the named schemes and the benchmark; write ``compare.md``, ``.json``, ``.csv``, ``.png`` and ``.svg``.

    ``fleets`` are scenarios by name that differ in their fleet, the own one first. Attackers see so many epochs; with 0
    there are no attacks. Finished parts are read from ``out``.
    """
    wanted = wanted_schemes(names)
    if scenario.partition.kind != "iid":
        raise UsageError(
            f"partition.kind = '{scenario.partition.kind}' must be 'iid' with --all, which trains on data dealt at "
            "random and on data sorted by label"
        )
    refuse_file(out)
    chosen = fleets_of(scenario) if fleets is None else dict(fleets)
    field = Field(chosen, wanted, out, progress, repeats=repeats, attacked_epochs=attacked_epochs)
    field.measure()
    rows = rows_of(field, list(chosen), wanted)
    make_folder(out)
    write_json(out / "compare.json", rows)
    write_text(out / "compare.csv", to_csv(rows))
    drawn = _draw(rows, scenario, out, progress)
    write_text(out / "compare.md", page(scenario, rows, command=command, figure="compare.png" if drawn else None))
    return rows


def _draw(rows: Sequence[Mapping[str, Any]], scenario: Scenario, out: Path, progress: Progress) -> bool:
    if not scenario.training.targets:
        return False
    try:
        metric = next((row["metric"] for row in rows if row["metric"]), "accuracy")
        figures.save(figures.time_by_scheme(rows, scenario.training.targets, metric), out / "compare.png")
    except MissingExtraError:
        progress("figure left out: install codedfl[plots]", 0, 0)
        return False
    return True
