"""The figure of measured against predicted times."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.prediction_figure import Pair, measured_against_predicted
from matplotlib.colors import same_color

from codedfl.runs import Run
from rundirs import small


def ended(path: Path, times: list[float], draws: list[list[float]]) -> Run:
    """A run that ends its epochs at these times in its own draw."""
    scores = np.linspace(0.6, 0.9, len(times))
    return Run(path, small(), {}, {"accuracy": scores, "time": np.array(times)}, np.array(draws))


class TestMeasuredAgainstPredicted:
    @pytest.fixture
    def pairs(self, tmp_path: Path) -> list[Pair]:
        many = [[1.0, 8.0 + draw / 10] for draw in range(41)]  # 8.0 to 12.0
        quick, real = ended(tmp_path, [1.0, 10.0], many), ended(tmp_path, [1.5, 11.0], [[1.5, 11.0]])
        slow, late = ended(tmp_path, [0.0, 90.0], [[0.0, 90.0]]), ended(tmp_path, [0.0, 120.0], [[0.0, 120.0]])
        return [Pair("quick", quick, real), Pair("slow", slow, late)]

    def test_a_mark_a_scheme_in_a_band(self, pairs: list[Pair]) -> None:
        axes, _ = measured_against_predicted(pairs, limit=0.2).axes
        marks = {line.get_label(): line for line in axes.get_lines() if len(line.get_xdata()) == 1}
        places = {name: (line.get_xdata()[0], line.get_ydata()[0]) for name, line in marks.items()}
        assert places == {"quick": (10.0, 11.0), "slow": (90.0, 120.0)}
        assert len({line.get_marker() for line in marks.values()}) == 2, "told apart without colour"
        assert not same_color(*(line.get_color() for line in marks.values()))
        bars = [line for line in axes.get_lines() if len(line.get_xdata()) == 2 and len(set(line.get_ydata())) == 1]
        # the 2.5% and 97.5% quantiles of 8.0 to 12.0, and of a single draw nothing
        np.testing.assert_allclose([bar.get_xdata() for bar in bars], [[8.1, 11.9], [np.nan, np.nan]])
        (band,) = axes.collections
        corners = band.get_paths()[0].vertices
        assert {round(float(y / x), 9) for x, y in corners} == {0.8, 1.2}
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["within 20%", "quick", "slow"]
        assert "seconds" in axes.get_xlabel()
        assert "predicted" in axes.get_xlabel()
        assert "measured" in axes.get_ylabel()

    def test_lines_are_predicted_and_marks_are_measured(self, pairs: list[Pair]) -> None:
        _, axes = measured_against_predicted(pairs, limit=0.2, metric="r2").axes
        lines = [line for line in axes.get_lines() if line.get_linestyle() != "None"]
        marks = [line for line in axes.get_lines() if line.get_linestyle() == "None"]
        assert [line.get_xdata().tolist() for line in lines] == [[1.0, 10.0], [0.0, 90.0]]
        assert [line.get_xdata().tolist() for line in marks] == [[1.5, 11.0], [0.0, 120.0]]
        assert all(same_color(one.get_color(), other.get_color()) for one, other in zip(lines, marks, strict=True))
        assert "R²" in axes.get_ylabel()
        assert axes.get_xlim()[0] > 0
