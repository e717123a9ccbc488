"""The figure of a sweep."""

from codedfl.report.sweep import time_against_setting


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
