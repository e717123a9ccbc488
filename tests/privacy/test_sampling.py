"""The discrete Gaussian: its law against exact probabilities, the algorithm word by word, and where words come from."""

from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from math import factorial

import numpy as np
import pytest
from benchmarks.noise import bins, chi_square
from scipy.stats import chisquare

from codedfl.cipher import randomness
from codedfl.cipher.seals.pads import Seed, key_stream
from codedfl.errors import CipherError, UsageError
from codedfl.privacy import sampling
from codedfl.privacy.kernels import EXHAUSTED, NO, YES, exponential_event, fill
from codedfl.privacy.sampling import discrete_gaussian

SEED = b"seed of thirty-two bytes, fixed."
LARGEST = 2**64 - 1
LEAST_P = 1e-3


def exact_law(sigma: int, reach: int) -> list[Decimal]:
    """P(-reach), ..., P(reach) with forty digits; what lies outside is too small to matter."""
    with localcontext(prec=40):
        weights = [(-Decimal(x * x) / (2 * sigma * sigma)).exp() for x in range(-reach, reach + 1)]
        return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("sigma", [1, 2, 3, 7, 50])
def test_samples_follow_exact_probabilities(sigma: int) -> None:
    samples, reach = discrete_gaussian(sigma, 400_000, SEED), 12 * sigma
    law = np.array([float(p) for p in exact_law(sigma, reach)])
    found = np.bincount(samples + reach, minlength=law.size)
    common = law * samples.size >= 10
    observed, expected = np.append(found[common], found[~common].sum()), np.append(law[common], law[~common].sum())
    assert chisquare(observed, samples.size * expected / expected.sum()).pvalue > LEAST_P


@pytest.mark.parametrize("sigma", [1, 7, 50])
def test_the_bins_of_the_benchmark_have_their_exact_probabilities(sigma: int) -> None:
    edges, law = bins(sigma, 400_000)
    reach = 12 * sigma
    places = np.searchsorted(edges, np.arange(-reach, reach + 1), side="right")
    exact = np.bincount(places, [float(p) for p in exact_law(sigma, reach)])
    np.testing.assert_allclose(law, exact, rtol=1e-12)


def test_integrals_of_wide_bins_are_their_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    summed = bins(1 << 16, 400_000)[1]
    monkeypatch.setattr("benchmarks.noise.SUMMED", 1)
    np.testing.assert_allclose(bins(1 << 16, 400_000)[1], summed, rtol=1e-8)


@pytest.mark.parametrize("sigma", [1 << 20, (1 << 22) + 1, 1 << 26])
def test_wide_samples_follow_the_law(sigma: int) -> None:
    samples = discrete_gaussian(sigma, 400_000, SEED)
    assert chi_square(samples, sigma) > LEAST_P
    assert chisquare(np.bincount(samples % 64, minlength=64)).pvalue > LEAST_P
    scaled = samples / sigma
    for power, moment in {1: 0.0, 2: 1.0, 3: 0.0, 4: 3.0}.items():
        spread = {1: 1.0, 2: 2.0, 3: 15.0, 4: 96.0}[power] ** 0.5  # standard deviation of the power of a normal number
        assert abs(np.mean(scaled**power) - moment) < 4 * spread / samples.size**0.5


def test_a_wrong_scale_is_noticed() -> None:
    assert chi_square(discrete_gaussian(1000, 400_000, SEED), 1010) < 1e-6


