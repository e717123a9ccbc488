"""What devices send and receive."""

from typing import Any

import pytest

from codedfl.report.figures import STYLES
from codedfl.report.figures.traffic import traffic_figure
from report.made_up import outside, overlaps


def sizes(up: float, down: float, d2d: float) -> dict[str, dict[str, float]]:
    return {
        link: {"mean": bits, "largest": 2 * bits}
        for link, bits in zip(("up", "down", "d2d"), (up, down, d2d), strict=True)
    }


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_marks_at_the_means_and_lines_to_the_largest(style: Any) -> None:
    figure = traffic_figure({"a": sizes(8e6, 16e6, 24e6), "b_$": sizes(8e8, 8e6, 0)}, style)
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    marks = [line for line in axes.get_lines() if len(line.get_xdata()) == 1]
    found = [(line.get_xdata()[0], round(line.get_ydata()[0])) for line in marks]
    assert found == [(1.0, 0), (2.0, 0), (3.0, 0), (100.0, 1), (1.0, 1), (0, 1)], "megabytes, by row"
    assert [text.get_text() for text in axes.texts] == ["0"], "nothing has no place on a logarithmic axis"
    ends = [line.get_xdata()[1] for line in axes.get_lines() if len(line.get_xdata()) == 2]
    assert ends == [2.0, 4.0, 6.0, 200.0, 2.0]
    assert len({line.get_marker() for line in marks}) == 3, "told apart without colour"
    words = figure.legends[0].get_texts()
    assert overlaps(figure, words) == []
    assert outside(figure, [axes.xaxis.label, *words]) == []


def test_equal_sizes_begin_at_zero() -> None:
    (axes,) = traffic_figure({"a": sizes(8e6, 16e6, 0)}).axes
    assert axes.get_xscale() == "linear"
    assert axes.get_xlim()[0] == 0


def test_small_models_are_counted_in_kilobytes() -> None:
    (axes,) = traffic_figure({"a": sizes(8e3, 16e3, 0)}).axes
    assert "kilobytes" in axes.get_xlabel()
    assert next(line.get_xdata()[0] for line in axes.get_lines() if len(line.get_xdata()) == 1) == 1.0
