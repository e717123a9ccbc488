"""Numbers behind curves: accuracy at a time, spans, epochs and bands."""

import math
from pathlib import Path

import numpy as np
import pytest

from codedfl.errors import UsageError
from codedfl.report.figures.points import accuracy_at, curve_of, has_scores, mean_seconds, span, thinned
from codedfl.runs import Run
from report.made_up import made_up, slow_run
from rundirs import small_run


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


class TestCurves:
    def test_few_epochs_have_a_point_each(self, run: Run) -> None:
        curve = curve_of("x", [run])
        assert curve.by_epoch
        assert curve.time.tolist() == [1.5, 3.0, 6.0], "the means of both draws"
        assert curve.mean.tolist() == curve.low.tolist() == curve.high.tolist() == [0.1, 0.5, 0.9]
        assert curve.time_limits is not None
        early, late = curve.time_limits
        assert (early <= curve.time).all()
        assert (curve.time <= late).all()
        assert early[0] == pytest.approx(1.025)
        assert curve.words == "x (3 epochs)"

    def test_runs_of_different_lengths_are_averaged_where_they_trained(self, run: Run, tmp_path: Path) -> None:
        short = made_up(tmp_path, [0.3, 0.7], [[1.0, 2.0]])
        curve = curve_of("x", [run, short])
        assert curve.mean == pytest.approx([0.2, 0.6, 0.9])
        assert curve.words == "x (2 to 3 epochs)"

    def test_many_epochs_are_averaged_over_draws_at_a_time(self, tmp_path: Path) -> None:
        run = slow_run(tmp_path)
        curve = curve_of("x", [run])
        assert not curve.by_epoch
        assert len(curve.time) <= 400
        assert curve.time[-1] == pytest.approx(60.0), "the mean end of both draws"
        place = int(np.searchsorted(curve.time, 20.5))
        step = 0.4 / 39
        first, second = 0.5 + 19 * step, 0.5 + 9 * step  # epochs 20 and 10 are done
        assert curve.mean[place] == pytest.approx((first + second) / 2, abs=step)
        assert curve.low[place] < curve.mean[place] < curve.high[place]

    def test_thinned_curves_keep_their_ends(self, tmp_path: Path) -> None:
        curve = curve_of("x", [slow_run(tmp_path)])
        few = thinned(curve, 40)
        assert len(few.time) == 40
        assert (few.time[0], few.mean[0]) == (curve.time[0], curve.mean[0])
        assert (few.time[-1], few.mean[-1]) == (curve.time[-1], curve.mean[-1])

    def test_without_test_data_there_is_one_sentence(self, tmp_path: Path) -> None:
        blind = made_up(tmp_path, [math.nan] * 3, [[1.0, 2.0, 3.0]])
        assert not has_scores([blind])
        with pytest.raises(UsageError, match=r"'x' has no accuracy in any epoch.*data\.test_fraction"):
            curve_of("x", [blind])

    def test_times_to_a_target(self, run: Run, tmp_path: Path) -> None:
        band = mean_seconds([run], 0.5)
        assert band is not None
        assert band.mean == 3.0
        assert mean_seconds([run], 0.95) is None
        assert mean_seconds([run, made_up(tmp_path, [0.1], [[1.0]])], 0.5) is None, "one run does not reach it"
