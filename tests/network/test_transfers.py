"""Hand-overs in time, by hand: who is busy from when to when."""

import itertools
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.network import DelayModel, Draws, Step, TransferChance, TransferCosts
from codedfl.scenario import Fleet, Links

# Powers of two keep every number exact: overhead 1/2, so that a bit takes 1.5/64 s down and 1.5/16 s between devices.
LINKS = Links(down_rate=64.0, up_rate=32.0, d2d_rate=16.0, overhead=0.5, loss=0.25)
FLEET = Fleet(
    devices=[
        {"count": 3, "mac_rate": 8.0},
        {"count": 1, "mac_rate": 4.0, "setup_ratio": 0.25, "setup_seconds": 2.0, "down_rate": 128.0},
        {"count": 1, "mac_rate": 16.0, "d2d_rate": 8.0},
    ],
    server_mac_rate=1024.0,
)
DEVICES = 5


def model() -> DelayModel:
    return DelayModel.create(FLEET, LINKS)


def chance(**rows: list[float]) -> TransferChance:
    """One try and no setup unless told otherwise."""
    plain = {"grant_tries": 1.0, "export_setup": 0.0, "parcel_tries": 1.0, "absorb_setup": 0.0}
    tables = {name: np.array([rows.get(name, [value] * DEVICES)], dtype=float) for name, value in plain.items()}
    return TransferChance(**tables, up_tries=tables["parcel_tries"], relay_tries=tables["parcel_tries"])


def fresh(sender: int, recipient: int, absorb_macs: int = 8) -> TransferCosts:
    return TransferCosts(sender, recipient, grant_bits=64, export_macs=16, parcel_bits=32, absorb_macs=absorb_macs)


def forward(sender: int, recipient: int) -> TransferCosts:
    return TransferCosts(sender, recipient, grant_bits=0, export_macs=0, parcel_bits=32, absorb_macs=8)


def laid_out(
    transfers: list[TransferCosts], luck: TransferChance | None = None, *, parallel: bool = False
) -> set[Step]:
    with patch.object(DelayModel, "handover_chance", return_value=luck or chance()):
        layout = Draws(model(), seed=0).handovers(2, transfers, parallel=parallel)
    steps = layout.steps(transfers)
    assert len(set(steps)) == len(steps)
    assert layout.seconds.tolist() == [max((step.end for step in steps), default=0.0)]
    return set(steps)


def test_one_fresh_hand_over() -> None:
    """Grant 64 * 1.5/64 = 1.5; encrypt 16/8 = 2; send 32 * 1.5/16 = 3; absorb 8/8 = 1."""
    assert laid_out([fresh(0, 1)]) == {
        Step(0, "grant", None, 0.0, 1.5, 64),
        Step(0, "encrypt", None, 1.5, 3.5, 0),
        Step(0, "send", 1, 3.5, 6.5, 32),
        Step(1, "absorb", None, 6.5, 7.5, 0),
    }


def test_forwarding_needs_neither_grant_nor_encryption() -> None:
    assert laid_out([forward(0, 1)]) == {Step(0, "send", 1, 0.0, 3.0, 32), Step(1, "absorb", None, 3.0, 4.0, 0)}


def test_two_senders_to_one_recipient_one_after_the_other() -> None:
    """Both are ready at 3.5; the second begins when the first is through, at 6.5; then 8 + 8 MAC at 8 a second."""
    steps = laid_out([fresh(0, 2), fresh(1, 2)])
    assert {step for step in steps if step.activity in ("send", "absorb")} == {
        Step(0, "send", 2, 3.5, 6.5, 32),
        Step(1, "send", 2, 6.5, 9.5, 32),
        Step(2, "absorb", None, 9.5, 11.5, 0),
    }
    assert {(step.device, step.begin, step.end) for step in steps if step.activity == "grant"} == {
        (0, 0.0, 1.5),
        (1, 0.0, 1.5),
    }, "grants run side by side"
    assert {(step.device, step.begin, step.end) for step in steps if step.activity == "encrypt"} == {
        (0, 1.5, 3.5),
        (1, 1.5, 3.5),
    }


