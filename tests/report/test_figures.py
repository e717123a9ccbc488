"""Figures: what is drawn, and how the axes are labelled."""

import math
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import same_color
from matplotlib.figure import Figure

from codedfl.errors import MissingExtraError
from codedfl.report.figures import (
    Curve,
    Pair,
    accuracy_against_time,
    measured_against_predicted,
    save,
    time_against_setting,
    time_by_scheme,
)
from codedfl.runs import Run
from rundirs import small, small_run, tree


def made_up(path: Path, accuracy: list[float], timings: list[list[float]]) -> Run:
    """A run of given scores and times."""
    return Run(path, small(), {}, {"accuracy": np.array(accuracy)}, np.array(timings))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return made_up(tmp_path, [0.1, 0.5, 0.9], [[1.0, 2.0, 4.0], [2.0, 4.0, 8.0]])


class TestCurve:
    def test_accuracy_is_that_of_the_last_finished_epoch(self, run: Run) -> None:
        found = Curve("x", [run]).accuracy_at(np.array([0.5, 1.0, 3.0, 4.0, 100.0]))
        np.testing.assert_array_equal(found, [[math.nan, 0.1, 0.5, 0.9, 0.9], [math.nan, math.nan, 0.1, 0.5, 0.9]])

    def test_span_is_from_the_first_epoch_to_the_mean_end(self, run: Run) -> None:
        assert Curve("x", [run]).span == (1.0, 6.0)

    def test_several_runs_are_stacked(self, run: Run, tmp_path: Path) -> None:
        other = made_up(tmp_path, [0.3], [[0.5]])
        curve = Curve("x", [run, other])
        np.testing.assert_array_equal(curve.accuracy_at(np.array([4.0])), [[0.9], [0.5], [0.3]])
        assert curve.span == (0.5, pytest.approx((6.0 + 0.5) / 2))

    def test_repetitions_count(self, tmp_path: Path) -> None:
        run = small_run(tmp_path / "run", {"scheme": "drop-slowest", "training.epochs": 4})
        assert Curve("x", [run]).accuracy_at(np.array([1e9])).shape == (3, 1)


class TestAccuracyAgainstTime:
    def test_axes(self, run: Run) -> None:
        (axes,) = accuracy_against_time([Curve("some scheme", [run])], targets=[0.4]).axes
        assert axes.get_xscale() == "log"
        assert axes.get_yscale() == "linear"
        assert "time" in axes.get_xlabel()
        assert "seconds" in axes.get_xlabel()
        assert "accuracy" in axes.get_ylabel()
        low, high = axes.get_ylim()
        assert low < 0.7 < high <= 1, "the mean of both draws ends at 0.7"

    def test_regressions_are_not_called_accuracy(self, run: Run) -> None:
        (axes,) = accuracy_against_time([Curve("x", [run])], targets=[], metric="r2").axes
        assert "R²" in axes.get_ylabel()
        assert "accuracy" not in axes.get_ylabel()

    def test_curves_can_be_told_apart_with_and_without_colour(self, run: Run) -> None:
        names = ["one", "two", "three", "four", "five", "six", "seven"]
        (axes,) = accuracy_against_time([Curve(name, [run]) for name in names], targets=[]).axes
        lines = [line for line in axes.get_lines() if line.get_label() in names]
        assert [line.get_label() for line in lines] == names
        assert [text.get_text() for text in axes.get_legend().get_texts()] == names
        for first in range(7):
            for second in range(first):
                assert not same_color(lines[first].get_color(), lines[second].get_color())
                assert lines[first]._dash_pattern != lines[second]._dash_pattern

    def test_the_line_is_the_mean_and_the_band_holds_the_draws(self, run: Run) -> None:
        (axes,) = accuracy_against_time([Curve("x", [run])], targets=[]).axes
        (line,) = [line for line in axes.get_lines() if line.get_label() == "x"]
        times, mean = line.get_data()
        assert times[0] >= 2, "nothing is drawn before both draws have ended an epoch"
        assert times[-1] == pytest.approx(6.0)
        by_hand = {2.5: (0.5 + 0.1) / 2, 5.0: (0.9 + 0.5) / 2}
        for moment, wanted in by_hand.items():
            assert mean[np.searchsorted(times, moment)] == pytest.approx(wanted)
        (band,) = axes.collections
        corners = band.get_paths()[0].vertices
        at_five = corners[np.abs(corners[:, 0] - 5.0) < 0.1][:, 1]
        # the 2.5% and 97.5% quantiles of two values, 0.5 and 0.9, by linear interpolation
        assert at_five.min() == pytest.approx(0.51)
        assert at_five.max() == pytest.approx(0.89)

    def test_targets_are_marked(self, run: Run) -> None:
        (axes,) = accuracy_against_time([Curve("x", [run])], targets=[0.4, 0.8]).axes
        levels = [line.get_ydata()[0] for line in axes.get_lines() if len(set(line.get_ydata())) == 1]
        assert set(levels) >= {0.4, 0.8}
        assert {text.get_text() for text in axes.texts} == {"0.4", "0.8"}

    def test_a_single_epoch(self, tmp_path: Path) -> None:
        run = made_up(tmp_path, [0.5], [[1.0], [3.0]])
        (axes,) = accuracy_against_time([Curve("x", [run])], targets=[]).axes
        assert len(axes.get_lines()[0].get_xdata()) > 0

    def test_a_single_draw_of_a_single_epoch(self, tmp_path: Path) -> None:
        accuracy_against_time([Curve("x", [made_up(tmp_path, [0.5], [[1.0]])])], targets=[0.5])

    def test_scores_below_zero(self, tmp_path: Path) -> None:
        run = made_up(tmp_path, [-30.0, -4.0, -2.0], [[1.0, 2.0, 3.0]])
        (axes,) = accuracy_against_time([Curve("x", [run])], targets=[0.5], metric="r2").axes
        low, high = axes.get_ylim()
        assert low < -2.0 < high


