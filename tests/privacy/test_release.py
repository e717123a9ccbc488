"""Plans of releases: sensitivities that no record exceeds, budgets that are kept, sentences, refusals."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from codedfl.errors import UsageError
from codedfl.privacy import release as release_module
from codedfl.privacy.accounting import delta_of, epsilon_of, mu_of
from codedfl.privacy.release import GRAM_SHARE, Calibration, Release
from codedfl.privacy.sampling import LARGEST_SIGMA

PAPER: dict[str, Any] = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "clip_features": 1.0,
    "clip_targets": 1.0,
    "features": 2000,
    "outputs": 10,
    "devices": 25,
    "largest_rows": 2400,
    "records": 60_000,
}


def plan(**changes: Any) -> Release:
    return Release.plan(**PAPER | changes)


def within(rows: np.ndarray, clip: float, *, exactly: bool = False) -> np.ndarray:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * (clip / norms if exactly else np.minimum(1, clip / np.maximum(norms, 1e-300)))


def in_steps(X: np.ndarray, Y: np.ndarray, release: Release) -> tuple[np.ndarray, np.ndarray]:
    return np.rint(X.T @ X * 2.0**release.gram_bits), np.rint(X.T @ Y * 2.0**release.moments_bits)


def squared_distance(before: Any, after: Any, release: Release) -> tuple[float, float]:
    """Squares of the change over the variance counted on, entry by entry of what is released."""
    gram, moments = after[0] - before[0], after[1] - before[1]
    d, squares = len(gram), 0.0
    for i in range(d):
        for j in range(i, d):
            steps = release.diagonal_steps if i == j else release.off_diagonal_steps
            squares += gram[i, j] ** 2 / (release.honest * (steps**2 - 16))
    return squares, float(np.sum(moments**2)) / (release.honest * (release.moments_steps**2 - 16))


@st.composite
def data_of_a_device(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int, dict[str, Any]]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, d, c = draw(st.integers(1, 8)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    clips = draw(st.floats(0.01, 100)), draw(st.floats(0.01, 100))
    size = draw(st.sampled_from([0.1, 1.0, 1000.0]))
    X, Y = (
        within(size * clip * rng.standard_normal((n, width)), clip, exactly=draw(st.booleans()))
        for clip, width in zip(clips, (d, c), strict=True)
    )
    devices = draw(st.integers(1, 6))
    asked = {"epsilon": draw(st.floats(0.1, 20)), "devices": devices, "colluding": draw(st.integers(0, devices - 1))}
    asked |= {"clip_features": clips[0], "clip_targets": clips[1], "features": d, "outputs": c, "largest_rows": n}
    return X, Y, draw(st.integers(0, n - 1)), asked


@pytest.mark.parametrize("most_sigma", [1 << 24, 1 << 10])
@settings(max_examples=200)
@given(case=data_of_a_device())
def test_no_record_changes_a_release_more_than_planned(most_sigma: int, case: Any) -> None:
    X, Y, gone, asked = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release_module, "MOST_SIGMA", most_sigma)
        release = plan(**asked, delta=1e-3, records=100)
    before, after = in_steps(X, Y, release), in_steps(np.delete(X, gone, 0), np.delete(Y, gone, 0), release)
    gram, moments = before[0] - after[0], before[1] - after[1]
    assert np.linalg.norm(gram) <= release.gram_sensitivity * 2.0**release.gram_bits
    assert np.linalg.norm(moments) <= release.moments_sensitivity * 2.0**release.moments_bits
    assert sum(squared_distance(before, after, release)) <= release.mu**2


@given(seed=st.integers(0, 2**32), d=st.integers(1, 6), c=st.integers(1, 3))
def test_a_record_at_the_clips_reaches_the_bound(seed: int, d: int, c: int) -> None:
    rng = np.random.default_rng(seed)
    X, Y = (
        within(rng.standard_normal((5, d)), 2.0, exactly=True),
        within(rng.standard_normal((5, c)), 3.0, exactly=True),
    )
    release = plan(features=d, outputs=c, clip_features=2.0, clip_targets=3.0, largest_rows=5, colluding=3, losses=2)
    found = squared_distance(in_steps(X, Y, release), in_steps(X[1:], Y[1:], release), release)
    wanted = GRAM_SHARE * mu_of(1.0, 1e-5) ** 2, (1 - GRAM_SHARE) * mu_of(1.0, 1e-5) ** 2
    for reached, bound in zip(found, wanted, strict=True):
        assert 0.99**2 * bound <= reached <= bound


def test_of_small_noise_the_variance_that_smooths_is_not_counted_on() -> None:
    """By hand: of sigma = 5 steps, 25 (1 - 2^-20) less r^2 = 16; for four devices, and a change of 3/4 of 8 steps."""
    found = Calibration(bits=3, sigma=5, sensitivity=0.75)
    assert found.ratio(4) == pytest.approx(6 / (2 * np.sqrt(9 - 25 * 2.0**-20)), rel=1e-14)


def test_rounding_is_part_of_the_sensitivity(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a coarse grid, roundings before and after make a record's change larger than it is."""
    monkeypatch.setattr(release_module, "MOST_SIGMA", 64)
    release = plan(features=1, outputs=1, devices=1, largest_rows=2, clip_features=0.87)
    step, ones = 2.0**-release.gram_bits, np.ones((2, 1))
    found = []
    for other in np.linspace(0, 0.87, 999):
        both, one = np.array([[0.87], [other]]), np.array([[other]])
        change = in_steps(both, ones, release)[0] - in_steps(one, ones[:1], release)[0]
        found.append(abs(change[0, 0]) * step)
    assert release.gram_sensitivity == pytest.approx(0.87**2 + step, rel=1e-12)
    assert 0.87**2 + step / 2 < max(found) <= release.gram_sensitivity


