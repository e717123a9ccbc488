"""Grids and steps of noise by hand: what fits, what counts when devices are lost or collude, how far noise reaches."""

from dataclasses import replace
from fractions import Fraction
from math import exp, floor, log2, nextafter, sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import UsageError
from codedfl.privacy.accounting import mu_of
from codedfl.privacy.release import Calibration, Release, basis, calibrated

GIVEN: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "features": 30, "outputs": 4, "largest_rows": 50}
GIVEN |= {"devices": 10, "records": 400}
U = Fraction(1, 2**53)


def plan(**changes: Any) -> Release:
    return Release.plan(**{"clip_features": 1.0, "clip_targets": 2.0} | GIVEN | changes)


def changes_of(**changes: Any) -> float:
    request = {"colluding": 0, "losses": 0, "unit": "record", "most_rows": None, "releases": 1}
    return basis(**GIVEN | request | changes).changes


class TestCalibration:
    RATIO = Calibration(bits=3, sigma=5, sensitivity=0.75).ratio(4)

    def test_the_least_noise_of_a_ratio_is_found(self) -> None:
        """2^49 units in 2^52 steps: a grid of 2^-3, on which the ratio of five steps needs five, and any less six."""
        found = [calibrated(0.75, 0.0, ratio, 4, 2.0**49) for ratio in (self.RATIO, nextafter(self.RATIO, 0))]
        assert found == [Calibration(3, 5, 0.75), Calibration(3, 6, 0.75)]

    @pytest.mark.parametrize("honest", [1, 2, 3, 5, 7])
    def test_a_ratio_that_is_hardly_less_needs_a_step_more(self, honest: int) -> None:
        """Also where the square root of the steps is rounded down to five, as it is for two devices."""
        ratio = Calibration(bits=3, sigma=5, sensitivity=0.75).ratio(honest)
        assert calibrated(0.75, 0.0, nextafter(ratio, 0), honest, 2.0**49) == Calibration(3, 6, 0.75)

    def test_float64_holds_every_sum(self) -> None:
        assert calibrated(1.0, 0.0, 1.0, 1, 2.0**40).bits == 12
        assert calibrated(1.0, 0.0, 1.0, 1, 2.0**40 + 1).bits == 11

    def test_a_share_may_have_as_many_steps_as_can_be_drawn(self) -> None:
        """Where formats round, 2^24 - 8.5 steps need 2^24, and 2^24 - 7.5 steps more: half of them need 2^23 + 1/4."""
        assert calibrated(1 - 2.0**-21 - 2.0**-25, 0.0, 1.0, 1, 1.0)[:2] == (24, 1 << 24)
        assert calibrated(1 - 2.0**-21 + 2.0**-25, 0.0, 1.0, 1, 1.0)[:2] == (23, (1 << 23) + 1)

    @given(
        change=st.floats(1e-3, 1e3),
        entries=st.floats(0, 1e3),
        ratio=st.floats(1e-2, 10),
        honest=st.integers(1, 10**4),
        largest=st.floats(1, 2.0**40),
    )
    def test_the_finest_grid_is_taken(
        self, change: float, entries: float, ratio: float, honest: int, largest: float
    ) -> None:
        found = calibrated(change, entries, ratio, honest, largest)
        assert found.sensitivity == change + entries * 2.0**-found.bits
        assert found.ratio(honest) <= ratio
        fewer = honest * ((found.sigma - 1) ** 2 * (1 - 2.0**-20) - 16)
        assert fewer * ratio**2 <= (found.sensitivity * 2.0**found.bits) ** 2 * (1 + 1e-9)
        assert largest * 2.0**found.bits <= 2**52
        assert found.sigma <= 2**24
        finer = change * 2.0 ** (found.bits + 1) + entries
        steps = sqrt(((finer / ratio) ** 2 / honest + 16) / (1 - 2.0**-20))
        # before rounding to the grid is counted, a change alone has to fit
        alone = floor(log2(2**24 * ratio * sqrt(honest) / change))
        assert steps * (1 + 1e-12) > 2**24 or largest * 2.0 ** (found.bits + 1) > 2**52 or found.bits == alone

    def test_rounding_alone_may_take_more_than_all_noise(self) -> None:
        with pytest.raises(UsageError, match=r"^rounding alone needs more noise than 16777216 steps at a ratio"):
            calibrated(1.0, 200.0, 1e-5, 1, 1.0)
        assert calibrated(1.0, 160.0, 1e-5, 1, 1.0).sigma <= 1 << 24


