"""Figures of sweeps: by the kind of their keys; what has no value is marked."""

from typing import Any

import numpy as np
import pytest

from codedfl.errors import UsageError
from codedfl.report.figures import PAPER, SCREEN, STYLES, svg_text
from codedfl.report.figures.overlay import Series
from codedfl.report.figures.sweeps import grid_of, sweep_figure
from report.made_up import outside, overlaps, swept


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


class TestOneNumericKey:
    ROWS = (swept({"links.loss": 0.0}, 10.0), swept({"links.loss": 0.1}, None), swept({"links.loss": 0.2}, 20.0))

    def test_values_bars_and_axes(self) -> None:
        (axes,) = sweep_figure(grid_of(self.ROWS)).axes
        assert axes.get_xlabel() == "links.loss"
        assert axes.get_xscale() == "linear"
        assert "seconds to accuracy 0.9" in " ".join(axes.get_ylabel().split())
        assert axes.get_ylim()[0] == 0
        ((line, _, (bars,)),) = axes.containers
        assert line.get_xdata().tolist() == [0.0, 0.2]
        assert line.get_ydata().tolist() == [10.0, 20.0]
        assert [segment[:, 1].tolist() for segment in bars.get_segments()] == [[8.0, 13.0], [16.0, 26.0]]

    def test_what_is_not_reached_is_marked_at_the_top(self) -> None:
        (axes,) = sweep_figure(grid_of(self.ROWS)).axes
        (cross,) = [line for line in axes.get_lines() if line.get_marker() == "x"]
        assert cross.get_xdata() == [0.1]
        assert texts(axes) == ["not reached"]
        axes.figure.draw_without_rendering()
        top = axes.get_window_extent().y1
        words = axes.texts[0].get_window_extent()
        assert top * 0.9 < words.y1 <= top
        assert axes.transData.transform((0.2, 26.0))[1] < words.y0, "no bar reaches the words"

    def test_nothing_reached(self) -> None:
        (axes,) = sweep_figure(grid_of([swept({"x": value}, None) for value in (1, 2)])).axes
        assert not axes.containers
        assert texts(axes) == ["not reached"] * 2

    def test_refused_cells_are_marked(self) -> None:
        row = {**swept({"x": 2}, 4.0), "refused": "it does not fit"}
        (axes,) = sweep_figure(grid_of([swept({"x": 1}, 3.0), row])).axes
        assert texts(axes) == ["refused"]

    @pytest.mark.parametrize(
        ("values", "scale"),
        [((0.1, 3.0), "log"), ((0.1, 2.9), "linear"), ((0.0, 0.1, 10.0), "linear"), ((-1.0, 100.0), "linear")],
    )
    def test_decades_need_a_logarithmic_axis(self, values: tuple[float, ...], scale: str) -> None:
        (axes,) = sweep_figure(grid_of([swept({"x": value}, 5.0) for value in values])).axes
        assert axes.get_xscale() == scale
        assert ("logarithmic" in axes.get_xlabel()) == (scale == "log")

    def test_other_quantities(self) -> None:
        rows = [swept({"x": 1}, 5.0, 0.8, 3e6), swept({"x": 2}, 5.0, None, 5e6)]
        (axes,) = sweep_figure(grid_of(rows, "bits")).axes
        assert axes.containers[0][0].get_ydata().tolist() == [6.0, 10.0], "up and between devices, in megabits"
        assert "megabits" in axes.get_ylabel()
        (axes,) = sweep_figure(grid_of(rows, "accuracy")).axes
        assert axes.containers[0][0].get_ydata().tolist() == [0.8]
        assert texts(axes) == ["not known"]
        assert "test accuracy" in axes.get_ylabel()

    def test_a_target_may_be_named(self) -> None:
        rows = [swept({"x": 1}, 5.0)]
        rows[0]["time_to_accuracy"]["0.5"] = 2.0
        (axes,) = sweep_figure(grid_of(rows, "time", "0.5")).axes
        assert axes.containers[0][0].get_ydata().tolist() == [2.0]
        assert "0.5" in axes.get_ylabel()

    def test_an_overlay_is_drawn_and_labelled(self) -> None:
        series = (Series("theirs", (0.05, 0.3), (12.0, 40.0)),)
        (axes,) = sweep_figure(grid_of(self.ROWS), overlay=series).axes
        (line,) = [line for line in axes.get_lines() if line.get_label() == "theirs"]
        assert (list(line.get_xdata()), list(line.get_ydata())) == ([0.05, 0.3], [12.0, 40.0])
        assert "theirs" in texts(axes)
        assert axes.get_xlim()[1] > 0.3


