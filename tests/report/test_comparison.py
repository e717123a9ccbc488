"""The figure of a comparison on several fleets."""

from typing import Any

from matplotlib.colors import same_color

from codedfl.report.comparison import time_by_scheme


def timed(fleet: str, scheme: str, verdict: str, times: Any, bands: Any = None, refused: str | None = None) -> Any:
    """A row of a comparison on several fleets, as far as its figure needs it."""
    keys = {"fleet": fleet, "devices": 7, "scheme": scheme, "verdict": verdict, "refused": refused}
    limits = None if times is None else {target: (bands or {}).get(target) for target in times}
    return {**keys, "time_to_accuracy": times, "time_to_accuracy_band": limits}


class TestTimeByScheme:
    ROWS = (
        timed("first", "slow", "server sees sums", {"0.5": 1.0, "0.9": 40.0}, {"0.5": [0.5, 2.0], "0.9": [30.0, 50.0]}),
        timed("first", "quick", "broken", {"0.5": 2.0, "0.9": 4.0}, {"0.9": [0.0, 9.0]}),
        timed("first", "lame", "not encrypted", {"0.5": 3.0, "0.9": None}),
        timed("second", "slow", "server sees sums", {"0.5": 1.0, "0.9": 60.0}),
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
            *("secrecy: server sees sums", "secrecy: not encrypted", "secrecy: broken"),
            *("to accuracy 0.5", "to accuracy 0.9"),
        ]

    def test_marks_are_at_the_times_and_say_what_holds(self) -> None:
        first, second = time_by_scheme(self.ROWS, [0.5, 0.9]).axes
        marks = {
            (round(float(line.get_ydata()[0])), float(line.get_xdata()[0])): line
            for line in first.get_lines()
            if len(line.get_xdata()) == 1
        }
        missed = marks.pop((2, 0.97))
        assert missed.get_marker() == "x", "at the right edge"
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
        (axes,) = time_by_scheme([timed("x", "y", "server sees sums", {"0.5": None})], [0.5]).axes
        assert [text.get_text() for text in axes.texts] == ["0.5 not reached"]
