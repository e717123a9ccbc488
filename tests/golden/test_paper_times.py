"""Times at the paper's size against closed formulas and an integral that draws no random number."""

import math

import numpy as np
import pytest

from codedfl.network import Clock, DelayModel, Draws, RoundCosts
from codedfl.scenario import Scenario, load
from codedfl.schemes import SCHEMES, Public, Work, message_bits
from codedfl.task import Shard

SAMPLES, FEATURES, OUTPUTS, DEVICES = 60_000 // 25, 2000, 10, 25


def one_round(paper: Scenario, name: str, *, offline: bool = False) -> RoundCosts:
    """What an epoch costs, from the arrays that one device of the paper's size is sent, multiplies and sends."""
    public = Public((SAMPLES,) * DEVICES, FEATURES, OUTPUTS, np.dtype(paper.precision))
    scheme = SCHEMES[name](public, paper.options(name))
    shard = Shard(np.zeros((SAMPLES, FEATURES), public.dtype), np.zeros((SAMPLES, OUTPUTS), public.dtype))
    request = scheme.server().ask(2, np.zeros((FEATURES, OUTPUTS))).requests[0]
    work = Work()
    reply = scheme.device(0, shard).reply(2, request, work)
    everyone = np.arange(DEVICES)
    down, macs = (0, 0) if offline else (message_bits(request), work.macs)
    each = (np.full(DEVICES, value) for value in (down, macs, message_bits(reply)))
    return RoundCosts(everyone, *each, quorum=DEVICES, server_macs=0)


def exact_mean(rates: list[float], macs: float, bits: float) -> float:
    """E[max over devices] = integral of 1 - prod F_i(t), where F_i mixes over the tries a and b of both ways.

    F_i(t) = sum_ab (1-p)^2 p^(a+b-2) (1 - exp(-(t - rho/tau - a down - b up) / (rho / 2 tau)))^+ with the paper's
    p = 0.1, 10% overhead, 10 and 5 Mbit/s. More than 12 tries have probability 1e-12. The trapezoidal rule on a
    function of bounded variation 1 errs by at most one step of 10 ms, far less where it is smooth.
    """
    t = np.arange(0, 300, 0.01)
    below = np.ones_like(t)
    for tau in sorted(set(rates)):
        work, mean_setup = macs / tau, macs / (2 * tau)
        own = np.zeros_like(t)
        for a in range(1, 13):
            for b in range(1, 13):
                start = work + a * bits * 1.1 / 10e6 + b * bits * 1.1 / 5e6
                chance = 0.9**2 * 0.1 ** (a + b - 2)
                own += chance * -np.expm1(-np.clip(t - start, 0, None) / mean_setup)
        below *= own ** rates.count(tau)
    return float(np.trapezoid(1 - below, t))


RATES = [25e6] * 10 + [5e6] * 5 + [2.5e6] * 5 + [1.25e6] * 5
BITS = 2000 * 10 * 32


@pytest.fixture(scope="module")
def paper() -> Scenario:
    return load("paper")


def drawn_seconds(paper: Scenario, costs: RoundCosts, draws: int = 4000) -> np.ndarray:
    clock = Clock(Draws(DelayModel.create(paper.fleet, paper.links), seed=0, count=draws))
    clock.ask(2, 0, costs)
    return clock.now


@pytest.mark.parametrize(
    ("name", "macs"),
    [
        ("minibatch", 2 * 480 * 2000 * 10),  # a fifth of 2400 samples, twice through the features
        ("conventional", 2000 * 2000 * 10),  # the Gram matrix, cheaper than 2 * 2400 * 2000 * 10
    ],
)
def test_costs_of_the_papers_size_come_from_the_shapes(paper: Scenario, name: str, macs: int) -> None:
    costs = one_round(paper, name)
    assert set(costs.macs.tolist()) == {macs}
    assert set(costs.down_bits.tolist()) == {BITS}
    assert set(costs.up_bits.tolist()) == {BITS}


@pytest.mark.parametrize(("name", "macs"), [("minibatch", 1.92e7), ("conventional", 4e7)])
def test_the_mean_epoch_is_that_of_the_integral(paper: Scenario, name: str, macs: float) -> None:
    """The mean of n draws is within five standard errors of the expectation."""
    seconds = drawn_seconds(paper, one_round(paper, name))
    assert abs(seconds.mean() - exact_mean(RATES, macs, BITS)) < 5 * seconds.std() / math.sqrt(len(seconds)) + 0.01


def test_a_minibatch_epoch_takes_33_seconds(paper: Scenario) -> None:
    """Five devices of 1.25e6 MAC/s: 15.36 s of work, and the longest of five exponentials of mean 7.68 s, which is
    7.68 * H_5 = 17.54 s on average. Everybody is awaited, and every way takes at least one try (0.0704 and 0.1408 s):
    a bound from below. From above: the slowest of both ways is added to the slowest of computing; of 25 geometric
    numbers of tries the largest is at most 1 + sum over k of min(1, 25 * 0.1^k) = 1 + 1 + 0.25 + 0.025 + ... on
    average, and the faster devices lengthen the longest computing by at most their mean excess over 15.36 s.
    """
    seconds = drawn_seconds(paper, one_round(paper, "minibatch"))
    harmonic = sum(1 / k for k in range(1, 6))
    lower = 15.36 + 7.68 * harmonic + 0.0704 + 0.1408
    most_tries = 1 + 1 + 0.25 / (1 - 0.1)
    faster = [(5, 7.68), (5, 3.84), (10, 0.768)]  # how many, and their work in seconds; the setup is half of it
    excess = sum(n * work / 2 * math.exp(-(15.36 - work) / (work / 2)) for n, work in faster)
    upper = 15.36 + 7.68 * harmonic + (0.0704 + 0.1408) * most_tries + excess
    exact = exact_mean(RATES, 1.92e7, BITS)
    assert lower < exact < upper
    assert 32 < exact < 34
    assert 32 < seconds.mean() < 34


def test_the_offline_first_epoch_lasts_as_long_as_the_uploads(paper: Scenario) -> None:
    """The largest of 25 geometric numbers of tries of 0.1408 s: E = sum over k >= 0 of 1 - (1 - 0.1^k)^25."""
    seconds = drawn_seconds(paper, one_round(paper, "minibatch", offline=True))
    expected = 0.1408 * sum(1 - (1 - 0.1**k) ** 25 for k in range(40))
    assert abs(seconds.mean() - expected) < 5 * seconds.std() / math.sqrt(len(seconds))
