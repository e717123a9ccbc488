"""The stages of the set-up by hand: who sends what to whom in which order, after which stages, and at what cost."""

import numpy as np
import pytest

from codedfl.cipher.masks.graph import MaskGraph
from codedfl.schemes.coded.placing.block_layout import BLOCK, KEY, PART, PIECE, REPAIR, SUM
from codedfl.schemes.coded.placing.transfers import (
    PlannedStage,
    PlannedTransfers,
    counted_stage,
    planned_stages,
    planned_transfer,
)
from schemes.coded.placing.test_block_layout import laid_out


def rows(stage: PlannedStage) -> list[tuple[int, int, int]]:
    return [
        *zip(stage.sender.tolist(), stage.recipient.tolist(), stage.band.tolist(), strict=True),
    ]


def test_stages_of_three_devices_one_after_the_other() -> None:
    """The first parcel of every device, then its second; workers are devices 0 and 2. One band each."""
    stages = planned_stages(laid_out(3, 3, 2, known=False, graph=MaskGraph(3)), (2, 0))
    assert [stage.kind for stage in stages] == [KEY, PIECE, BLOCK, PART]
    assert [stage.after for stage in stages] == [None] * 4
    assert rows(stages[0]) == [(0, 1, -1), (1, 2, -1), (2, 0, -1), (0, 2, -1), (1, 0, -1), (2, 1, -1)]
    assert rows(stages[1]) == [(0, 1, 1), (1, 2, 2), (2, 0, 0), (0, 2, 2), (1, 0, 0), (2, 1, 1)]
    assert rows(stages[2]) == [(0, 1, 0), (1, 2, 1), (2, 0, 2)]
    assert rows(stages[3]) == [(0, 2, 0), (1, 2, 1), (2, 0, 2), (1, 0, 1)]


def test_stages_of_three_devices_that_overlap() -> None:
    """All parcels of one device follow each other; two chunks of three bands."""
    stages = planned_stages(laid_out(3, 12, 2), (1,))
    assert [stage.kind for stage in stages] == [PIECE, BLOCK, PART] * 2
    assert [stage.after for stage in stages] == [None, (0,), (0, 1), (), (3,), (3, 4)]
    assert rows(stages[0]) == [(0, 1, 1), (0, 2, 2), (1, 2, 2), (1, 0, 0), (2, 0, 0), (2, 1, 1)]
    assert rows(stages[3]) == [(sender, recipient, band + 3) for sender, recipient, band in rows(stages[0])]
    assert rows(stages[1]) == [(0, 1, 0), (1, 2, 1), (2, 0, 2)]
    assert rows(stages[4]) == [(0, 1, 3), (1, 2, 4), (2, 0, 5)]
    assert rows(stages[2]) == [(0, 1, 0), (2, 1, 2)]
    assert rows(stages[5]) == [(0, 1, 3), (2, 1, 5)]


def test_all_pieces_wait_for_keys_alone() -> None:
    stages = planned_stages(laid_out(3, 12, 2, graph=MaskGraph(3)), (1,))
    assert [stage.after for stage in stages] == [None, (0,), (1,), (1, 2), (0,), (4,), (4, 5)]


def test_keys_go_to_the_neighbours_on_the_ring() -> None:
    """Of device 0 these are 2, 4, 5 and 7; the first of each are two places further."""
    stage, *_ = planned_stages(laid_out(9, 4, 2, graph=MaskGraph(9, 4)), (0,))
    assert rows(stage) == [(device, (device + step) % 9, -1) for device in range(9) for step in (2, 4, 5, 7)]
    graph = MaskGraph(9, 4)
    assert all(recipient in graph.circle(sender) for sender, recipient, _ in rows(stage))


def test_sums_go_up_a_tree_of_groups() -> None:
    """128 devices: four groups of 32 with two adders each, group 3 below group 1, groups 1 and 2 below group 0."""
    stages = planned_stages(laid_out(128, 2, 1, graph=MaskGraph(128, 4)), (0, 1))
    assert [stage.kind for stage in stages] == [KEY, PIECE, SUM, SUM, BLOCK, PART]
    assert [stage.after for stage in stages] == [None, (0,), (1,), (1, 2), (1, 3), (1, 3, 4)]
    _, pieces, deep, high, blocks, parts = map(rows, stages)
    assert [(recipient, band) for sender, recipient, band in pieces if sender == 14] == [(6, 1), (2, 0)]
    assert [(recipient, band) for sender, recipient, band in pieces if sender == 17] == [(1, 0), (5, 1)]
    assert [(recipient, band) for sender, recipient, band in pieces if sender == 5] == [(1, 0)]
    assert len(pieces) == 128 * 2 - 8, "an adder keeps a piece of its own"
    assert deep == [(3, 1, 0), (7, 5, 1)]
    assert high == [(1, 0, 0), (5, 4, 1), (2, 0, 0), (6, 4, 1)]
    assert blocks == [(0, 4, 0)]
    assert parts == [(0, 1, 0), (4, 0, 1), (4, 1, 1)]