class TestChanges:
    """By how many largest products a record changes a sum: the error of n roundings is n u / (1 - n u)."""

    @staticmethod
    def exact(rows: int, norm_roundings: int, units: int = 1, counted: int | None = None) -> Fraction:
        sums, norms = (n * U / (1 - n * U) for n in (rows, norm_roundings))
        return (units + 2 * sums * (counted or rows)) * (1 + norms) ** 2

    @pytest.mark.parametrize("rows", [1, 10**5, 10**7])
    def test_roundings_of_sums(self, rows: int) -> None:
        """Ten million rows change as much by rounding as 1 + 0.022 records do."""
        found = changes_of(largest_rows=rows, records=rows, delta=1e-8)
        assert found == pytest.approx(float(self.exact(rows, 42)), rel=1e-15)

    @pytest.mark.parametrize("features", [30, 31])
    def test_roundings_of_norms(self, features: int) -> None:
        """One for each feature and output, and eight: to an eighth of a trillionth of a percent."""
        found = Fraction(changes_of(features=features, largest_rows=1)) - self.exact(1, features + 12)
        assert -U / 2 < found < 5 * U / 2

    def test_a_device_counts_as_its_most_rows(self) -> None:
        found = changes_of(unit="device", most_rows=7, largest_rows=10**7, delta=1e-8)
        assert found == pytest.approx(float(self.exact(10**7, 42, 7, 7)), rel=1e-15)
        assert basis(**GIVEN, colluding=0, losses=0, unit="device", most_rows=1, releases=4).rows == 1

    def test_releases_share_the_budget(self) -> None:
        found = basis(**GIVEN, colluding=0, losses=0, unit="record", most_rows=None, releases=4)
        assert found.ratio == pytest.approx(mu_of(1.0, 1e-5) / 2, rel=1e-15)
        assert found.rows == 50


def test_grids_leave_room_for_sums_of_all_devices() -> None:
    """2^20 devices of 2^20 rows, and as much for noise: 2^41 clips, so 2^52 steps are 2^11 steps a clip."""
    sizes = {"devices": 2**20, "largest_rows": 2**20, "records": 2**40, "delta": 1e-13}
    found = plan(clip_features=2.0, clip_targets=8.0, **sizes)
    assert (found.gram_bits, found.moments_bits) == (11 - 2, 11 - 4)


class TestLostDevices:
    def test_shares_that_are_counted_on(self) -> None:
        """Of 10 devices 2 collude and 2 may be lost: spare noise of 8 - 2 * 2 makes up for that of 2."""
        release = plan(colluding=2, losses=2)
        assert any(release.spare_steps)
        # each device that colludes beyond those planned takes its share, and the half share that its spare noise is
        assert [release.counted(colluding) for colluding in (0, 1, 2, 3, 5)] == [10, 9, 8, 6.5, 3.5]
        assert release.honest == 8

    def test_shares_without_spare_noise(self) -> None:
        release = plan(colluding=2, losses=4)
        assert not any(release.spare_steps)
        assert [release.counted(colluding) for colluding in (0, 2, 5)] == [6, 4, 1]

    @pytest.mark.parametrize(
        ("devices", "losses", "spare"), [(17, 8, False), (18, 8, True), (15, 7, True), (2, 1, False), (3, 1, True)]
    )
    def test_where_there_is_spare_noise(self, devices: int, losses: int, spare: bool) -> None:
        """Up to, but not at, eight times the variance of the device's own noise."""
        assert any(plan(devices=devices, losses=losses).spare_steps) == spare

    def test_one_of_three_has_spare_noise_like_its_own(self) -> None:
        """One that is lost has as much as the one that keeps its spare noise; a step is for rounding."""
        release = plan(devices=3, losses=1)
        own = release.off_diagonal_steps, release.diagonal_steps, release.moments_steps
        assert release.spare_steps == tuple(steps + 1 for steps in own)


class TestReach:
    def test_it_is_passed_once_in_2_to_the_60_runs(self) -> None:
        """2 exp(-z^2 / 2) for each number of 10 devices and of their sum, each with own and spare noise."""
        release = replace(plan(losses=2, releases=3), diagonal_steps=30, moments_steps=5, spare_steps=(9, 40, 12))
        drawn = 2 * 11 * (30 * 30 + 30 * 4) * 3
        z = release.gram_reach() * 2.0**release.gram_bits / 50
        assert 2 * exp(-(z**2) / 2) * drawn * 2.0**60 == pytest.approx(1, rel=1e-9)
        assert release.gram_reach(9) == pytest.approx(3 * release.gram_reach(), rel=1e-12, abs=0)
        assert release.moments_reach() == pytest.approx(13 * z * 2.0**-release.moments_bits, rel=1e-12)
        assert release.moments_reach(4) == pytest.approx(2 * release.moments_reach(), rel=1e-12)


def test_formats_round_to_a_4096th_of_the_noise_of_a_device() -> None:
    release = plan()
    stds = release.gram_std / sqrt(10), release.moments_std / sqrt(10)
    assert release.coarsest_steps == pytest.approx([std / 4096 for std in stds], rel=1e-12)


def test_one_of_everything_can_be_planned() -> None:
    ones = dict.fromkeys(("features", "outputs", "devices", "largest_rows", "records", "releases"), 1)
    assert plan(**ones).covered == "this run"
    assert plan(releases=2).covered == "this run of 2 releases"


@pytest.mark.parametrize("most_rows", [float("inf"), float("nan")])
def test_a_device_counts_as_finitely_many_rows(most_rows: float) -> None:
    with pytest.raises(UsageError, match=f"^privacy.most_rows is {most_rows}: a device must count"):
        plan(unit="device", most_rows=most_rows, delta=1e-3)
