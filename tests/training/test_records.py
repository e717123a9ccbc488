"""The records of a training by hand: what stages cost, between which epochs they are, and in which groups."""

from collections.abc import Sequence

import numpy as np

from codedfl.network import RoundCosts, TransferCosts
from codedfl.training.records import History, StageRecord, State
from tiny import problem


def parcel(bits: int) -> list[TransferCosts]:
    """A parcel between devices, with a grant of one bit, two multiplications to make it, and three to take it."""
    return [TransferCosts(0, 1, grant_bits=1, export_macs=2, parcel_bits=bits, absorb_macs=3)]


def asked(macs: int) -> RoundCosts:
    each = np.ones(2, np.int64)
    return RoundCosts(np.arange(2), 10 * each, macs * each, 20 * each, quorum=2, server_macs=5)


def recorded() -> History:
    """Three stages of set-up, two epochs, a hand-over after each, two repairs after the first, one after the second."""
    history = History()
    for bits, after in ((100, None), (200, (0,)), (400, None)):
        history.add_stage(StageRecord(0, parcel(bits), after=after))
    history.add_epoch([asked(7)], epoch=1)
    history.add_stage(StageRecord(1, parcel(10), retires=True))
    history.add_stage(StageRecord(1, parcel(1000)))
    history.add_stage(StageRecord(1, parcel(2000), after=(3,)))
    history.add_epoch([asked(7), asked(9)], epoch=2)
    history.add_stage(StageRecord(2, parcel(20), retires=True))
    history.add_stage(StageRecord(2, parcel(4000)))
    return history


def numbered(found: Sequence[tuple[int, Sequence[TransferCosts]]]) -> list[tuple[int, int]]:
    return [(number, costs[0].parcel_bits) for number, costs in found]


def grouped(history: History, epoch: int) -> list[list[tuple[int, int, tuple[int, ...]]]]:
    groups = history.overlapping_after(epoch)
    return [[(one.number, one.transfers[0].parcel_bits, one.after) for one in group] for group in groups]


def assert_stages(history: History) -> None:
    assert numbered(history.stages_after(0)) == [(0, 100), (1, 200), (2, 400)]
    assert numbered(history.stages_after(1)) == [(3, 1000), (4, 2000)]
    assert numbered(history.stages_after(2)) == [(5, 4000)]
    assert grouped(history, 0) == [[(0, 100, ()), (1, 200, (0,))], [(2, 400, ())]]
    assert grouped(history, 1) == [[(3, 1000, ()), (4, 2000, (3,))]]
    assert grouped(history, 2) == [[(5, 4000, ())]]
    assert history.handovers == [(1, parcel(10)[0]), (2, parcel(20)[0])]
    assert [history.handovers_after(epoch) for epoch in range(4)] == [[], parcel(10), parcel(20), []]


def test_stages_stand_between_their_epochs() -> None:
    assert_stages(recorded())
    assert_stages(History.from_arrays(recorded().to_arrays()))


def test_costs_count_to_the_epoch_that_waits_for_them() -> None:
    """A set-up to the first epoch, a hand-over to the epoch before it, a repair to the epoch that follows."""
    columns = recorded().columns
    assert columns["d2d_bits"] == [100 + 200 + 400 + 10, 1000 + 2000 + 20]
    assert columns["down_bits"] == [3 + 2 * 10 + 1, 2 + 2 * 2 * 10 + 1]
    assert columns["up_bits"] == [2 * 20, 2 * 2 * 20]
    assert columns["device_macs"] == [3 * 5 + 2 * 7 + 5, 2 * 5 + 2 * 7 + 2 * 9 + 5]
    assert columns["server_macs"] == [5, 10]


def test_rounds_of_an_epoch_keep_their_order() -> None:
    history = recorded()
    history.add_round(asked(9), asked(7), asked(9))
    for found in (history, History.from_arrays(history.to_arrays())):
        assert found.questions() == [[0], [0, 1], [1, 0, 1]]
        assert [costs.macs.tolist() for costs in found.rounds] == [[7, 7], [9, 9]]
        assert len(found) == 3


def test_what_follows_a_point_is_dropped_but_stages_stay() -> None:
    """They count as carried out after the point, so that devices that hold their parcels are known."""
    state = State.fresh(problem([6, 6]))
    state.history = recorded()
    point = state.point({})
    state.history.add_epoch([asked(9), asked(7)], epoch=3)
    state.history.add_stage(StageRecord(3, parcel(8000)))
    state.go_back(point)
    assert state.epoch == 2
    assert state.history.questions() == [[0], [0, 1]]
    assert state.history.columns == recorded().columns
    assert numbered(state.history.stages_after(2)) == [(5, 4000), (6, 8000)]
    assert numbered(state.history.stages_after(3)) == []