def test_parallel_reception() -> None:
    """Both send from 3.5; the second needs two tries, 6 s; the sum begins with the last parcel."""
    steps = laid_out([fresh(0, 2), fresh(1, 2)], chance(parcel_tries=[1, 2, 1, 1, 1]), parallel=True)
    assert {step for step in steps if step.activity in ("send", "absorb")} == {
        Step(0, "send", 2, 3.5, 6.5, 32),
        Step(1, "send", 2, 3.5, 9.5, 32),
        Step(2, "absorb", None, 9.5, 11.5, 0),
    }


def test_in_parallel_the_last_to_arrive_counts_whoever_was_named_last() -> None:
    steps = laid_out([forward(0, 2), forward(1, 2)], chance(parcel_tries=[2, 1, 1, 1, 1]), parallel=True)
    assert Step(2, "absorb", None, 6.0, 8.0, 0) in steps


def test_different_recipients_do_not_wait_for_each_other() -> None:
    steps = laid_out([forward(0, 1), forward(2, 3)])
    assert Step(0, "send", 1, 0.0, 3.0, 32) in steps
    assert Step(2, "send", 3, 0.0, 3.0, 32) in steps
    assert Step(1, "absorb", None, 3.0, 4.0, 0) in steps
    assert Step(3, "absorb", None, 3.0, 5.0, 0) in steps, "8 MAC at 4 a second; no setup drawn"


def test_the_second_may_not_be_ready_when_the_first_is_through() -> None:
    """The forwarder sends from 0 to 3; the other is ready at 3.5 and then sends at once."""
    steps = laid_out([forward(0, 2), fresh(1, 2)])
    assert Step(0, "send", 2, 0.0, 3.0, 32) in steps
    assert Step(1, "send", 2, 3.5, 6.5, 32) in steps
    assert Step(2, "absorb", None, 6.5, 8.5, 0) in steps


def test_parcels_are_taken_in_the_order_given() -> None:
    """The first to send needs two tries of its grant: ready at 3 + 2 = 5; the other waits although it is ready."""
    steps = laid_out([fresh(0, 2), forward(1, 2)], chance(grant_tries=[2, 1, 1, 1, 1]))
    assert Step(0, "send", 2, 5.0, 8.0, 32) in steps
    assert Step(1, "send", 2, 8.0, 11.0, 32) in steps


def test_retries_and_setup_times() -> None:
    """Device 3: grant 3 tries * 64 * 1.5/128 = 2.25; encrypt 16/4 = 4 and setup 2 * (0.25 * 4 + 2) = 6, 10 together.

    Send 4 tries * 3 = 12. Device 1 absorbs 8/8 = 1 and setup 4 * 0.5 * 1 = 2.
    """
    luck = chance(
        grant_tries=[9, 9, 9, 3, 9],
        export_setup=[9, 9, 9, 2, 9],
        parcel_tries=[9, 9, 9, 4, 9],
        absorb_setup=[9, 4, 9, 9, 9],
    )
    assert laid_out([fresh(3, 1)], luck) == {
        Step(3, "grant", None, 0.0, 2.25, 64),
        Step(3, "encrypt", None, 2.25, 12.25, 0),
        Step(3, "send", 1, 12.25, 24.25, 32),
        Step(1, "absorb", None, 24.25, 27.25, 0),
    }


def test_one_setup_for_all_that_a_recipient_adds_up() -> None:
    """16 MAC at 8 a second take 2, the setup 1 * 0.5 * 2 = 1."""
    steps = laid_out([forward(0, 2), forward(1, 2)], chance(absorb_setup=[0, 0, 1, 0, 0]))
    assert Step(2, "absorb", None, 6.0, 9.0, 0) in steps


@pytest.mark.parametrize(("sender", "recipient"), [(0, 4), (4, 0)])
def test_the_slower_of_two_rates_counts(sender: int, recipient: int) -> None:
    """Device 4 has 8 bit/s: 32 * 1.5/8 = 6."""
    steps = laid_out([forward(sender, recipient)])
    assert Step(sender, "send", recipient, 0.0, 6.0, 32) in steps


