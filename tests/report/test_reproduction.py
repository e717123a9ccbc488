"""The figure of the search for the best Delta."""

import pytest
from matplotlib.colors import same_color

from codedfl.report.reproduction import speedup_against_delta


def test_speedups_with_bars_at_every_delta() -> None:
    sweeps = [
        {"level": 92, "supply": "once", "points": [point(0.5, 2.0), point(1.0, 4.0)]},
        {"level": 128, "supply": "reissued", "points": [point(0.5, 3.0), point(1.0, 5.0)]},
        {"level": 128, "supply": "once", "points": []},
    ]
    figure = speedup_against_delta(sweeps, 0.95)
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert "0.95" in axes.get_ylabel()
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0.5", "1"]
    (legend,) = figure.legends
    words = [text.get_text() for text in legend.get_texts()]
    assert words == ["claimed 92 bit, supports once", "claimed 128 bit, supports reissued"], "what is reached"
    (first, _, (bars,)), (second, _, _) = axes.containers
    assert first.get_ydata().tolist() == [2.0, 4.0]
    assert first.get_xdata() == pytest.approx([0.5, 1.0])
    assert [segment[:, 1].tolist() for segment in bars.get_segments()] == [[1.0, 4.0], [2.0, 8.0]]
    assert not same_color(first.get_color(), second.get_color())


def point(delta: float, speedup: float) -> dict[str, float]:
    return {"delta": delta, "speedup": speedup, "low": speedup / 2, "high": speedup * 2}
