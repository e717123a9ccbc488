"""A channel that all direct parcels share, by hand: one parcel at a time in the whole network, in the order given."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.network import DelayModel, Draws, TransferCosts
from codedfl.network.clock import StageTimes
from codedfl.scenario import Fleet, Links
from tiny import gamma

# Powers of two keep every number exact: a bit takes 1.5/16 s between devices, so a parcel of 32 bits takes 3 s.
LINKS = {"down_rate": 64.0, "up_rate": 32.0, "d2d_rate": 16.0, "overhead": 0.5, "loss": 0.0}
FLEET = Fleet(devices=[{"count": 4, "mac_rate": 8.0, "setup_ratio": 0.0}])


def model(channel: str = "shared", **changes: float) -> DelayModel:
    return DelayModel.create(FLEET, Links(**(LINKS | changes), d2d_channel=channel))


def parcel(sender: int, recipient: int, *, relayed: bool = False, **costs: int) -> TransferCosts:
    plain = {"grant_bits": 0, "export_macs": 0, "parcel_bits": 32, "absorb_macs": 0}
    return TransferCosts(sender, recipient, **(plain | costs), relayed=relayed)


def ways(times: StageTimes) -> list[tuple[float, float]]:
    return list(zip(times.begin[0].tolist(), times.end[0].tolist(), strict=True))


def staged(transfers: list[TransferCosts], delays: DelayModel | None = None) -> list[tuple[float, float]]:
    return ways(Draws(delays or model(), seed=0).stage(0, transfers))


def handed_over(transfers: list[TransferCosts], *, parallel: bool) -> list[tuple[float, float]]:
    return ways(Draws(model(), seed=0).handovers(2, transfers, parallel=parallel))


def test_different_pairs_send_one_after_the_other() -> None:
    assert staged([parcel(0, 1), parcel(2, 3)]) == [(0.0, 3.0), (3.0, 6.0)]
    assert staged([parcel(0, 1), parcel(2, 3)], model("parallel")) == [(0.0, 3.0), (0.0, 3.0)]


@pytest.mark.parametrize("parallel", [False, True])
def test_hand_overs_send_one_after_the_other(parallel: bool) -> None:
    """Whether or not recipients could take several at once."""
    assert handed_over([parcel(0, 2), parcel(1, 2), parcel(3, 1)], parallel=parallel) == [(0, 3), (3, 6), (6, 9)]


def test_the_channel_waits_for_the_next_in_order() -> None:
    """Device 0 prepares until 16/8 = 2 s; device 2, which is ready, sends after it."""
    assert staged([parcel(0, 1, export_macs=16), parcel(2, 3)]) == [(2.0, 5.0), (5.0, 8.0)]


def test_uploads_and_relayed_parcels_do_not_use_the_channel() -> None:
    """32 * 1.5/32 = 1.5 s up, 0.75 s down; 1 -> 2 waits for the channel, the way down to 1 for its recipient."""
    transfers = [parcel(0, 1), parcel(1, -1), parcel(2, 0, relayed=True), parcel(1, 2), parcel(3, 1, relayed=True)]
    assert staged(transfers) == [(0.0, 3.0), (0.0, 1.5), (0.0, 2.25), (3.0, 6.0), (0.0, 3.75)]
    only = [parcel(0, 1, relayed=True), parcel(2, 3, relayed=True), parcel(1, -1)]
    assert staged(only) == staged(only, model("parallel"))


def test_a_direct_parcel_waits_for_a_recipient_that_takes_a_relayed_one() -> None:
    """Down till 2.25 s: the channel is free, the recipient is not."""
    assert staged([parcel(0, 1, relayed=True), parcel(2, 1)]) == [(0.0, 2.25), (2.25, 5.25)]


moves = st.lists(
    st.tuples(st.integers(0, 3), st.integers(-1, 3), st.integers(1, 64), st.booleans()).filter(
        lambda move: move[0] != move[1]
    ),
    min_size=1,
    max_size=10,
)


@given(moves, st.integers(0, 5))
def test_no_two_direct_parcels_at_once(listed: list[tuple[int, int, int, bool]], seed: int) -> None:
    """In the order given; nothing ends sooner than on parallel links, and no tries differ."""
    transfers = [
        parcel(a, b, parcel_bits=bits, export_macs=bits, relayed=relayed and b >= 0) for a, b, bits, relayed in listed
    ]
    shared, parallel = (
        Draws(model(channel, loss=0.3, d2d_loss=0.5), seed=seed, count=3).stage(0, transfers)
        for channel in ("shared", "parallel")
    )
    direct = [n for n, costs in enumerate(transfers) if not (costs.relayed or costs.uploaded)]
    for one, two in itertools.pairwise(direct):
        assert np.all(shared.end[:, one] <= shared.begin[:, two])
    assert np.all(shared.end >= parallel.end)
    for number in direct:
        lasts = shared.end[:, number] - shared.begin[:, number]
        assert np.allclose(lasts, parallel.end[:, number] - parallel.begin[:, number], rtol=1e-12)


handovers = st.lists(st.tuples(st.integers(0, 1), st.integers(2, 3)), unique_by=lambda move: move[0])


@given(st.lists(handovers, min_size=3, max_size=3), st.booleans(), st.integers(0, 9))
def test_draws_with_other_hand_overs_are_laid_out_as_if_alone(
    rows: list[list[tuple[int, int]]], parallel: bool, seed: int
) -> None:
    """To the last bit: a draw that hands over less leaves the channel free."""
    delays = model(loss=0.5)
    costs = [[parcel(a, b, export_macs=5, absorb_macs=3) for a, b in row] for row in rows]
    together = Draws(delays, seed=seed, count=3).handovers(2, *costs, parallel=parallel)
    for draw, transfers in enumerate(costs):
        alone = Draws(delays, seed=seed, first=draw).handovers(2, transfers, parallel=parallel)
        assert together.seconds[draw] == alone.seconds[0]
        assert together.steps(transfers, draw) == alone.steps(transfers)


def test_a_shared_channel_is_as_long_as_the_sum_of_its_parcels() -> None:
    """Nothing to prepare or absorb: every draw lasts as long as all its tries together."""
    transfers = [parcel(a, b, parcel_bits=8 * (a + b)) for a, b in itertools.permutations(range(4), 2)]
    delays = model(loss=0.2, d2d_loss=0.6)
    times = Draws(delays, seed=4, count=50).stage(2, transfers)
    senders = np.array([costs.sender for costs in transfers])
    tries = delays.stage_chance(4, 2, 0, 50, senders).parcel_tries
    expected = tries @ [costs.parcel_bits * 1.5 / 16 for costs in transfers]
    assert np.all(abs(times.seconds - expected) <= 2 * gamma(len(transfers) + 4, float) * expected)
    assert len(np.unique(times.seconds)) > 10
