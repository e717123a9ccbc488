"""Figures of accuracy against time: what is drawn, how it is labelled, and that labels stand apart."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import same_color

from codedfl.errors import UsageError
from codedfl.report.figures import PAPER, SCREEN, STYLES, Speedup, accuracy_against_time
from codedfl.report.figures.overlay import Series
from codedfl.report.figures.points import curve_of
from codedfl.runs import Run
from report.made_up import made_up, outside, overlaps, slow_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return slow_run(tmp_path)


def lines(axes: Any, names: list[str]) -> list[Any]:
    return [line for line in axes.get_lines() if line.get_label() in names]


class TestAccuracyAgainstTime:
    def test_axes(self, run: Run) -> None:
        (axes,) = accuracy_against_time({"some scheme": [run]}, targets=[0.4]).axes
        assert axes.get_xscale() == "log"
        assert axes.get_yscale() == "linear"
        assert "time" in axes.get_xlabel()
        assert "seconds" in axes.get_xlabel()
        assert "accuracy" in axes.get_ylabel()
        low, high = axes.get_ylim()
        assert low < 0.7 < high <= 1, "the curve ends above 0.7"

    def test_regressions_are_not_called_accuracy(self, run: Run) -> None:
        (axes,) = accuracy_against_time({"x": [run]}, targets=[], metric="r2").axes
        assert "R²" in axes.get_ylabel()
        assert "accuracy" not in axes.get_ylabel()

    def test_up_to_six_curves_can_be_told_apart_with_and_without_colour(self, run: Run) -> None:
        names = ["one", "two", "three", "four", "five", "six"]
        (axes,) = accuracy_against_time({name: [run] for name in names}, targets=[]).axes
        drawn = lines(axes, names)
        assert [line.get_label() for line in drawn] == names
        assert axes.get_legend() is None
        for first in range(6):
            for second in range(first):
                assert not same_color(drawn[first].get_color(), drawn[second].get_color())
                assert drawn[first]._dash_pattern != drawn[second]._dash_pattern

    def test_the_line_is_the_mean_and_the_band_holds_the_draws(self, tmp_path: Path) -> None:
        rest = np.arange(18)
        quick, slow = [1.0, 2.0, 4.0, *(rest + 12.0)], [2.0, 4.0, 8.0, *(2 * rest + 12.0)]
        run = made_up(tmp_path, [0.1, 0.5, *[0.9] * 19], [quick, slow])
        (axes,) = accuracy_against_time({"x": [run]}, targets=[]).axes
        (line,) = lines(axes, ["x"])
        times, mean = line.get_data()
        assert times[0] >= 2, "nothing is drawn before both draws have ended an epoch"
        assert times[-1] == pytest.approx((29.0 + 46.0) / 2)
        by_hand = {2.5: (0.5 + 0.1) / 2, 5.0: (0.9 + 0.5) / 2}
        for moment, wanted in by_hand.items():
            assert mean[np.searchsorted(times, moment)] == pytest.approx(wanted)
        (band,) = axes.collections
        corners = band.get_paths()[0].vertices
        at_five = corners[np.abs(corners[:, 0] - 5.0) < 0.1][:, 1]
        # the 2.5% and 97.5% quantiles of two values, 0.5 and 0.9, by linear interpolation
        assert at_five.min() == pytest.approx(0.51)
        assert at_five.max() == pytest.approx(0.89)

    def test_each_of_few_epochs_is_marked(self, tmp_path: Path) -> None:
        run = made_up(tmp_path, [0.1, 0.5, 0.9], [[1.0, 2.0, 4.0], [2.0, 4.0, 8.0]])
        (axes,) = accuracy_against_time({"x": [run]}, targets=[]).axes
        (line,) = lines(axes, ["x"])
        assert line.get_marker() == "o"
        assert line.get_xdata().tolist() == [1.5, 3.0, 6.0]
        assert line.get_ydata().tolist() == [0.1, 0.5, 0.9]
        assert "x (3 epochs)" in {text.get_text() for text in axes.texts}

    def test_targets_are_marked(self, run: Run) -> None:
        (axes,) = accuracy_against_time({"x": [run]}, targets=[0.4, 0.8]).axes
        levels = [line.get_ydata()[0] for line in axes.get_lines() if len(set(line.get_ydata())) == 1]
        assert set(levels) >= {0.4, 0.8}
        assert {text.get_text() for text in axes.texts} == {"0.8", "x"}, "0.4 is below the axis"

    def test_a_single_epoch(self, tmp_path: Path) -> None:
        run = made_up(tmp_path, [0.5], [[1.0], [3.0]])
        (axes,) = accuracy_against_time({"x": [run]}, targets=[]).axes
        assert len(axes.get_lines()[0].get_xdata()) > 0

    def test_a_single_draw_of_a_single_epoch(self, tmp_path: Path) -> None:
        accuracy_against_time({"x": [made_up(tmp_path, [0.5], [[1.0]])]}, targets=[0.5])

    def test_scores_below_zero(self, tmp_path: Path) -> None:
        run = made_up(tmp_path, [-30.0, -4.0, -2.0], [[1.0, 2.0, 3.0]])
        (axes,) = accuracy_against_time({"x": [run]}, targets=[0.5], metric="r2").axes
        low, high = axes.get_ylim()
        assert low < -2.0 < high

    @pytest.mark.parametrize("label", ["costs $5 and $7", r"$\\frac", "_hidden", "new\nline", "^{", "名"])
    @pytest.mark.filterwarnings("ignore:Glyph")
    def test_labels_are_drawn_as_they_are(self, run: Run, label: str) -> None:
        for count in (1, 7):
            curves = {label: [run], **{str(number): [run] for number in range(count - 1)}}
            accuracy_against_time(curves, targets=[0.7]).draw_without_rendering()


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
class TestLabels:
    def test_they_stand_apart_and_inside(self, tmp_path: Path, style: Any) -> None:
        """All curves end at the same time and score, the worst case."""
        names = ["minibatch", "code-based, claimed 92 bit, each support once", "sealed", "he", "secagg", "one-shot"]
        runs = {name: [slow_run(tmp_path, 40, 1.0, 0.9 + number / 1000)] for number, name in enumerate(names)}
        figure = accuracy_against_time(runs, targets=[0.6, 0.9], style=style)
        (axes,) = figure.axes
        words = [text for text in axes.texts if text.get_text() not in ("0.6", "0.9")]
        assert {" ".join(text.get_text().split()) for text in words} == set(names)
        assert overlaps(figure, words) == []
        assert outside(figure, axes.texts) == []

    def test_panels_of_many_curves(self, tmp_path: Path, style: Any) -> None:
        runs = {f"scheme {number}": [slow_run(tmp_path, 40, 1.0 + number)] for number in range(13)}
        figure = accuracy_against_time(runs, targets=[0.6, 0.8], style=style)
        shown = [axes for axes in figure.axes if axes.get_visible()]
        assert [axes.get_title() for axes in shown] == list(runs)
        for axes, (name, own) in zip(shown, runs.items(), strict=True):
            (line,) = lines(axes, [name])
            assert line.get_xdata()[-1] == pytest.approx(curve_of(name, own).time[-1])
            behind = [other for other in axes.get_lines() if other.get_label() == "_behind"]
            assert len(behind) == 12
            assert all(other.get_alpha() < 0.3 for other in behind)
            assert axes.get_xlim() == shown[0].get_xlim()
            assert axes.get_ylim() == shown[0].get_ylim()
        titles = [axes.title for axes in shown]
        assert overlaps(figure, titles) == []
        assert outside(figure, [*titles, *(text for axes in shown for text in axes.texts)]) == []

    def test_speedups_are_arrows_between_the_times(self, tmp_path: Path, style: Any) -> None:
        runs = {"slow": [slow_run(tmp_path, 40, 10.0)], "fast": [slow_run(tmp_path, 40, 1.0)]}
        gaps = [Speedup(600.0, 60.0, 0.9, "92 bit: 4.7x claimed, 5.3x measured"), Speedup(600.0, 90.0, 0.9, "128 bit")]
        figure = accuracy_against_time(runs, targets=[0.9], speedups=gaps, style=style)
        (axes,) = figure.axes
        arrows = [text for text in axes.texts if getattr(text, "arrow_patch", None) is not None]
        assert [(text.xy[0], text.xyann[0]) for text in arrows] == [(60.0, 600.0), (90.0, 600.0)]
        words = [text for text in axes.texts if text.get_text()]
        assert {" ".join(text.get_text().split()) for text in words} >= {gaps[0].words, "128 bit", "slow", "fast"}
        assert overlaps(figure, words) == []
        assert outside(figure, words) == []
        assert max(axes.get_yticks()) <= 1


class TestOverlay:
    SERIES = (Series("measured", (5.0, 50.0), (0.6, 0.85)), Series("lab", (70.0,), (0.97,)))

    def test_points_are_drawn_and_labelled(self, run: Run) -> None:
        (axes,) = accuracy_against_time({"x": [run]}, targets=[], overlay=self.SERIES).axes
        measured, lab = lines(axes, ["measured", "lab"])
        assert (list(measured.get_xdata()), list(measured.get_ydata())) == ([5.0, 50.0], [0.6, 0.85])
        assert measured.get_linestyle() != "None"
        assert (list(lab.get_xdata()), lab.get_linestyle()) == ([70.0], "None")
        assert measured.get_marker() != lab.get_marker()
        assert {text.get_text() for text in axes.texts} == {"x", "measured", "lab"}
        assert axes.get_xlim()[1] > 70
        assert axes.get_ylim()[1] >= 0.97

    def test_they_are_in_every_panel(self, run: Run) -> None:
        figure = accuracy_against_time({str(number): [run] for number in range(7)}, targets=[], overlay=self.SERIES)
        for axes in figure.axes[:7]:
            assert len(lines(axes, ["measured", "lab"])) == 2
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["measured", "lab"]


def test_runs_without_test_data_are_refused(tmp_path: Path) -> None:
    blind = made_up(tmp_path, [float("nan")] * 3, [[1.0, 2.0, 3.0]])
    with pytest.raises(UsageError, match="no accuracy"):
        accuracy_against_time({"x": [blind]}, targets=[])


def test_the_paper_style_has_small_letters_and_no_title(run: Run) -> None:
    (paper,) = accuracy_against_time({"x": [run]}, targets=[0.7], style=PAPER).axes
    (screen,) = accuracy_against_time({"x": [run]}, targets=[0.7], style=SCREEN).axes
    assert paper.figure.get_size_inches().tolist() == [3.5, 2.6]
    assert paper.xaxis.label.get_fontsize() == 8
    assert {label.get_fontsize() for label in paper.get_xticklabels()} == {8}
    assert {text.get_fontsize() for text in paper.texts} == {7}
    assert not any(paper.get_title(loc) for loc in ("left", "center", "right"))
    assert any(screen.get_title(loc) for loc in ("left", "center", "right"))
