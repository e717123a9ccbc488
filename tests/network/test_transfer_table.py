"""Costs of many transfers as columns: the same as those of each, in a bounded number of bytes."""

import tracemalloc
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from codedfl.network import TransferCosts, TransferTable
from codedfl.network.costs import StageCosts
from codedfl.training import History
from codedfl.training.costs import LINKS, add_transfers, nothing
from codedfl.training.records import StageRecord

amounts = st.integers(0, 10**12)
transfers = st.builds(
    TransferCosts,
    st.integers(0, 4),
    st.integers(-1, 4),
    *[amounts] * 4,
    relayed=st.booleans(),
    export_beforehand=amounts,
    absorb_beforehand=amounts,
).filter(lambda each: not (each.relayed and each.uploaded))
many = st.lists(transfers, max_size=12)


@given(many)
def test_a_table_is_the_sequence_it_was_made_of(costs: list[TransferCosts]) -> None:
    table = TransferTable.of(costs)
    assert list(table) == costs
    assert [table[place] for place in range(len(table))] == costs
    assert table == costs
    assert list(table[1:]) == costs[1:]
    assert TransferTable.of(table) is table


@given(many, st.integers(0, 11))
def test_a_table_equals_the_same_transfers_only(costs: list[TransferCosts], place: int) -> None:
    table = TransferTable.of(costs)
    assert table != [*costs, TransferCosts(0, 1, 2, 3, 4, 5)]
    assert (table == len(costs)) is False
    if place < len(costs):
        other = replace(costs[place], absorb_beforehand=costs[place].absorb_beforehand + 1)
        assert table != [*costs[:place], other, *costs[place + 1 :]]


@given(many)
def test_columns_are_those_of_each_transfer(costs: list[TransferCosts]) -> None:
    table = TransferTable.of(costs)
    for link in ("down", "up", "d2d"):
        assert table.bits()[link].tolist() == [each.bits()[link] for each in costs]
    assert table.sender_macs.tolist() == [each.sender_macs for each in costs]
    assert table.recipient_macs.tolist() == [each.recipient_macs for each in costs]


@given(many)
def test_what_devices_spend_is_the_sum_over_single_transfers(costs: list[TransferCosts]) -> None:
    together, one_by_one = nothing(5), nothing(5)
    add_transfers(together, TransferTable.of(costs))
    for each in costs:
        add_transfers(one_by_one, [each])
    assert all(np.array_equal(together[name], one_by_one[name]) for name in (*LINKS, "macs"))


@given(many, many)
def test_a_history_comes_back_from_arrays(first: list[TransferCosts], second: list[TransferCosts]) -> None:
    history = History()
    history.stages += [StageRecord(0, first), StageRecord(2, TransferTable.of(second), retires=True)]
    assert History.from_arrays(history.to_arrays()).stages == history.stages


@given(many, many)
def test_shorter_rows_of_a_stage_are_padded(first: list[TransferCosts], second: list[TransferCosts]) -> None:
    costs = StageCosts.create(first, TransferTable.of(second))
    for row, given_costs in enumerate((first, second)):
        filled = len(given_costs)
        for name, column in vars(costs).items():
            assert column[row, :filled].tolist() == [getattr(each, name) for each in given_costs]
        assert set(costs.sender[row, filled:].tolist()) <= {-1}
        assert not costs.parcel_bits[row, filled:].any()


@given(many)
def test_one_row_of_a_stage_needs_no_padding(only: list[TransferCosts]) -> None:
    for name, column in vars(StageCosts.create(only)).items():
        assert column.tolist() == [[getattr(each, name) for each in only]]


def test_a_transfer_takes_no_more_bytes_among_many() -> None:
    """Nine numbers of eight bytes, and what growing an array takes; an object alone would take more."""

    def peak(count: int) -> int:
        tracemalloc.start()
        TransferTable.of(TransferCosts(number, 0, 1, 2, 3, 4) for number in range(count))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    small, large = peak(20_000), peak(40_000)
    assert large < 2.5 * small
    assert large < 40_000 * 9 * 8 * 3