class TestTwoKeys:
    def test_two_numbers_are_a_heat_map(self) -> None:
        rows = [
            swept({"a": a, "b": b}, None if (a, b) == (2, 30) else float(a * b)) for a in (2, 1) for b in (10, 20, 30)
        ]
        axes, bar = sweep_figure(grid_of(rows)).axes
        (mesh,) = axes.collections
        wanted = np.ma.masked_invalid([[10.0, 20.0], [20.0, 40.0], [30.0, np.nan]])
        np.testing.assert_array_equal(mesh.get_array().reshape(3, 2).filled(-1), wanted.filled(-1))
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("a", "b")
        assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2"]
        assert [label.get_text() for label in axes.get_yticklabels()] == ["10", "20", "30"]
        assert texts(axes) == ["10", "20", "20", "40", "30", "not\nreached"]
        (hatched,) = [patch for patch in axes.patches if patch.get_hatch()]
        assert hatched.get_xy() == (1, 2)
        assert "seconds" in bar.get_ylabel()
        assert "<image" not in svg_text(axes.figure), "nothing is rasterised"

    def test_a_heat_map_of_misses(self) -> None:
        rows = [swept({"a": a, "b": b}, None) for a in (1, 2) for b in (1, 2)]
        (axes,) = sweep_figure(grid_of(rows)).axes
        assert texts(axes) == ["not\nreached"] * 4

    @pytest.mark.parametrize("turned", [False, True])
    def test_a_text_and_a_number_are_a_family(self, turned: bool) -> None:
        pairs = [(name, loss) for name in ("one", "two", "three") for loss in (0.0, 0.1)]
        keys = ("links.loss", "scheme") if turned else ("scheme", "links.loss")
        rows = [
            swept(dict(sorted({"scheme": name, "links.loss": loss}.items(), key=lambda item: keys.index(item[0]))), 5.0)
            for name, loss in pairs
        ]
        rows[1]["time_to_accuracy"] = {"0.9": None}
        figure = sweep_figure(grid_of(rows))
        (axes,) = figure.axes
        assert [container[0].get_xdata().tolist() for container in axes.containers] == [[0.0], [0.0, 0.1], [0.0, 0.1]]
        assert {"one", "two", "three", "one: not reached"} == set(texts(axes))
        assert overlaps(figure, [text for text in axes.texts if ":" not in text.get_text()]) == []
        markers = {container[0].get_marker() for container in axes.containers}
        assert len(markers) == 3, "told apart without colour"

    def test_two_texts_are_dots(self) -> None:
        rows = [swept({"scheme": name, "kind": kind}, 5.0) for name in ("a", "b") for kind in ("x", "y")]
        figure = sweep_figure(grid_of(rows))
        (axes,) = figure.axes
        assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["kind = x", "kind = y"]

    def test_a_key_of_one_value_is_not_drawn(self) -> None:
        rows = [swept({"a": 1, "b": b, "c": "x"}, 5.0) for b in (1, 2)]
        (axes,) = sweep_figure(grid_of(rows)).axes
        assert axes.get_xlabel() == "b"

    def test_three_keys_are_refused_in_one_sentence(self) -> None:
        rows = [swept({"a": a, "b": b, "c": c}, 5.0) for a in (1, 2) for b in (1, 2) for c in (1, 2)]
        with pytest.raises(UsageError, match=r"3 keys \(a, b, c\).*--set"):
            grid_of(rows)

    def test_no_overlay_on_a_heat_map(self) -> None:
        rows = [swept({"a": a, "b": b}, 5.0) for a in (1, 2) for b in (1, 2)]
        with pytest.raises(UsageError, match="heat map"):
            sweep_figure(grid_of(rows), overlay=[Series("x", (1.0,), (1.0,))])


class TestOneTextKey:
    ROWS = (swept({"scheme": "quick"}, 1.0), swept({"scheme": "slow"}, 50.0), swept({"scheme": "lame"}, None))

    def test_dots_with_bars_and_misses(self) -> None:
        (axes,) = sweep_figure(grid_of(self.ROWS)).axes
        assert [label.get_text() for label in axes.get_yticklabels()] == ["quick", "slow", "lame"]
        points = [(container[0].get_xdata()[0], container[0].get_ydata()[0]) for container in axes.containers]
        assert points == [(1.0, 0.0), (50.0, 1.0)]
        assert axes.get_xscale() == "log"
        (cross,) = [line for line in axes.get_lines() if line.get_marker() == "x"]
        assert cross.get_ydata() == [2.0]
        assert texts(axes) == ["not reached"]

    def test_an_overlay_stands_in_its_row(self) -> None:
        grid = grid_of(self.ROWS)
        assert grid.places() == ["quick", "slow", "lame"]
        (axes,) = sweep_figure(grid, overlay=[Series("theirs", ("slow",), (30.0,))]).axes
        (line,) = [line for line in axes.get_lines() if line.get_label() == "theirs"]
        assert (list(line.get_xdata()), list(line.get_ydata())) == ([30.0], [1])

    @pytest.mark.parametrize("values", [[[0.4], [0.5, 0.6]], [True, False], ["$x", "a_b"]])
    def test_settings_of_any_kind(self, values: list[Any]) -> None:
        sweep_figure(grid_of([swept({"x": value}, 5.0) for value in values])).draw_without_rendering()


def test_without_targets_there_is_no_time_to_draw() -> None:
    row = swept({"x": 1}, None)
    row["time_to_accuracy"] = {}
    with pytest.raises(UsageError, match="no target accuracy"):
        grid_of([row])


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_nothing_sticks_out(style: Any) -> None:
    rows = [swept({"scheme": f"scheme {n}", "training.learning_rate": x}, n * x) for n in (1, 2, 3) for x in (0.1, 9.0)]
    for chosen in (rows, rows[:2], [row for row in rows if row["settings"]["training.learning_rate"] == 9.0]):
        figure = sweep_figure(grid_of(chosen), style)
        (axes,) = figure.axes
        names = [axes.xaxis.label, axes.yaxis.label, *axes.texts]
        assert outside(figure, names) == []
    assert {PAPER, SCREEN} == set(STYLES.values())