def test_parts_go_to_the_next_workers_first() -> None:
    *_, parts = planned_stages(laid_out(5, 5, 2), (4, 0, 2))
    assert [(sender, recipient) for sender, recipient, _ in rows(parts)] == [
        *((0, 2), (0, 4)),
        *((1, 2), (1, 4), (1, 0)),
        *((2, 4), (2, 0)),
        *((3, 4), (3, 0), (3, 2)),
        *((4, 0), (4, 2)),
    ]


def test_the_grant_of_a_transfer_names_kind_target_and_band() -> None:
    plain, first = planned_transfer(3, 5, KEY), planned_transfer(3, 5, PART, 0, {"seed": np.array(7)})
    assert (plain.sender, plain.recipient, plain.relayed) == (3, 5, False)
    assert {name: int(value) for name, value in plain.grant.items()} == {"kind": KEY, "target": 5}
    assert {name: int(value) for name, value in first.grant.items()} == {
        "kind": PART,
        "target": 5,
        "band": 0,
        "seed": 7,
    }
    assert set(planned_transfer(3, 5, REPAIR, more={"factor": np.array(1)}).grant) == {"kind", "target", "factor"}


def test_transfers_are_a_sequence_and_seeds_go_with_the_first_of_each_sender() -> None:
    stage = planned_stages(laid_out(3, 3, 2, known=False), (0,))[0]
    seeds = [{"seed": np.array(10 * device)} for device in range(3)]
    transfers = PlannedTransfers(stage, seeds)
    assert len(transfers) == 6
    expected = [(0, 1, 0), (1, 2, 10), (2, 0, 20), (0, 2, None), (1, 0, None), (2, 1, None)]

    def told(place: int) -> tuple[int, int, int | None]:
        each = transfers[place]
        return each.sender, each.recipient, int(each.grant["seed"]) if "seed" in each.grant else None

    assert [told(place) for place in range(6)] == expected
    assert told(-1) == expected[5]
    assert told(-6) == expected[0]
    assert [(each.sender, each.recipient, "seed" in each.grant) for each in transfers] == [
        (sender, recipient, seed is not None) for sender, recipient, seed in expected
    ]
    assert [(each.sender, each.recipient, "seed" in each.grant) for each in transfers[1:4]] == [
        *((1, 2, True), (2, 0, True), (0, 2, False)),
    ]
    assert all("seed" not in each.grant for each in PlannedTransfers(stage))
    with pytest.raises(IndexError):
        transfers[6]


KEY_WORK = 2815 * 64
"""Products of 8 x 8 words that one use of X25519 takes."""


@pytest.mark.parametrize("offline", [True, False])
def test_costs_of_keys(offline: bool) -> None:
    """A kind and a target, 8 + 32 bits; then a kind and 32 bytes. The own key is made with the first."""
    layout = laid_out(3, 3, 2, graph=MaskGraph(3))
    table = counted_stage(planned_stages(layout, (0,))[0], layout, None, first_offline=offline)
    made, agreed = ("export_beforehand", "absorb_beforehand") if offline else ("export_macs", "absorb_macs")
    assert [*zip(table.column("sender").tolist(), table.column("recipient").tolist(), strict=True)] == [
        *((0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)),
    ]
    assert table.column("grant_bits").tolist() == [40] * 6
    assert table.column("parcel_bits").tolist() == [8 + 256] * 6
    assert table.column(made).tolist() == [KEY_WORK, 0] * 3
    assert table.column(agreed).tolist() == [KEY_WORK] * 6
    others = {"export_macs", "absorb_macs", "export_beforehand", "absorb_beforehand"} - {made, agreed}
    assert all(not table.column(name).any() for name in others)


