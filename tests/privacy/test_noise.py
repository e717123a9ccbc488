"""Noise of one device: its law at full size, the grid, the mirror image, fresh draws."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.noise import chi_square, full_size, places

from codedfl.cipher import randomness
from codedfl.cipher.seals import Seed
from codedfl.errors import DataError, UsageError
from codedfl.privacy.noise import noisy, spare_noise, spare_seed
from codedfl.privacy.release import Release
from codedfl.privacy.sampling import discrete_gaussian

SEED = b"seed of thirty-two bytes, fixed."


def small(features: int = 4, **changes: int) -> Release:
    return Release.plan(
        epsilon=1.0,
        delta=1e-5,
        clip_features=1.5,
        clip_targets=3.0,
        features=features,
        outputs=2,
        devices=3,
        largest_rows=20,
        records=60,
        **changes,
    )


def sums(release: Release) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X, Y = rng.uniform(-1, 1, (20, release.features)), rng.uniform(-1, 1, (20, release.outputs))
    return X.T @ X, X.T @ Y


def test_noise_of_a_full_size_release_follows_the_discrete_gaussian() -> None:
    release = full_size()
    gram, moments = noisy(np.zeros((2000, 2000)), np.zeros((2000, 10)), release, SEED)
    np.testing.assert_array_equal(gram, gram.T)
    for samples, sigma in places(gram, moments, release).values():
        np.testing.assert_array_equal(samples, np.rint(samples))
        assert chi_square(samples, sigma) > 1e-3
    assert abs(gram).max() < release.gram_reach()
    assert abs(moments).max() < release.moments_reach()
    assert gram[np.triu_indices(2000, 1)].std() * 5 == pytest.approx(release.gram_std, rel=2e-3)


def test_noise_is_added_to_rounded_sums() -> None:
    release = small()
    gram, moments = sums(release)
    noise = noisy(np.zeros_like(gram), np.zeros_like(moments), release, SEED)
    found = noisy(gram, moments, release, SEED)
    np.testing.assert_array_equal(found[0] - noise[0], np.rint(gram * 2.0**release.gram_bits) / 2.0**release.gram_bits)
    steps = 2.0**release.moments_bits
    np.testing.assert_array_equal(found[1] - noise[1], np.rint(moments * steps) / steps)


def test_only_the_upper_triangle_is_released() -> None:
    release = small()
    gram, moments = sums(release)
    lower = gram + np.tril(np.full_like(gram, 1e-3), -1)  # rounding of a product may differ below the diagonal
    np.testing.assert_array_equal(noisy(lower, moments, release, SEED)[0], noisy(gram, moments, release, SEED)[0])


def test_every_release_and_every_seed_draws_fresh_noise() -> None:
    release = small(releases=2)
    gram, moments = sums(release)
    one = noisy(gram, moments, release, SEED)
    for other in (noisy(gram, moments, release, SEED, number=1), noisy(gram, moments, release, SEED[::-1])):
        assert not np.any(other[0] == one[0])
        assert not np.any(other[1] == one[1])
    again = noisy(gram, moments, release, SEED)
    np.testing.assert_array_equal(again[0], one[0])
    np.testing.assert_array_equal(again[1], one[1])


def test_each_part_is_drawn_from_a_seed_of_its_own() -> None:
    release = small(3, releases=2)

    def drawn(place: str, steps: int, count: int, bits: int) -> list[float]:
        key = Seed(SEED).derive(f"codedfl noise 1 {place} 1".encode())
        return [step / 2**bits for step in discrete_gaussian(steps, count, key).tolist()]

    gram, moments = noisy(np.zeros((3, 3)), np.zeros((3, 2)), release, SEED, number=1)
    above = drawn("off-diagonal", release.off_diagonal_steps, 3, release.gram_bits)
    assert [gram[0, 1], gram[0, 2], gram[1, 2]] == above
    assert [gram[1, 0], gram[2, 0], gram[2, 1]] == above
    assert np.diag(gram).tolist() == drawn("diagonal", release.diagonal_steps, 3, release.gram_bits)
    assert moments.ravel().tolist() == drawn("right-hand side", release.moments_steps, 6, release.moments_bits)


def test_spare_noise_can_be_taken_off() -> None:
    """What is left has the device's own noise alone, in every release; the spare seed tells no other noise."""
    release = small(losses=1, releases=2)
    alone, spare = replace(release, spare_steps=(0, 0, 0)), spare_seed(SEED)
    for number in (0, 1):
        found, off = noisy(*sums(release), release, SEED, number), spare_noise(release, spare, number)
        own = noisy(*sums(release), alone, SEED, number)
        for whole, part, left in zip(found, off, own, strict=True):
            np.testing.assert_array_equal(whole - part, left)
            assert np.all(part != 0)
        np.testing.assert_array_equal(off[0], off[0].T)
    assert spare == Seed(SEED).derive(b"codedfl spare noise 1")


def test_without_a_seed_the_operating_system_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    release = small()
    wanted = noisy(*sums(release), release, SEED)
    monkeypatch.setattr(randomness.secrets, "token_bytes", lambda count: SEED[:count])
    found = noisy(*sums(release), release)
    np.testing.assert_array_equal(found[0], wanted[0])
    np.testing.assert_array_equal(found[1], wanted[1])


def test_parts_of_the_noise_do_not_depend_on_each_other() -> None:
    gram, moments = noisy(np.zeros((600, 600)), np.zeros((600, 2)), small(600), SEED)
    diagonal, above = np.diag(gram), gram[np.triu_indices(600, 1)][:600]
    for one, other in ((diagonal, above), (diagonal, moments[:, 0]), (above, moments.ravel()[:600])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / 600**0.5


def test_one_feature_has_no_entry_off_the_diagonal() -> None:
    release = small(1)
    gram, moments = noisy(*sums(release), release, SEED)
    assert gram.shape == (1, 1)
    assert moments.shape == (1, 2)


@pytest.mark.parametrize("number", [-1, 2])
def test_no_more_is_released_than_planned(number: int) -> None:
    release = small(releases=2)
    with pytest.raises(UsageError, match=f"^release {number + 1} is not covered: the privacy budget"):
        noisy(*sums(release), release, SEED, number)


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_at_the_clips_are_rounded(sign: int) -> None:
    """A billionth more than 20 * 1.5^2 and 20 * 1.5 * 3 may come from the rounding of sums."""
    release = small()
    gram, moments = (np.full(shape, sign * bound * (1 + 1e-9)) for shape, bound in (((4, 4), 45.0), ((4, 2), 90.0)))
    noise, found = noisy(0 * gram, 0 * moments, release, SEED), noisy(gram, moments, release, SEED)
    assert np.all(abs(found[0] - noise[0] - gram) <= 0.5 * 2.0**-release.gram_bits)
    assert np.all(abs(found[1] - noise[1] - moments) <= 0.5 * 2.0**-release.moments_bits)


@pytest.mark.parametrize("value", [46.0, -46.0, np.nan, np.inf])
def test_sums_of_unclipped_rows_are_refused(value: float) -> None:
    """Twenty rows of norm 1.5 make no entry above 45, with targets of norm 3 none above 90."""
    release = small()
    gram, moments = sums(release)
    gram[1, 2] = value
    with pytest.raises(DataError, match="larger than 45, which rows within"):
        noisy(gram, moments, release)
    with pytest.raises(DataError, match="larger than 90, which rows within"):
        noisy(sums(release)[0], moments + 2.5 * value, release)