def test_the_row_of_the_draw_is_used() -> None:
    rows = np.array([[1.0] * DEVICES, [3.0] * DEVICES])
    luck = TransferChance(rows, rows - 1, rows, rows - 1, rows, rows)
    with patch.object(DelayModel, "handover_chance", return_value=luck):
        draws = Draws(model(), seed=0, count=2)
        both = draws.handovers(2, [forward(0, 1)], [forward(0, 1)], parallel=False).seconds
        second = draws.handovers(2, [forward(0, 1)], parallel=False, rows=np.array([1])).seconds
    assert both.tolist() == [3 + 1, 9 + 1 + 2 * 0.5], "setup 2 * 0.5 * 1 in the second row"
    assert second.tolist() == [9 + 1 + 2 * 0.5]


moves_of_a_draw = st.lists(
    st.tuples(st.integers(0, 2), st.integers(3, 4), st.booleans()), unique_by=lambda move: move[0]
)


@given(st.lists(moves_of_a_draw, min_size=3, max_size=3), st.booleans(), st.integers(0, 9))
def test_draws_with_other_hand_overs_are_laid_out_as_if_alone(
    moves: list[list[tuple[int, int, bool]]], parallel: bool, seed: int
) -> None:
    """To the last bit, whatever the others hand over."""
    rows = [[fresh(a, b) if granted else forward(a, b) for a, b, granted in each] for each in moves]
    together = Draws(model(), seed=seed, count=3).handovers(2, *rows, parallel=parallel)
    for draw, transfers in enumerate(rows):
        alone = Draws(model(), seed=seed, first=draw).handovers(2, transfers, parallel=parallel)
        assert together.seconds[draw] == alone.seconds[0]
        assert together.steps(transfers, draw) == alone.steps(transfers)


def test_nothing_to_hand_over_takes_no_steps() -> None:
    assert laid_out([]) == set()


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(3, 4), st.booleans()), unique_by=lambda move: move[0]),
    st.lists(st.integers(1, 4), min_size=DEVICES, max_size=DEVICES),
    st.booleans(),
)
def test_nobody_does_two_things_at_once(moves: list[tuple[int, int, bool]], tries: list[int], parallel: bool) -> None:
    """Times are exact here; a recipient is busy while it takes a parcel, unless it takes them in parallel."""
    transfers = [fresh(sender, to) if granted else forward(sender, to) for sender, to, granted in moves]
    luck = chance(grant_tries=tries, parcel_tries=tries[::-1])
    busy: dict[int, list[tuple[float, float]]] = {}
    steps = laid_out(transfers, luck, parallel=parallel)
    for step in steps:
        busy.setdefault(step.device, []).append((step.begin, step.end))
        if step.activity == "send" and not parallel:
            busy.setdefault(step.peer, []).append((step.begin, step.end))
    for spans in busy.values():
        ordered = sorted(spans)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(ordered))
    assert sum(step.bits for step in steps if step.activity == "send") == 32 * len(moves)
    for to in {to for _, to, _ in moves}:
        (absorbed,) = [step for step in steps if step.activity == "absorb" and step.device == to]
        assert absorbed.begin == max(step.end for step in steps if step.activity == "send" and step.peer == to)


@given(st.integers(0, 2**32), st.integers(2, 50), st.integers(0, 8))
def test_a_draw_is_the_same_alone_as_among_many(seed: int, epoch: int, first: int) -> None:
    together, alone = model().handover_chance(seed, epoch, 0, 9), model().handover_chance(seed, epoch, first, 1)
    for name in ("grant_tries", "export_setup", "parcel_tries", "absorb_setup"):
        assert np.array_equal(getattr(together, name)[first], getattr(alone, name)[0])


def test_hand_overs_share_no_random_numbers_with_the_epoch() -> None:
    """Streams of one seed and epoch: were two of them the same, tries or setups would agree throughout."""
    epoch, moves = model().chance(0, 2, 0, 50), model().handover_chance(0, 2, 0, 50)
    setups = [epoch.setup, moves.export_setup, moves.absorb_setup]
    tries = [epoch.down_tries, epoch.up_tries, moves.grant_tries, moves.parcel_tries]
    for family in (setups, tries):
        for number, left in enumerate(family):
            assert not any(np.array_equal(left, right) for right in family[number + 1 :])