@pytest.mark.parametrize("offline", [True, False])
def test_costs_of_pieces(offline: bool) -> None:
    """Bands of heights 1, 2, 2 with pieces of 4, 9 and 7 words of 32 bits; two masks for each of 20 words."""
    layout = laid_out(3, 5, 2, graph=MaskGraph(3))
    sizes = [1 + 2 + 1, 3 + 4 + 2, 3 + 2 + 2]
    seed = {"seed": np.zeros(32, np.uint8), "export": np.array(0, np.int64)}
    stage = planned_stages(layout, (0,))[1]
    table = counted_stage(stage, layout, seed, first_offline=offline)
    assert rows(stage) == [(0, 1, 1), (0, 2, 2), (1, 2, 2), (1, 0, 0), (2, 0, 0), (2, 1, 1)]
    sent = [sizes[band] for band in (1, 2, 2, 0, 0, 1)]
    masks = [2 * sum(sizes), 0] * 3
    own = [sizes[0], 0, sizes[1], 0, sizes[2], 0]
    assert table.column("grant_bits").tolist() == [72 + 256 + 64, 72] * 3
    assert table.column("parcel_bits").tolist() == [40 + 32 * words for words in sent]
    assert table.column("absorb_macs").tolist() == sent
    added = np.add(sent, own)
    assert table.column("export_macs").tolist() == (added if offline else added + masks).tolist()
    assert table.column("export_beforehand").tolist() == (masks if offline else [0] * 6)
    later = counted_stage(stage, layout, None, first_offline=offline)
    assert later.column("grant_bits").tolist() == [72] * 6
    assert later.column("export_macs").tolist() == sent
    assert not later.column("export_beforehand").any()


def test_costs_of_sums_blocks_and_parts() -> None:
    """64 devices in two groups, five bands of one row; devices 0 and 4 work, which have bands 0 and 2."""
    layout = laid_out(64, 5, 2)
    _, sums, blocks, parts = planned_stages(layout, (0, 4))
    tables = [counted_stage(stage, layout, None, first_offline=True) for stage in (sums, blocks, parts)]
    assert all(set(table.column("grant_bits").tolist()) == {72} for table in tables)
    # a piece has the diagonal entry, blocks with the next two bands, and one right-hand side
    assert rows(sums) == [(2 * place + 1, 2 * place, place) for place in range(5)]
    assert tables[0].column("parcel_bits").tolist() == [40 + 32 * 4] * 5
    assert tables[0].column("absorb_macs").tolist() == [4] * 5
    assert not tables[0].column("export_macs").any()
    assert len(tables[1]) == 10
    assert tables[1].column("parcel_bits").tolist() == [40 + 32] * 10
    assert not tables[1].column("export_macs").any() and not tables[1].column("absorb_macs").any()
    # a row of five for three coded columns; a worker that owns a band computes that part itself
    assert len(tables[2]) == 5 * 2 - 2
    assert tables[2].column("parcel_bits").tolist() == [40 + 32 * 3] * 8
    assert tables[2].column("export_macs").tolist() == [5] * 8
    for worker in (0, 4):
        taken = [cost.absorb_macs for cost in tables[2] if cost.recipient == worker]
        assert taken == [5, 0, 0, 0], "with the first part that arrives"


def test_costs_of_blocks_of_uneven_bands_and_of_parts_of_later_chunks() -> None:
    """Ten features in two chunks with bands of 2, 2, 2 and 4 rows; device 1 works."""
    layout = laid_out(2, 10, 2)
    stages = planned_stages(layout, (1,))
    tables = [counted_stage(stage, layout, None, first_offline=True) for stage in stages]
    assert [rows(stage) for stage in stages] == [
        *([(0, 1, 1), (1, 0, 0)], [(0, 1, 0)], [(0, 1, 0)]),
        *([(0, 1, 3), (1, 0, 2)], [(0, 1, 2)], [(0, 1, 2)]),
    ]
    words = [(table.column("parcel_bits") - 40) // 32 for table in tables]
    pieces = [3 + 4 + 2, 3 + 2, 3 + 8 + 8 + 2, 10 + 16 + 4]
    assert [each.tolist() for each in words] == [
        *([pieces[1], pieces[0]], [2 * 2], [2 * 2]),
        *([pieces[3], pieces[2]], [2 * 4], [2 * 5 + 4 * 1]),
    ]
    assert [tables[place].column("export_macs").tolist() for place in (2, 5)] == [[2 * 4], [2 * 14]]
    assert [tables[place].column("absorb_macs").tolist() for place in (2, 5)] == [[2 * 4], [4 * 14]], "its own part"
