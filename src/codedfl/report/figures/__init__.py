"""Figures: labelled axes with units, readable in print, safe for the colour-blind."""

from codedfl.report.figures.curves import Speedup, accuracy_against_time
from codedfl.report.figures.files import save, save_as, save_if_possible, svg_text
from codedfl.report.figures.points import accuracy_at, curve_of, has_scores, span, time_and_band
from codedfl.report.figures.style import (
    COLOURS,
    PAPER,
    SCREEN,
    STYLES,
    Style,
    curve_style,
    metric_label,
    new_figure,
    plain_ticks,
)

__all__ = [
    "COLOURS",
    "PAPER",
    "SCREEN",
    "STYLES",
    "Speedup",
    "Style",
    "accuracy_against_time",
    "accuracy_at",
    "curve_of",
    "curve_style",
    "has_scores",
    "metric_label",
    "new_figure",
    "plain_ticks",
    "save",
    "save_as",
    "save_if_possible",
    "span",
    "svg_text",
    "time_and_band",
]