class Algorithm:
    """Karney's algorithm D over the rationals; ``odds`` collects the exponents of the events that happened."""

    def __init__(self, words: Iterator[int]) -> None:
        self.words, self.odds = words, Fraction(0)

    def event(self, numerator: int, denominator: int) -> bool:
        return self.number(denominator) < numerator

    def number(self, below: int) -> int:
        part = LARGEST // below
        return next(word for word in self.words if word < part * below) // part

    def exponential(self, numerator: int, denominator: int) -> bool:
        number = 1
        while self.event(numerator, denominator) and (number == 1 or self.event(1, number)):
            number += 1
        if number % 2:
            self.odds += Fraction(numerator, denominator)
        return number % 2 == 1

    def sample(self, sigma: int) -> int:
        while True:
            self.odds, k = Fraction(0), 0
            while self.exponential(1, 2):
                k += 1
            if not all(self.exponential(1, 2) for _ in range(k * (k - 1))):
                continue
            j, negative = divmod(self.number(2 * sigma), 2)
            if negative and k == j == 0:
                continue
            if not self.exponential(j * j, 2 * sigma * sigma):
                continue
            if all(self.exponential(j, sigma) for _ in range(k)):
                return (-1 if negative else 1) * (k * sigma + j)


def words_of(seed: bytes, sigma: int, count: int) -> list[int]:
    key = Seed(seed).derive(b"codedfl discrete Gaussian 1 " + sigma.to_bytes(8, "big"))
    return np.frombuffer(key_stream(key, 0).update(bytes(8 * count)), "<u8").tolist()


@pytest.mark.parametrize("sigma", [1, 2, 3, 50, (1 << 22) + 1, 1 << 26])
def test_the_sampler_is_the_algorithm_word_by_word(sigma: int) -> None:
    algorithm = Algorithm(iter(words_of(SEED, sigma, 100_000)))
    by_hand = [algorithm.sample(sigma) for _ in range(1000)]
    assert discrete_gaussian(sigma, 1000, SEED).tolist() == by_hand


@pytest.mark.parametrize("sigma", [1, 2, 3, 7])
def test_every_sample_is_accepted_in_proportion_to_the_law(sigma: int) -> None:
    """The events on the way to x have the probability exp(-x^2 / (2 sigma^2)) but for a factor that all x share.

    That factor is the end of the count k, 1 - exp(-1/2), and the choice of j and the sign, 1 / (2 sigma).
    """
    algorithm = Algorithm(iter(words_of(SEED, sigma, 1_000_000)))
    seen = set()
    for _ in range(20_000):
        x = algorithm.sample(sigma)
        seen.add(x)
        assert algorithm.odds == Fraction(x * x, 2 * sigma * sigma)
    assert seen >= set(range(-3 * sigma, 3 * sigma + 1))


@pytest.mark.parametrize("g", [Fraction(0), Fraction(1, 2), Fraction(1, 3), Fraction(24, 25), Fraction(1)], ids=str)
def test_failures_have_odd_numbers_with_probability_of_the_exponential(g: Fraction) -> None:
    fails_at = [g ** (i - 1) / factorial(i - 1) * (1 - g / i) for i in range(1, 40)]
    with localcontext(prec=40):
        odd = sum(fails_at[::2], Fraction(0))
        wanted = (-Decimal(g.numerator) / g.denominator).exp()
        assert abs(Decimal(odd.numerator) / odd.denominator - wanted) < Decimal("1e-35")