class TestTimeAgainstSetting:
    def test_axes_and_bars(self) -> None:
        bands = [(10.0, 8.0, 13.0), None, (20.0, 19.0, 22.0)]
        (axes,) = time_against_setting("links.loss", [0.0, 0.1, 0.2], bands, 0.9).axes
        assert axes.get_xlabel() == "links.loss"
        assert "seconds" in axes.get_ylabel()
        assert "0.9" in axes.get_ylabel()
        assert axes.get_ylim()[0] == 0
        ((line, _, (bars,)),) = axes.containers
        assert line.get_xdata().tolist() == [0.0, 0.2], "a value that never gets there is left out"
        assert line.get_ydata().tolist() == [10.0, 20.0]
        assert [segment[:, 1].tolist() for segment in bars.get_segments()] == [[8.0, 13.0], [19.0, 22.0]]

    def test_nothing_reached(self) -> None:
        (axes,) = time_against_setting("x", [1, 2], [None, None], 0.9).axes
        assert not axes.containers


def timed(fleet: str, scheme: str, verdict: str, times: Any, bands: Any = None, refused: str | None = None) -> Any:
    """A row of a comparison on several fleets, as far as its figure needs it."""
    keys = {"fleet": fleet, "devices": 7, "scheme": scheme, "verdict": verdict, "refused": refused}
    limits = None if times is None else {target: (bands or {}).get(target) for target in times}
    return {**keys, "time_to_accuracy": times, "time_to_accuracy_band": limits}


