"""A deadline: exactly those who reply in time count, and a deadline that is not given follows from the fleet."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl import schemes
from codedfl.errors import ScenarioError
from codedfl.network import DelayModel
from codedfl.scenario import Scenario
from codedfl.schemes import Work
from codedfl.schemes.plain.deadline import Deadline, deadline_for
from codedfl.training.timing import epoch_ends
from tiny import gamma, is_one_sentence, plain_gradient, problem, scenario, spied, trained

RATES = np.repeat([1e4, 1e3, 1e2], [3, 3, 2])
FLEET = [{"count": 3, "mac_rate": 1e4}, {"count": 3, "mac_rate": 1e3}, {"count": 2, "mac_rate": 1e2}]
SIZES = [4, 5, 6, 7, 8, 9, 10, 11]
BITS = 6 * 3 * 64 * 1.1
"""Six features and three outputs in float64, with the packet overhead."""


def wanted(options: dict[str, Any], changes: dict[str, Any] | None = None) -> Scenario:
    settings = {"scheme": "deadline", "schemes.deadline": options, "fleet.devices": FLEET}
    return scenario({**settings, **(changes or {})})


def reply_times(chosen: Scenario, epoch: int) -> np.ndarray:
    """Added up by hand: every shard has at least d/2 = 3 samples, so all go through the Gram matrix."""
    delays = DelayModel.create(chosen.fleet, chosen.links)
    luck = delays.chance(0, epoch, chosen.timing.draw, 1)
    seconds = luck.up_tries[0] * BITS / 5e6
    if epoch > 1:
        work = 6 * 6 * 3 / RATES
        seconds = seconds + luck.down_tries[0] * BITS / 10e6 + work * (1 + luck.setup[0] / 2)
    return np.asarray(seconds)


@pytest.mark.parametrize("seconds", [1e-3, 0.02, 0.2, 1.5])
@pytest.mark.parametrize("draw", [0, 7])
def test_whoever_is_in_time_counts_and_nobody_else(seconds: float, draw: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """If nobody is, the first who comes counts; if all are, nobody waits for the deadline."""
    made = problem(SIZES)
    chosen = wanted({"seconds": seconds}, {"timing.draw": draw, "training.epochs": 12})
    seen = spied(monkeypatch, chosen)
    history = trained(made, chosen).history
    now = 0.0
    for epoch, end in zip(seen, history.columns["time"], strict=True):
        times = reply_times(chosen, epoch.epoch)
        punctual = {int(device) for device in np.flatnonzero(times <= seconds)}
        assert set(epoch.replies) == (punctual or {int(np.argmin(times))})
        now += min(times.max(), max(seconds, times.min()))
        assert abs(end - now) <= gamma(20 * epoch.epoch, float) * now
        expected, bound = plain_gradient([made.shards[device] for device in sorted(epoch.replies)], epoch.model)
        assert np.all(abs(epoch.gradient - expected) <= bound)
    assert history.columns["replies"] == [len(epoch.replies) for epoch in seen]


def test_all_the_cases_above_happen() -> None:
    """No reply in time, some, and all: the four deadlines lie where the by-hand times say."""
    times = np.array([reply_times(wanted({}), epoch) for epoch in range(2, 13)])
    assert times.min() > 1e-3
    assert np.all((times <= 0.2).any(axis=1) & (times > 0.2).any(axis=1))
    assert np.any(times.max(axis=1) <= 1.5)


def test_a_deadline_that_nobody_misses_is_conventional_to_the_last_bit() -> None:
    made = problem(SIZES)
    patient, conventional = (
        trained(made, wanted({"seconds": 1e9}, {"scheme": name})) for name in ("deadline", "conventional")
    )
    assert np.array_equal(patient.model, conventional.model)
    assert patient.history.columns["time"] == conventional.history.columns["time"]


def chance_in_time(delays: DelayModel, costs: Any, device: int, seconds: float) -> float:
    """P(reply in time) of a device as a series over the tries of both transmissions; the setup is exponential.

    P(j tries down and k up) = (1 - p)^2 p^(j + k - 2); forty tries leave out less than 1e-20 at p = 0.1 and 0.3.
    """
    loss = float(delays.loss[device])
    down = costs.down_bits[device] * (1 + delays.overhead) / delays.down_rate[device]
    up = costs.up_bits[device] * (1 + delays.overhead) / delays.up_rate[device]
    work = costs.macs[device] / delays.mac_rate[device]
    mean = delays.setup_ratio[device] * work + delays.setup_seconds[device]
    total = 0.0
    for j in range(1, 41):
        for k in range(1, 41):
            left = seconds - work - j * down - k * up
            if left >= 0:
                total += (1 - loss) ** 2 * loss ** (j + k - 2) * (1 - math.exp(-left / mean))
    return total


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("loss", [0.1, 0.3])
def test_the_share_of_replies_that_is_there_at_the_deadline(share: float, loss: float) -> None:
    """Against the distribution itself: 200 draws of 8 devices miss the mean by more than e with probability below
    2 exp(-2 * 1600 e^2) (Hoeffding), which is 1e-9 at e = 0.082; the deadline is one of the drawn times.
    """
    chosen = wanted({"share": share}, {"links.loss": loss, "training.epochs": 2})
    made = problem(SIZES)
    scheme = schemes.create(chosen, made)
    assert isinstance(scheme, Deadline)
    costs = trained(made, chosen).history.rounds[-1]
    delays = DelayModel.create(chosen.fleet, chosen.links)
    found = np.mean([chance_in_time(delays, costs, device, scheme.seconds) for device in range(8)])
    assert abs(found - share) <= math.sqrt(math.log(2e9) / 3200) + 1 / 1600


def test_a_chosen_deadline_grows_with_the_share_and_not_with_the_seed() -> None:
    made = problem(SIZES)
    seconds = [schemes.create(wanted({"share": share}), made).server().ask(2, np.zeros(made.shape)).deadline
               for share in (0.1, 0.5, 0.9)]  # fmt: skip
    assert seconds == sorted(set(seconds))
    other = schemes.create(wanted({"share": 0.5}, {"timing.seed": 5, "timing.draw": 3}), made)
    assert other.server().ask(1, np.zeros(made.shape)).deadline == seconds[1]


def test_the_choice_counts_what_replies_really_cost() -> None:
    """Uneven shards, one of them too small for a Gram matrix: all others alike, the same deadline for the same costs.

    With links that take no time, no setup and one device, the deadline is that device's time of computing.
    """
    for samples, macs in ((2, 2 * 2 * 6 * 3), (3, 6 * 6 * 3), (50, 6 * 6 * 3)):
        fleet = [{"count": 1, "mac_rate": 10.0, "setup_ratio": 0.0, "down_rate": 1e300, "up_rate": 1e300, "loss": 0.0}]
        made = problem([samples])
        chosen = wanted({}, {"fleet.devices": fleet, "training.epochs": 2})
        public = schemes.create(chosen, made).public
        assert public.delays is not None
        assert trained(made, chosen).history.rounds[-1].macs.tolist() == [macs]
        assert deadline_for(public, public.delays, 0.5) == pytest.approx(macs / 10, rel=gamma(4, float))


def test_nothing_is_known_of_the_fleet() -> None:
    scheme = schemes.create(wanted({}), problem(SIZES))
    strangers = dataclasses.replace(scheme.public, delays=None)
    with pytest.raises(ScenarioError, match=r"schemes\.deadline\.seconds") as error:
        Deadline(strangers, scheme.options).check()
    assert is_one_sentence(str(error.value))
    given_ = wanted({"seconds": 2.0}).options()
    assert Deadline(strangers, given_).seconds == 2.0


@given(replied=st.sets(st.integers(0, 7), min_size=1), seed=st.integers(0, 1000))
@settings(max_examples=25)
def test_only_the_sum_of_the_replies_counts(replied: set[int], seed: int) -> None:
    """combine({i: r_i}) = combine({first: sum of r_i, others: 0}), up to the order of eight additions."""
    scheme = schemes.create(wanted({}), problem(SIZES))
    assert scheme.adds_up
    rng = np.random.default_rng(seed)
    each = {device: rng.standard_normal((6, 3)) for device in sorted(replied)}
    first = min(replied)
    total = {device: np.sum(list(each.values()), axis=0) if device == first else np.zeros((6, 3)) for device in each}
    one, other = (
        scheme.server().combine(2, {device: {"gradient": array} for device, array in replies.items()}, Work())
        for replies in (each, total)
    )
    size = sum(abs(array) for array in each.values()) / sum(SIZES[device] for device in replied)
    assert np.all(abs(one - other) <= 2 * gamma(9, float) * size)


def test_draws_of_a_training_are_timed_with_the_deadline() -> None:
    """In every draw an epoch ends when the last reply or the deadline is there, and never before the first."""
    chosen = wanted({"seconds": 0.2}, {"training.epochs": 10})
    history = trained(problem(SIZES), chosen).history
    delays = DelayModel.create(chosen.fleet, chosen.links)
    (ends,) = epoch_ends([history], delays, epochs=10, seed=0, draws=20)
    for draw in range(20):
        times = [reply_times(wanted({}, {"timing.draw": draw}), epoch) for epoch in range(1, 11)]
        expected = np.cumsum([min(each.max(), max(0.2, each.min())) for each in times])
        assert np.all(abs(ends[draw] - expected) <= gamma(200, float) * expected)


def test_one_reply_is_enough_to_go_on() -> None:
    scheme = schemes.create(wanted({"seconds": 2.0}), problem(SIZES))
    assert (scheme.survives_losses, scheme.chosen_by_delays) == (len(SIZES) - 1, 2.0)
