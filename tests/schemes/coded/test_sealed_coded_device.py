"""A device of the sealed and coded scheme alone: what it sends, adds up, keeps and refuses, and the work of each."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.cipher.seals import FIELD_61
from codedfl.errors import CipherError
from codedfl.schemes import Work
from codedfl.schemes.coded.placing.block_layout import BLOCK, KEY, PART, PIECE, REPAIR, SUM
from codedfl.schemes.coded.placing.transfers import planned_transfer
from schemes.residues import carry, wanted
from tiny import is_one_sentence, problem

D, C = 8, 2


def made(
    devices: int = 4, features: int = D, *, workers: int = 3, masks: bool = False
) -> tuple[Any, list[Any], list[Sequence[Any]]]:
    """A scheme with K = 2, its devices before the set-up, and the transfers of its stages."""
    given = problem([4] * devices, features=features, outputs=C)
    options = {"workers": workers, "threshold": 2, "masks": masks, "ring": FIELD_61.name}
    scheme: Any = schemes.create(
        wanted("sealed-coded", {"schemes.sealed-coded": options}, rates=(1e6,) * devices), given
    )
    fleet = [scheme.device(index, shard) for index, shard in enumerate(given.shards)]
    return scheme, fleet, [stage.transfers for stage in scheme.server().set_up()]


def refused(words: str, call: Any, *given: Any) -> None:
    """One sentence, and no work is counted."""
    work = Work()
    with pytest.raises(CipherError, match=words) as error:
        call(*given, work)
    assert is_one_sentence(str(error.value))
    assert (work.macs, work.beforehand) == (0, 0)


def parcel(kind: int, band: int | None = None, **arrays: Any) -> dict[str, Any]:
    named = {} if band is None else {"band": np.array(band, np.int32)}
    return {"kind": np.array(kind, np.int8), **named, **arrays}


def grant(kind: int, target: int, band: int = -1, **more: Any) -> Any:
    return planned_transfer(0, target, kind, band, more).grant


def words(*shape: int) -> np.ndarray:
    """Residues that all differ."""
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.uint64).reshape(shape)


MODEL = {"model": words(C, D)}


class TestReply:
    def test_bands_of_the_right_hand_side_and_products(self) -> None:
        """Two rows each; c d width multiplications with a block of width 4."""
        _, fleet, stages = made()
        for transfers in stages:
            carry(fleet, transfers)
        work = Work()
        assert fleet[1].reply(1, {}, work)["moments"].shape == (2, C)
        assert work.macs == 0
        assert fleet[1].reply(2, MODEL, work)["product"].shape == (C, 4)
        assert work.macs == C * D * 4
        refused("no worker, or its coded block is not complete", fleet[3].reply, 2, MODEL)
        refused("has no array 'model'", fleet[1].reply, 2, {})
        refused("The model for device 1 is refused: 'model' has the shape", fleet[1].reply, 2, {"model": words(D, C)})

    def test_a_device_that_adds_nothing_up_has_no_right_hand_side(self) -> None:
        _, fleet, _ = made(4, 2)
        assert fleet[3].reply(1, {}, Work()) == {}

    def test_nothing_before_all_pieces_are_there(self) -> None:
        """Of four devices; the first that is missing is named, and how many more there are."""
        _, fleet, (pieces, *_) = made()
        refused("has no sealed piece of device 0 and 3 more, and sums", fleet[1].reply, 1, {})
        sent = [(each, fleet[each.sender].export(each.grant, Work())) for each in pieces]
        refused("has no sealed piece of device 0 and 2 more, and sums", fleet[1].reply, 1, {})
        first, second, last = ((each.sender, piece) for each, piece in sent if each.recipient == 1)
        for sender, piece in (first, second):
            fleet[1].absorb_from(sender, piece, Work())
        refused(f"has no sealed piece of device {last[0]}, and sums", fleet[1].reply, 1, {})
        fleet[1].absorb_from(*last, Work())
        assert set(fleet[1].reply(1, {}, Work())) == {"moments"}


class TestExport:
    @pytest.mark.parametrize("left_out", ["kind", "target"])
    def test_a_grant_names_kind_and_target(self, left_out: str) -> None:
        _, fleet, (pieces, *_) = made()
        first = {name: value for name, value in pieces[0].grant.items() if name != left_out}
        refused("sends no data without a grant that names the kind", fleet[pieces[0].sender].export, first)

    @pytest.mark.parametrize(
        ("kind", "band"), [(PIECE, -1), (SUM, -1), (BLOCK, -1), (PART, -1), (9, 0), (-1, 0), (9, -1)]
    )
    def test_unknown_kinds_and_parcels_without_a_band(self, kind: int, band: int) -> None:
        _, fleet, _ = made()
        refused(f"sends no parcels of kind {kind} without the band", fleet[0].export, grant(kind, 1, band))

    def test_a_piece_is_sent_once_and_to_its_adder(self) -> None:
        _, fleet, (pieces, *_) = made()
        first, *others = (each for each in pieces if each.sender == 2)
        own, total, work = 3 + 4 + 2 * C, D * (D + 1) // 2 + D * C, Work()
        sent = fleet[2].export(first.grant, work)
        assert set(sent) == {"kind", "band", "piece"}
        assert (int(sent["kind"]), int(sent["band"])) == (PIECE, first.recipient)
        assert work.macs == sent["piece"].size + own, "it adds its own piece to its sum"
        for target, band in ((first.recipient,) * 2, (2, others[0].recipient), (2, 2), (1, 4)):
            refused(f"has no piece of band {band} for device {target}", fleet[2].export, grant(PIECE, target, band))
        sizes = [sent["piece"].size]
        for each in others:
            work = Work()
            sizes.append(fleet[2].export(each.grant, work)["piece"].size)
            assert work.macs == sizes[-1]
        assert sum(sizes) + own == total

    def test_a_second_seed_seals_nothing(self) -> None:
        _, fleet, (pieces, *_) = made()
        own = [each for each in pieces if each.sender == 2]
        for each in own:
            fleet[2].export(each.grant, Work())
        refused("has sealed its data before", fleet[2].export, own[0].grant)

    def test_nothing_is_sealed_without_a_seed(self) -> None:
        _, fleet, (pieces, *_) = made()
        plain = {name: value for name, value in pieces[0].grant.items() if name != "seed"}
        refused("A grant without seed seals nothing", fleet[pieces[0].sender].export, plain)
        assert fleet[pieces[0].sender].export(pieces[0].grant, Work())["piece"].size

    def test_a_block_goes_to_the_device_of_the_other_band(self) -> None:
        _, fleet, (pieces, blocks, _) = made()
        refused("has no sealed piece", fleet[0].export, blocks[0].grant)
        carry(fleet, pieces)
        for each in blocks:
            work = Work()
            sent = fleet[each.sender].export(each.grant, work)
            assert set(sent) == {"kind", "band", "block"}
            assert (int(sent["kind"]), int(sent["band"])) == (BLOCK, each.sender)
            assert sent["block"].shape == (2, 2)
            assert work.macs == 0
        pairs = {(each.sender, each.recipient) for each in blocks}
        assert pairs == {(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (3, 0)}
        for target in (0, 3, -1, 4):
            refused(f"has no block for device {target}", fleet[0].export, grant(BLOCK, target, 0))
        refused("does not add up band 1", fleet[0].export, grant(BLOCK, 2, 1))

    def test_a_part_needs_all_blocks_and_a_worker(self) -> None:
        _, fleet, (pieces, blocks, parts) = made()
        first = next(each for each in parts if each.sender == 0)
        refused("has no sealed piece", fleet[0].export, first.grant)
        carry(fleet, pieces)
        refused("has no part of a coded block for device", fleet[0].export, first.grant)
        carry(fleet, blocks)
        for target in (-1, 4):
            refused(f"has no part of a coded block for device {target}", fleet[0].export, grant(PART, target, 0))
        refused("does not add up band 3", fleet[0].export, grant(PART, 1, 3))
        for _ in range(2):
            work = Work()
            sent = fleet[0].export(first.grant, work)
            assert set(sent) == {"kind", "band", "part"}
            assert (int(sent["kind"]), int(sent["band"]), sent["part"].shape) == (PART, 0, (2 * 4,))
            assert work.macs == 2 * D
        assert fleet[0].export(grant(PART, 3, 0), Work())["part"].shape == (8,)
        assert fleet[1].export(grant(PART, 0, 1), Work())["part"].shape == (8,)

    def test_a_sum_goes_to_the_parent_once(self) -> None:
        _, fleet, (pieces, sums, *_) = made(64, 3)
        carry(fleet, pieces)
        assert {(each.sender, each.recipient) for each in sums} == {(1, 0), (3, 2), (5, 4)}
        refused("has no sum of band 0 for device 2", fleet[1].export, grant(SUM, 2, 0))
        refused("does not add up band 1", fleet[1].export, grant(SUM, 0, 1))
        refused("has no sealed piece of device 1,", fleet[0].export, grant(SUM, 1, 0))
        refused("has not the sum of band 0 over all devices", fleet[1].export, grant(BLOCK, 0, 0))
        refused("has no part of a coded block|over all devices", fleet[1].export, grant(PART, 0, 0))
        work = Work()
        sent = fleet[1].export(sums[0].grant, work)
        assert set(sent) == {"kind", "band", "piece"}
        assert (int(sent["kind"]), work.macs) == (SUM, 0)
        refused("has no sum of band 0 for device 0, or sent it before", fleet[1].export, sums[0].grant)

    def test_keys(self) -> None:
        _, fleet, (keys, *_) = made(masks=True)
        assert set(fleet[0].export(keys[0].grant, Work())) == {"kind", "key"}
        _, fleet, _ = made()
        refused("has no mask key to send", fleet[0].export, keys[0].grant)
        refused("expects no mask key of device 1", fleet[0].absorb_from, 1, parcel(KEY, key=np.zeros(32, np.uint8)))


class TestAbsorb:
    def test_who_sends_what_is_told(self) -> None:
        """One that has no band, which is 0 or more, and a kind that is known."""
        _, fleet, _ = made()
        piece = {"piece": words(11)}
        for sender in (-1, 4):
            refused(
                f"cannot tell what device {sender} has sent", fleet[0].absorb_from, sender, parcel(PIECE, 0, **piece)
            )
        refused("cannot tell what device 1 has sent", fleet[0].absorb_from, 1, piece)
        for kind in (PIECE, SUM, BLOCK, PART):
            refused(f"knows no parcels of kind {kind} without a band", fleet[0].absorb_from, 1, parcel(kind, **piece))
        for kind in (6, -1):
            refused(f"knows no parcels of kind {kind} without", fleet[0].absorb_from, 1, parcel(kind, 0, **piece))

    def test_pieces(self) -> None:
        """Each other device's once, of the own band, in its size; the first is not added to anything."""
        scheme, fleet, _ = made()
        size = scheme.layout.bands.size(0)
        good = parcel(PIECE, 0, piece=words(size))
        refused("adds pieces of the other members of its group", fleet[0].absorb_from, 0, good)
        refused("adds one piece of every other device", fleet[0].absorb_from, 1, parcel(PIECE, 1, piece=words(size)))
        refused("has the shape", fleet[0].absorb_from, 1, parcel(PIECE, 0, piece=words(size + 1)))
        refused("adds sums of its child groups", fleet[0].absorb_from, 1, parcel(SUM, 0, piece=words(size)))
        for sender in (1, 3, 2):
            work = Work()
            fleet[0].absorb_from(sender, good, work)
            assert work.macs == size
            refused("adds one piece of every other device", fleet[0].absorb_from, sender, good)
        refused("has no sealed piece of device 0,", fleet[0].reply, 1, {})

    def test_pieces_of_another_group(self) -> None:
        scheme, fleet, _ = made(64, 3)
        good = parcel(PIECE, 0, piece=words(scheme.layout.bands.size(0)))
        for sender in (1, 3):
            refused(f"and none of device {sender}", fleet[0].absorb_from, sender, good)
        fleet[0].absorb_from(2, good, Work())
        refused("adds sums of its child groups", fleet[0].absorb_from, 3, parcel(SUM, 0, piece=good["piece"]))
        fleet[0].absorb_from(1, parcel(SUM, 0, piece=good["piece"]), Work())
        refused("adds one piece", fleet[0].absorb_from, 1, parcel(SUM, 0, piece=good["piece"]))

    def test_pieces_in_three_groups(self) -> None:
        """Device 1 is a member of group 1, as are 4 and 7; 2 is not, although 1 + 2 is divided by 3."""
        scheme, fleet, _ = made(96, 3)
        good = parcel(PIECE, 0, piece=words(scheme.layout.bands.size(0)))
        refused("and none of device 2", fleet[1].absorb_from, 2, good)
        fleet[1].absorb_from(4, good, Work())

    def test_blocks(self) -> None:
        """Of the devices whose piece has it: 0 gets that of 3 alone, 3 those of 1 and 2."""
        _, fleet, _ = made()
        good = {"block": words(2, 2)}
        for sender, band in ((1, 1), (2, 2), (3, 2), (3, 4), (3, -1), (0, 0)):
            refused(f"expects no block of device {sender}", fleet[0].absorb_from, sender, parcel(BLOCK, band, **good))
        refused("has the shape", fleet[0].absorb_from, 3, parcel(BLOCK, 3, block=words(2, 3)))
        work = Work()
        fleet[0].absorb_from(3, parcel(BLOCK, 3, **good), work)
        assert work.macs == 0
        refused("expects no block of device 3", fleet[0].absorb_from, 3, parcel(BLOCK, 3, **good))
        for sender in (2, 1):
            fleet[3].absorb_from(sender, parcel(BLOCK, sender, **good), Work())

    def test_a_device_without_a_band_gets_no_block(self) -> None:
        _, fleet, _ = made(4, 3)
        refused("expects no block of device 2", fleet[3].absorb_from, 2, parcel(BLOCK, 2, block=words(1, 1)))

    def test_parts(self) -> None:
        """One of each other band; the own part counts when the first of another arrives, before it can be placed."""
        _, fleet, _ = made()
        for sender, band in ((1, 2), (0, 0), (1, 4), (1, -1)):
            refused(
                f"expects no part of a coded block of device {sender}",
                *(fleet[0].absorb_from, sender, parcel(PART, band, part=words(8))),
            )
        refused("has the shape", fleet[0].absorb_from, 1, parcel(PART, 1, part=words(9)))
        counted = []
        for sender in (1, 3, 2):
            work = Work()
            fleet[0].absorb_from(sender, parcel(PART, sender, part=words(8)), work)
            counted.append(work.macs)
            refused("expects no part", fleet[0].absorb_from, sender, parcel(PART, sender, part=words(8)))
        assert counted == [2 * D, 0, 0]
        refused("is not complete", fleet[0].reply, 2, MODEL)
        refused("expects no coded block of device 1", fleet[0].absorb_from, 1, parcel(REPAIR, coded=words(D, 4)))

    def test_the_own_part_is_placed_at_once_where_it_can_be(self) -> None:
        """And counted then, with the first part of another; nothing is left to count later."""
        _, fleet, (pieces, blocks, parts) = made()
        carry(fleet, [*pieces, *blocks])
        counted = []
        for each in (each for each in parts if each.recipient == 0):
            work = Work()
            fleet[0].absorb_from(each.sender, fleet[each.sender].export(each.grant, Work()), work)
            counted.append(work.macs)
        assert counted == [2 * D, 0, 0]
        assert fleet[0].keep() is not None

    def test_parts_of_a_device_without_a_band(self) -> None:
        """Three bands of one row: the coded block is that of the parts, column by column."""
        _, fleet, _ = made(4, 3)
        assert fleet[3].keep() is None
        for sender in range(3):
            assert fleet[3].keep() is None
            work = Work()
            fleet[3].absorb_from(sender, parcel(PART, sender, part=words(2) + np.uint64(10 * sender)), work)
            assert work.macs == 0
        kept = fleet[3].keep()
        assert kept["coded"].tolist() == [[1, 2], [11, 12], [21, 22]]