class TestTimeByScheme:
    ROWS = (
        timed("first", "slow", "holds", {"0.5": 1.0, "0.9": 40.0}, {"0.5": [0.5, 2.0], "0.9": [30.0, 50.0]}),
        timed("first", "quick", "broken", {"0.5": 2.0, "0.9": 4.0}, {"0.9": [0.0, 9.0]}),
        timed("first", "lame", "not encrypted", {"0.5": 3.0, "0.9": None}),
        timed("second", "slow", "holds", {"0.5": 1.0, "0.9": 60.0}),
        timed("second", "quick", "broken", None, refused="It does not fit."),
        timed("second", "lame", "not encrypted", {"0.5": 3.0, "0.9": 5.0}),
    )

    def test_a_panel_a_fleet_with_labels(self) -> None:
        figure = time_by_scheme(self.ROWS, [0.5, 0.9])
        first, second = figure.axes
        assert [axes.get_title() for axes in figure.axes] == ["first (7 devices)", "second (7 devices)"]
        assert [text.get_text() for text in first.get_yticklabels()] == ["quick", "slow", "lame"], "quickest first"
        assert first.get_ylim()[0] > first.get_ylim()[1], "the first on top"
        assert (first.get_xscale(), first.get_xlim()) == ("log", second.get_xlim())
        assert "seconds" in figure.get_supxlabel()
        (legend,) = figure.legends
        words = [text.get_text() for text in legend.get_texts()]
        assert words == [
            *("secrecy: holds", "secrecy: not encrypted", "secrecy: broken"),
            *("to accuracy 0.5", "to accuracy 0.9"),
        ]

    def test_marks_are_at_the_times_and_say_what_holds(self) -> None:
        first, second = time_by_scheme(self.ROWS, [0.5, 0.9]).axes
        marks = {
            (round(float(line.get_ydata()[0])), float(line.get_xdata()[0])): line
            for line in first.get_lines()
            if len(line.get_xdata()) == 1
        }
        assert set(marks) == {(0, 2.0), (0, 4.0), (1, 1.0), (1, 40.0), (2, 3.0)}
        looks = {mark.get_marker() for mark in marks.values()}
        assert len(looks) == 3, "told apart without colour"
        for (_, seconds), mark in marks.items():
            filled = same_color(mark.get_markerfacecolor(), mark.get_color())
            assert filled == (seconds in (4.0, 40.0)), "the last target is filled"
        assert [text.get_text() for text in first.texts] == ["0.9 not reached"]
        assert [text.get_text() for text in second.texts] == ["no result"]

    def test_bands_are_drawn_and_one_from_nothing_runs_off_the_axis(self) -> None:
        first, _ = time_by_scheme(self.ROWS, [0.5, 0.9]).axes
        bands = {tuple(line.get_xdata()) for line in first.get_lines() if len(line.get_xdata()) == 2}
        assert {(0.5, 2.0), (30.0, 50.0)} <= bands
        (begin,) = (low for low, high in bands if high == 9.0)
        assert 0 < begin < first.get_xlim()[0]
        assert first.get_xlim()[0] < 0.4 < 60 < first.get_xlim()[1]

    def test_one_target_and_new_verdicts(self) -> None:
        rows = [timed("x", f"scheme {n}", f"verdict {n}", {"0.5": 1.0 + n}) for n in range(3)]
        figure = time_by_scheme(rows, [0.5], "r2")
        (axes,) = figure.axes
        marks = [line for line in axes.get_lines() if len(line.get_xdata()) == 1]
        assert len({(mark.get_marker(), mark.get_color()) for mark in marks}) == 3
        assert [text.get_text() for text in figure.legends[0].get_texts()][-1] == "to R² 0.5"

    def test_nothing_reached(self) -> None:
        (axes,) = time_by_scheme([timed("x", "y", "holds", {"0.5": None})], [0.5]).axes
        assert [text.get_text() for text in axes.texts] == ["0.5 not reached"]


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


class TestSave:
    def test_png_and_svg(self, run: Run, tmp_path: Path) -> None:
        save(accuracy_against_time([Curve("x", [run])], targets=[]), tmp_path / "figure.png")
        assert set(tree(tmp_path)) == {"figure.png", "figure.svg"}
        assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        assert ElementTree.parse(tmp_path / "figure.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"

    def test_a_failure_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(file, **options):
            file.write(b"half")
            raise OSError(28, "No space left on device")

        figure = Figure()
        monkeypatch.setattr(figure, "savefig", fail)
        with pytest.raises(OSError, match="No space"):
            save(figure, tmp_path / "figure.png")
        assert tree(tmp_path) == {}


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'codedfl\[plots\]'"):
        time_against_setting("x", [1], [None], 0.9)