@given(
    epsilon=st.floats(0.02, 200),
    power=st.floats(-12, -5),
    devices=st.integers(1, 1000),
    clips=st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)),
    releases=st.integers(1, 100),
    data=st.data(),
)
def test_a_plan_keeps_the_budget_and_wastes_little(
    epsilon: float, power: float, devices: int, clips: tuple[float, float], releases: int, data: st.DataObject
) -> None:
    colluding = data.draw(st.integers(0, devices - 1))
    losses = data.draw(st.integers(0, devices - 1 - colluding))
    release = plan(
        epsilon=epsilon,
        delta=10**power,
        devices=devices,
        colluding=colluding,
        losses=losses,
        features=50,
        clip_features=clips[0],
        clip_targets=clips[1],
        releases=releases,
    )
    assert 0.999 * epsilon < release.epsilon <= epsilon
    assert release.epsilon == epsilon_of(release.mu, 10**power)
    h = release.honest
    assert h == devices - colluding - (0 if any(release.spare_steps) else losses)
    C, T = clips
    # the law of the design, from standard deviations and clips alone
    mu = mu_of(epsilon, 10**power)
    law = C**4 / 2 / release.least_gram_std**2 + C**2 * T**2 / release.least_moments_std**2
    assert releases * law <= mu**2
    assert release.gram_std == pytest.approx(release.least_gram_std * (devices / h) ** 0.5)
    assert release.moments_std == pytest.approx(release.least_moments_std * (devices / h) ** 0.5)
    for steps in (release.off_diagonal_steps, release.moments_steps):
        assert 1 << 20 <= steps <= 1 << 24
    assert 0 <= release.diagonal_steps - 2**0.5 * release.off_diagonal_steps < 1


@given(devices=st.integers(2, 60), data=st.data())
def test_whoever_is_lost_and_whoever_tells_its_spare_noise_enough_is_left(devices: int, data: st.DataObject) -> None:
    """A server opens a sum with N - L devices; to the L others it may say that nobody was lost."""
    colluding = data.draw(st.integers(0, devices - 1))
    losses = data.draw(st.integers(0, devices - 1 - colluding))
    release = plan(devices=devices, colluding=colluding, losses=losses, features=50)
    others = devices - colluding
    assert any(release.spare_steps) == (0 < losses < 8 * (others - 2 * losses))
    if not losses:
        return
    own = release.off_diagonal_steps, release.diagonal_steps, release.moments_steps
    for sigma, spare in zip(own, release.spare_steps, strict=True):
        counted = release.honest * (sigma**2 - 16)
        if not spare:
            assert counted == (others - losses) * (sigma**2 - 16)
            continue
        assert others * (sigma**2 - 16) >= counted, "nobody is lost, and all spare noise is removed"
        for lost in range(1, losses + 1):
            left = (others - lost) * (sigma**2 - 16) + (others - lost - losses) * (spare**2 - 16)
            assert left >= counted


