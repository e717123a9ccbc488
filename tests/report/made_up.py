"""Runs, rows and figures made by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.text import Text

from codedfl.runs import Run
from rundirs import small


def made_up(path: Path, accuracy: Sequence[float], timings: Sequence[Sequence[float]]) -> Run:
    """A run of given scores and times."""
    return Run(path, small(), {}, {"accuracy": np.array(accuracy)}, np.array(timings))


def slow_run(path: Path, epochs: int = 40, seconds: float = 1.0, best: float = 0.9) -> Run:
    """A run of many epochs, drawn twice; its curve is a line over time."""
    scores = np.linspace(0.5, best, epochs)
    times = np.arange(1, epochs + 1) * seconds
    return made_up(path, scores.tolist(), [times.tolist(), (2 * times).tolist()])


def swept(settings: dict[str, Any], seconds: float | None, score: float | None = 0.9, bits: float = 8e6) -> Any:
    """A row of a sweep, as far as its figure needs it."""
    links = {link: {"mean": bits, "largest": bits} for link in ("up", "down", "d2d")}
    band = None if seconds is None else [seconds * 0.8, seconds * 1.3]
    times = {"time_to_accuracy": {"0.5": seconds, "0.9": seconds}, "time_to_accuracy_band": {"0.5": band, "0.9": band}}
    scores = {"final_accuracy": score, "final_r2": None, "metric": "accuracy"}
    return {"settings": settings, **times, **scores, "bits_per_device": links}


def _draw(figure: Any) -> None:
    """Place everything, unless nothing has changed since a figure was drawn last."""
    if figure.stale:
        figure.draw_without_rendering()


def overlaps(figure: Any, texts: Sequence[Any]) -> list[tuple[str, str]]:
    """Return the pairs of texts whose boxes overlap; lines that lead to a text do not count."""
    _draw(figure)
    boxes = [
        (text.get_text(), Text.get_window_extent(text)) for text in texts if text.get_visible() and text.get_text()
    ]
    return [
        (name, other)
        for number, (name, box) in enumerate(boxes)
        for other, second in boxes[:number]
        if box.x0 < second.x1 and second.x0 < box.x1 and box.y0 < second.y1 and second.y0 < box.y1
    ]


def outside(figure: Any, texts: Sequence[Any]) -> list[str]:
    """Return the texts that stick out of a figure."""
    _draw(figure)
    whole = figure.bbox
    found = [
        (text.get_text(), Text.get_window_extent(text)) for text in texts if text.get_visible() and text.get_text()
    ]
    return [
        name
        for name, box in found
        if box.x0 < whole.x0 - 1 or box.x1 > whole.x1 + 1 or box.y0 < whole.y0 - 1 or box.y1 > whole.y1 + 1
    ]
