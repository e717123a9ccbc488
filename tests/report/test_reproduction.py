"""Figures of the paper's experiment."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import same_color

from codedfl.report.figures import STYLES
from codedfl.report.reproduction import claimed_speedups, figure1, speedup_against_delta
from codedfl.studies.reproduce.study import Reproduction
from report.made_up import overlaps, slow_run


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
    words = [" ".join(text.get_text().split()) for text in axes.texts]
    assert words == ["claimed 92 bit, supports once", "claimed 128 bit, supports reissued"], "what is reached"
    assert overlaps(figure, axes.texts) == []
    (first, _, (bars,)), (second, _, _) = axes.containers
    assert first.get_ydata().tolist() == [2.0, 4.0]
    assert first.get_xdata() == pytest.approx([0.5, 1.0])
    assert [segment[:, 1].tolist() for segment in bars.get_segments()] == [[1.0, 4.0], [2.0, 8.0]]
    assert not same_color(first.get_color(), second.get_color())


def point(delta: float, speedup: float) -> dict[str, float]:
    return {"delta": delta, "speedup": speedup, "low": speedup / 2, "high": speedup * 2}


class TestFigure1:
    LABELS = ("code-based, claimed 92 bit, each support once", "code-based, claimed 128 bit, supports reissued")

    def found(self, folder: Path, measured: float | None = 5.25) -> Reproduction:
        runs = {"minibatch": [slow_run(folder, 40, 10.0)]}
        runs |= {label: [slow_run(folder, 40, 1.0 + number)] for number, label in enumerate(self.LABELS)}
        claims = [
            {"name": "speedup-92", "claimed": 4.7, "measured": measured},
            {"name": "speedup-128", "claimed": 4.0, "measured": 4.75},
            {"name": "speedup-92-shared", "claimed": 1.0, "measured": 1.0},
        ]
        return Reproduction({"claims": claims, "target": 0.7}, runs, {})

    def test_gaps_are_those_of_the_claims_between_the_times_of_the_runs(self, tmp_path: Path) -> None:
        first, second = claimed_speedups(self.found(tmp_path))
        assert first.words == "92 bit: 4.7x claimed, 5.2x measured"
        assert second.words == "128 bit: 4.0x claimed, 4.8x measured"
        assert first.slow == second.slow == pytest.approx(10 * first.fast)
        assert second.fast == pytest.approx(2 * first.fast)
        epoch = 21  # the first of 40 from 0.5 to 0.9 at 0.7 or more
        assert first.fast == pytest.approx((epoch + 2 * epoch) / 2), "the mean of both draws"

    def test_what_is_not_measured_says_so(self, tmp_path: Path) -> None:
        assert "not measured" in claimed_speedups(self.found(tmp_path, None))[0].words

    @pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
    def test_it_is_annotated(self, tmp_path: Path, style: Any) -> None:
        figure = figure1(self.found(tmp_path), style)
        (axes,) = figure.axes
        words = {" ".join(text.get_text().split()) for text in axes.texts}
        assert words >= {*self.LABELS, "minibatch", "92 bit: 4.7x claimed, 5.2x measured"}
        assert overlaps(figure, [text for text in axes.texts if text.get_text()]) == []