@given(sigma=st.integers(5, 2**24), others=st.integers(3, 60), data=st.data())
def test_spare_noise_suffices_and_little_is_wasted_whatever_the_steps(sigma: int, others: int, data: Any) -> None:
    """Noise of N - c - L devices, and spare noise of N - c - 2 L; two steps are for rounding."""
    losses = data.draw(st.integers(1, (others - 1) // 2))
    (spare, *_), wanted = release_module._spares((sigma,) * 3, others, losses), others * (sigma**2 - 16)

    def left(steps: int) -> int:
        return (others - losses) * (sigma**2 - 16) + (others - 2 * losses) * (steps**2 - 16)

    assert left(spare) >= wanted > left(spare - 3)


def test_noise_at_the_paper_size() -> None:
    """By hand: mu is 0.26805 for (1, 1e-5), and rounding adds a step to each of 2000 * 2000 and 2000 * 10 entries."""
    release = plan()
    gram_mu, moments_mu = (0.2680511232 * part**0.5 for part in (GRAM_SHARE, 1 - GRAM_SHARE))
    gram_change = 1 + 2000 * 2.0**-release.gram_bits
    assert release.least_gram_std == pytest.approx(gram_change / (2**0.5 * gram_mu), rel=1e-6)
    moments_change = 1 + 20_000**0.5 * 2.0**-release.moments_bits
    assert release.least_moments_std == pytest.approx(moments_change / moments_mu, rel=1e-6)
    assert gram_change < 1.001


@given(epsilon=st.floats(0.1, 20), devices=st.integers(2, 200), data=st.data())
def test_all_noise_can_be_drawn(epsilon: float, devices: int, data: st.DataObject) -> None:
    release = plan(epsilon=epsilon, features=50, devices=devices, losses=data.draw(st.integers(0, devices - 1)))
    steps = release.off_diagonal_steps, release.diagonal_steps, release.moments_steps
    assert max(*steps, *release.spare_steps) <= LARGEST_SIGMA


def test_sums_stay_exact_in_float64() -> None:
    release = plan(largest_rows=10**9, records=10**9, delta=1e-12, epsilon=100.0, devices=1000)
    largest = 1000 * 1e9 + release.gram_reach(1000)
    assert 2.0**50 < largest * 2.0**release.gram_bits <= 2.0**53
    assert 1000 * 1e9 + release.moments_reach(1000) <= 2.0 ** (53 - release.moments_bits)
    assert release.epsilon <= 100


def test_a_device_counts_as_so_many_records() -> None:
    record, device = plan(epsilon=2.0), plan(epsilon=2.0, unit="device", most_rows=30)
    assert device.least_gram_std == pytest.approx(30 * record.least_gram_std, rel=1e-3)
    assert device.least_moments_std == pytest.approx(30 * record.least_moments_std, rel=1e-3)
    fewer = plan(epsilon=2.0, unit="device", most_rows=30, largest_rows=40)
    assert fewer.least_gram_std == pytest.approx(device.least_gram_std, rel=1e-6)


@pytest.mark.parametrize(("colluding", "releases"), [(0, 1), (24, 1), (0, 1000)])
def test_noise_stays_within_its_reach(colluding: int, releases: int) -> None:
    release = plan(colluding=colluding, releases=releases)
    entries, targets = releases * 2000 * 2001 // 2, releases * 20_000
    for shares in (1, 25):
        diagonal = shares**0.5 * release.diagonal_steps * 2.0**-release.gram_bits
        right = shares**0.5 * release.moments_steps * 2.0**-release.moments_bits
        assert entries * 25 / shares * 2 * norm.sf(release.gram_reach(shares) / diagonal) < 2.0**-60
        assert targets * 25 / shares * 2 * norm.sf(release.moments_reach(shares) / right) < 2.0**-60
        assert release.gram_reach(shares) < 12 * diagonal


@pytest.mark.parametrize("shares", [1, 3])
@pytest.mark.parametrize("sigma", [6, 20, 100])
def test_discrete_noise_is_as_private_as_the_continuous_one_that_accounts_for_it(sigma: int, shares: int) -> None:
    """Delta from the exact probabilities of the sum of shares, before and after a whole change."""
    x = np.arange(-15 * sigma, 15 * sigma + 1)
    share = np.exp(-((x / sigma) ** 2) / 2)
    law = share = share / share.sum()
    for _ in range(shares - 1):
        law = np.convolve(law, share)
    for change in (1, sigma // 2, 2 * sigma):
        moved, still = np.pad(law, (change, 0)), np.pad(law, (0, change))
        for epsilon in (0.1, 1.0, 4.0):
            exact = float(np.maximum(still - np.exp(epsilon) * moved, 0).sum())
            assert exact <= delta_of(change / (shares * (sigma**2 - 16)) ** 0.5, epsilon) + 1e-12


def test_what_is_promised_is_said_in_one_sentence() -> None:
    assert plan().statement == (
        "(1.00, 1e-05)-differentially private for one record added or removed, against the server and up to 0 devices "
        "that collude with it, if the other 25 devices follow the protocol; for this run alone"
    )
    assert plan(epsilon=99.96, unit="device", most_rows=5, colluding=1, losses=2, releases=80).statement == (
        "(100, 1e-05)-differentially private for all records of one device added or removed, against the server and "
        "up to 1 device that colludes with it, if the other 24 devices follow the protocol and no more than 2 of them "
        "are lost; for this run of 80 releases alone"
    )
    assert plan(colluding=24).statement.endswith(
        "if the other device follows the protocol; for this run alone; "
        "a sum over one honest device is protected by its own noise only"
    )


@pytest.mark.parametrize("epsilon", [0.0101004, 0.9994, 1.0049, 12.34, 9.999, 123.4])
def test_a_printed_epsilon_is_never_less_than_the_number(epsilon: float) -> None:
    shown = float(plan(epsilon=epsilon, features=5).statement[1:].split(",")[0])
    assert epsilon * (1 - 1e-5) <= shown <= 1.011 * epsilon


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"epsilon": 0.0}, "privacy.epsilon is 0.0: give a finite number above 0"),
        ({"epsilon": -1.0}, "privacy.epsilon is -1.0: give a finite number above 0"),
        ({"epsilon": float("inf")}, "privacy.epsilon is inf: give a finite number above 0"),
        ({"epsilon": float("nan")}, "privacy.epsilon is nan: give a finite number above 0"),
        ({"delta": 0.0}, "privacy.delta is 0.0: give a number above 0 and below 1"),
        ({"delta": 1.0}, "privacy.delta is 1.0: give a number above 0 and below 1"),
        ({"delta": 1 / 60_000}, "privacy.delta is 1.66667e-05, too large for 60000 records: with 1/60000 or more,"),
        ({"delta": 0.04, "unit": "device", "most_rows": 5}, "privacy.delta is 0.04, too large for 25 devices: with"),
        ({"colluding": 25}, "privacy.colluding 25 and privacy.losses 0 leave none of 25 devices to add noise: tog"),
        ({"colluding": 20, "losses": 5}, "privacy.colluding 20 and privacy.losses 5 leave none of 25 devices to add"),
        ({"colluding": -1}, "privacy.colluding is -1: give a number of devices of at least 0"),
        ({"losses": -2}, "privacy.losses is -2: give a number of devices of at least 0"),
        ({"clip_features": 0.0}, "privacy.clip_features is 0.0: give a finite number above 0"),
        ({"clip_targets": float("inf")}, "privacy.clip_targets is inf: give a finite number above 0"),
        ({"unit": "device"}, "privacy.unit 'device' needs privacy.most_rows: as how many rows"),
        ({"most_rows": 5}, "privacy.most_rows is 5, but privacy.unit is 'record': leave one of them out"),
        ({"unit": "owner"}, "privacy.unit 'owner' is unknown: choose 'record' or 'device'"),
        ({"unit": "device", "most_rows": 0.5}, "privacy.most_rows is 0.5: a device must count as at least 1 row"),
        ({"features": 0}, "privacy for 0 features is impossible: give at least 1"),
        ({"largest_rows": 0}, "privacy for 0 rows of the largest device is impossible: give at least 1"),
        ({"releases": 0}, "privacy for 0 releases is impossible: give at least 1"),
        ({"epsilon": 1e-5, "delta": 1e-12, "devices": 1}, "rounding alone needs more noise than 16777216 steps"),
    ],
)
def test_impossible_requests_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as refusal:
        plan(**changes)
    assert str(refusal.value).startswith(sentence)