@pytest.mark.parametrize(
    ("words", "outcome", "used"),
    [
        ([100], YES, 1),  # the first event fails: number 1 is odd
        ([99, 100], NO, 2),
        ([99, 99, LARGEST // 2, 0], NO, 3),  # the event of one half fails
        ([99, 99, LARGEST // 2 - 1, 100], YES, 4),
        ([99, 99, LARGEST, LARGEST // 2], NO, 4),  # the largest word is no part of two halves
        ([300, 301, LARGEST, 100], YES, 4),  # words from the limit on are skipped
        ([], EXHAUSTED, 0),
        ([99], EXHAUSTED, 1),
        ([99, 99], EXHAUSTED, 2),
    ],
)
def test_thresholds_of_events(words: list[int], outcome: int, used: int) -> None:
    array = np.array(words, np.uint64)
    assert exponential_event(array, 0, np.uint64(100), np.uint64(300)) == (outcome, used)


HALF, SIXTH, EIGHTEENTH = LARGEST // 2, LARGEST // 6, LARGEST // 18
K0, K1 = [0, HALF], [HALF, 0, HALF]
"""Words after which the count k is 0 or 1: an event of exp(-1/2) fails at number 2, or one happens before."""


@pytest.mark.parametrize(
    ("words", "sample"),
    [
        ([*K0, 0, 0], 0),
        ([*K0, SIXTH, *K0, 0, 0], 0),  # zero has no second sign
        ([*K0, 2 * SIXTH, EIGHTEENTH], 1),
        ([*K0, 2 * SIXTH - 1, *K0, 2 * SIXTH, EIGHTEENTH], 1),
        ([2 * HALF, LARGEST, *K0, 2 * SIXTH, EIGHTEENTH], 1),  # words from the limit on are skipped
        ([*K0, 6 * SIXTH, LARGEST, 2 * SIXTH, EIGHTEENTH], 1),
        ([*K0, 6 * SIXTH - 1, 4 * EIGHTEENTH], -2),
        ([*K1, 0, 0, 0], 3),
        ([*K1, SIXTH, 0, 0], -3),
    ],
)
def test_samples_of_a_sigma_of_three_by_hand(words: list[int], sample: int) -> None:
    """Numbers below 6 are j = 0, 1, 2 with either sign; from every beginning of the words no sample follows."""
    assert Algorithm(iter(words)).sample(3) == sample
    array, found = np.array(words, np.uint64), np.full(1, 99)
    for count in range(len(words)):
        assert fill(array[:count], np.uint64(3), found)[0] == 0
    assert fill(array, np.uint64(3), found) == (1, len(words))
    assert found[0] == sample


def test_a_sample_that_lacks_words_is_not_begun() -> None:
    words = np.array(words_of(SEED, 50, 2000), np.uint64)
    whole = np.zeros(20, np.int64)
    filled, used = fill(words, np.uint64(50), whole)
    assert filled == 20
    part = np.zeros(20, np.int64)
    before, begun = fill(words[: used - 1], np.uint64(50), part)
    assert before == 19
    assert begun < used
    assert fill(words[begun:], np.uint64(50), part[19:])[0] == 1
    assert part.tolist() == whole.tolist()


@pytest.mark.parametrize("size", [8, 40, 1 << 12])
def test_samples_do_not_depend_on_the_size_of_pieces(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = discrete_gaussian(50, 1000, SEED)
    monkeypatch.setattr(sampling, "PIECE_BYTES", size)
    np.testing.assert_array_equal(discrete_gaussian(50, 1000, SEED), wanted)


def test_equal_seeds_agree_and_others_differ() -> None:
    one = discrete_gaussian(1 << 20, 100, SEED)
    np.testing.assert_array_equal(discrete_gaussian(1 << 20, 100, SEED), one)
    assert np.mean(discrete_gaussian(1 << 20, 100, SEED[::-1]) == one) < 0.05
    # noise of another scale does not follow from this one
    assert abs(np.corrcoef(discrete_gaussian(1 << 21, 100, SEED), one)[0, 1]) < 0.4


def test_without_a_seed_the_operating_system_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def token_bytes(count: int) -> bytes:
        asked.append(count)
        return SEED

    monkeypatch.setattr(randomness.secrets, "token_bytes", token_bytes)
    np.testing.assert_array_equal(discrete_gaussian(9, 50), discrete_gaussian(9, 50, SEED))
    assert asked == [32]


def test_no_numbers_are_drawn_where_none_are_asked_for() -> None:
    assert discrete_gaussian(9, 0).shape == (0,)


@pytest.mark.parametrize("sigma", [0, -1, (1 << 26) + 1])
def test_impossible_scales_are_refused(sigma: int) -> None:
    with pytest.raises(UsageError, match=f"^a noise of {sigma} steps cannot be drawn: choose"):
        discrete_gaussian(sigma, 3)


def test_impossible_counts_and_seeds_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^-1 numbers cannot be drawn: ask for 0 or more$"):
        discrete_gaussian(3, -1)
    with pytest.raises(CipherError, match="31 bytes"):
        discrete_gaussian(3, 1, SEED[1:])
