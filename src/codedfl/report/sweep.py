"""The figure of a sweep over one numeric setting."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codedfl.progress import Progress, silent
from codedfl.report.figures import COLOURS, new_figure, save_if_possible, time_and_band
from codedfl.runs import target_name
from codedfl.scenario import Scenario
from codedfl.studies.tables import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_sweep(
    scenario: Scenario, grid: Mapping[str, Sequence[Any]], rows: Sequence[Row], out: Path, progress: Progress = silent
) -> None:
    """Draw ``sweep.png`` and ``.svg`` if the grid has one key, its values are numbers, and there is a target."""
    (key, values), *others = grid.items()
    numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    if others or not numeric or not scenario.training.targets:
        return
    target = scenario.training.targets[-1]
    times = [time_and_band(row, target_name(target)) for row in rows]
    save_if_possible(lambda: time_against_setting(key, values, times, target), out / "sweep.png", progress)


def time_against_setting(
    key: str, values: Sequence[float], times: Sequence[tuple[float, float, float] | None], target: float
) -> "Figure":
    """Draw time to a target against one setting, with 95% bars; a value that does not reach it is left out."""
    figure = new_figure()
    axes = figure.add_subplot()
    reached = [(value, *found) for value, found in zip(values, times, strict=True) if found]
    if reached:
        x, mean, low, high = (np.array(column) for column in zip(*reached, strict=True))
        bars = np.clip([mean - low, high - mean], 0, None)
        axes.errorbar(x, mean, bars, fmt="o-", color=COLOURS[0], capsize=3)
    axes.set_xlabel(key)
    axes.set_ylabel(f"virtual seconds to {target:g} (mean, 95% of draws)")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, color="0.9")
    return figure
