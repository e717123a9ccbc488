"""Accounting: equal to the package dp-accounting, by closed form and by composed distributions, and its laws."""

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf, ncdf

from codedfl.errors import UsageError
from codedfl.privacy.accounting import composed, delta_of, epsilon_of, mu_of

EPSILONS = [0.01, 0.1, 0.5, 1.0, 3.0, 8.0, 50.0, 1000.0]
DELTAS = [1e-12, 1e-8, 1e-5, 1e-3, 0.1, 0.4]
mus = st.floats(1e-3, 40)
epsilons = st.floats(0.01, 1000)
deltas = st.floats(-12, -0.4).map(lambda power: 10**power)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_closed_form_agrees_with_dp_accounting(epsilon: float, delta: float) -> None:
    mu = mu_of(epsilon, delta)
    assert dp_accounting.get_sigma_gaussian(epsilon, delta) == pytest.approx(1 / mu, rel=1e-6)
    assert dp_accounting.get_epsilon_gaussian(1 / mu, delta) == pytest.approx(epsilon, rel=1e-6)
    assert epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(
    "releases", [[0.27], [0.1, 0.2, 0.3], [0.05] * 80, [1.0, 0.5], [2.0, 3.0, 0.1]], ids=lambda mus: f"{sum(mus):.1f}"
)
def test_composition_agrees_with_privacy_loss_distributions(releases: list[float]) -> None:
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    for mu in releases:
        accountant.compose(dp_accounting.GaussianDpEvent(noise_multiplier=1 / mu))
    for delta in (1e-10, 1e-5, 1e-2):  # in one test: to compose the distributions takes a second
        assert epsilon_of(composed(releases), delta) == pytest.approx(accountant.get_epsilon(delta), rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 1.0, 30.0, 1000.0])
@pytest.mark.parametrize("mu", [0.002, 0.27, 2.0, 38.0])
def test_delta_is_the_formula_with_fifty_digits(mu: float, epsilon: float) -> None:
    with mp.workdps(50):
        m, e = mpf(mu), mpf(epsilon)
        exact = float(ncdf(m / 2 - e / m) - mp.exp(e) * ncdf(-m / 2 - e / m))
    assert delta_of(mu, epsilon) == pytest.approx(exact, rel=1e-9, abs=1e-300)


@given(epsilon=epsilons, delta=deltas)
def test_each_function_inverts_the_others(epsilon: float, delta: float) -> None:
    mu = mu_of(epsilon, delta)
    assert delta_of(mu, epsilon) == pytest.approx(delta, rel=1e-9)
    assert epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-9)


@given(mu=mus, epsilon=epsilons, delta=deltas, factor=st.floats(1.01, 10))
def test_more_noise_and_larger_budgets_are_monotone(mu: float, epsilon: float, delta: float, factor: float) -> None:
    assert delta_of(mu, epsilon) <= delta_of(factor * mu, epsilon)
    assert delta_of(mu, factor * epsilon) <= delta_of(mu, epsilon)
    assert epsilon_of(mu, delta) <= epsilon_of(factor * mu, delta)
    assert epsilon_of(mu, min(factor * delta, 0.9)) <= epsilon_of(mu, delta)
    assert mu_of(epsilon, delta) < mu_of(factor * epsilon, delta)
    assert mu_of(epsilon, delta) < mu_of(epsilon, min(factor * delta, 0.9))


@given(mu=mus)
def test_one_release_is_itself_and_none_is_nothing(mu: float) -> None:
    assert composed([mu]) == mu
    assert composed([]) == 0
    assert composed([mu, 0.0]) == mu
    assert composed([3 * mu, 4 * mu]) == pytest.approx(5 * mu, rel=1e-14)


@given(one=mus, other=mus, delta=deltas, part=st.floats(0.1, 0.9))
def test_releases_together_cost_at_most_the_sum(one: float, other: float, delta: float, part: float) -> None:
    apart = epsilon_of(one, part * delta) + epsilon_of(other, (1 - part) * delta)
    assert epsilon_of(composed([one, other]), delta) <= apart * (1 + 1e-9)


def test_values_at_the_borders() -> None:
    assert delta_of(0.0, 1.0) == 0
    assert epsilon_of(0.0, 1e-5) == 0
    assert epsilon_of(1e-6, 1e-5) == 0  # delta alone covers it
    assert delta_of(mu_of(0.0, 0.3), 0.0) == pytest.approx(0.3, rel=1e-12)
    assert delta_of(1e-3, 1000.0) == 0
    assert delta_of(1e6, 1.0) == 1


@pytest.mark.parametrize("epsilon", [5e-324, 1e-310])
def test_the_least_epsilon_is_nearly_none(epsilon: float) -> None:
    assert mu_of(epsilon, 1e-5) == pytest.approx(mu_of(0.0, 1e-5), rel=1e-12)


def test_the_least_delta_is_accounted_for() -> None:
    assert epsilon_of(mu_of(1.0, 1e-300), 1e-300) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: delta_of(-1.0, 1.0), "a ratio of sensitivity to noise of -1.0 is impossible"),
        (lambda: composed([1.0, float("nan")]), "a ratio of sensitivity to noise of nan is impossible"),
        (lambda: delta_of(float("inf"), 1.0), "a ratio of sensitivity to noise of inf is impossible"),
        (lambda: delta_of(1.0, -0.5), "an epsilon of -0.5 promises nothing"),
        (lambda: mu_of(float("inf"), 1e-5), "an epsilon of inf promises nothing"),
        (lambda: mu_of(1.0, 0.0), "a delta of 0.0 cannot be accounted for"),
        (lambda: epsilon_of(1.0, 1.0), "a delta of 1.0 cannot be accounted for"),
        (lambda: epsilon_of(1.0, 5e-324), "a delta of 5e-324 cannot be accounted for"),
        (lambda: mu_of(1.0, 9e-301), "a delta of 9e-301 cannot be accounted for"),
    ],
)
def test_impossible_numbers_are_refused(call, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=f"^{sentence}: give"):
        call()
