"""Figures: what is drawn, and how the axes are labelled."""

import math
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import same_color
from matplotlib.figure import Figure

from codedfl.errors import MissingExtraError
from codedfl.report.figures import accuracy_against_time, accuracy_at, new_figure, save, save_if_possible, span
from codedfl.runs import Run
from rundirs import small, small_run, tree


def made_up(path: Path, accuracy: list[float], timings: list[list[float]]) -> Run:
    """A run of given scores and times."""
    return Run(path, small(), {}, {"accuracy": np.array(accuracy)}, np.array(timings))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return made_up(tmp_path, [0.1, 0.5, 0.9], [[1.0, 2.0, 4.0], [2.0, 4.0, 8.0]])


class TestTimesOfRuns:
    def test_accuracy_is_that_of_the_last_finished_epoch(self, run: Run) -> None:
        found = accuracy_at([run], np.array([0.5, 1.0, 3.0, 4.0, 100.0]))
        np.testing.assert_array_equal(found, [[math.nan, 0.1, 0.5, 0.9, 0.9], [math.nan, math.nan, 0.1, 0.5, 0.9]])

    def test_span_is_from_the_first_epoch_to_the_mean_end(self, run: Run) -> None:
        assert span([run]) == (1.0, 6.0)

    def test_several_runs_are_stacked(self, run: Run, tmp_path: Path) -> None:
        other = made_up(tmp_path, [0.3], [[0.5]])
        np.testing.assert_array_equal(accuracy_at([run, other], np.array([4.0])), [[0.9], [0.5], [0.3]])
        assert span([run, other]) == (0.5, pytest.approx((6.0 + 0.5) / 2))

    def test_repetitions_count(self, tmp_path: Path) -> None:
        run = small_run(tmp_path / "run", {"scheme": "drop-slowest", "training.epochs": 4})
        assert accuracy_at([run], np.array([1e9])).shape == (3, 1)


class TestAccuracyAgainstTime:
    def test_axes(self, run: Run) -> None:
        (axes,) = accuracy_against_time({"some scheme": [run]}, targets=[0.4]).axes
        assert axes.get_xscale() == "log"
        assert axes.get_yscale() == "linear"
        assert "time" in axes.get_xlabel()
        assert "seconds" in axes.get_xlabel()
        assert "accuracy" in axes.get_ylabel()
        low, high = axes.get_ylim()
        assert low < 0.7 < high <= 1, "the mean of both draws ends at 0.7"

    def test_regressions_are_not_called_accuracy(self, run: Run) -> None:
        (axes,) = accuracy_against_time({"x": [run]}, targets=[], metric="r2").axes
        assert "R²" in axes.get_ylabel()
        assert "accuracy" not in axes.get_ylabel()

    def test_curves_can_be_told_apart_with_and_without_colour(self, run: Run) -> None:
        names = ["one", "two", "three", "four", "five", "six", "seven"]
        (axes,) = accuracy_against_time({name: [run] for name in names}, targets=[]).axes
        lines = [line for line in axes.get_lines() if line.get_label() in names]
        assert [line.get_label() for line in lines] == names
        assert [text.get_text() for text in axes.get_legend().get_texts()] == names
        for first in range(7):
            for second in range(first):
                assert not same_color(lines[first].get_color(), lines[second].get_color())
                assert lines[first]._dash_pattern != lines[second]._dash_pattern

    def test_many_curves_differ_in_colour_or_line(self, run: Run) -> None:
        names = [f"scheme {number}" for number in range(20)]
        (axes,) = accuracy_against_time({name: [run] for name in names}, targets=[]).axes
        looks = {(str(line.get_color()), str(line._dash_pattern)) for line in axes.get_lines()}
        assert len(looks) == len(names)

    def test_the_line_is_the_mean_and_the_band_holds_the_draws(self, run: Run) -> None:
        (axes,) = accuracy_against_time({"x": [run]}, targets=[]).axes
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
        (axes,) = accuracy_against_time({"x": [run]}, targets=[0.4, 0.8]).axes
        levels = [line.get_ydata()[0] for line in axes.get_lines() if len(set(line.get_ydata())) == 1]
        assert set(levels) >= {0.4, 0.8}
        assert {text.get_text() for text in axes.texts} == {"0.4", "0.8"}

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


class TestSave:
    def test_png_and_svg(self, run: Run, tmp_path: Path) -> None:
        save(accuracy_against_time({"x": [run]}, targets=[]), tmp_path / "figure.png")
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


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'codedfl\[plots\]'"):
        new_figure()
    said: list[tuple[str, int, int]] = []
    assert not save_if_possible(new_figure, tmp_path / "it.png", lambda *report: said.append(report))
    assert said == [("it.png left out: install codedfl[plots]", 0, 0)]


def test_matplotlib_is_not_imported_before_something_is_drawn() -> None:
    code = "import codedfl.cli.compare, codedfl.cli.reproduce, sys; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
