"""Coded blocks of one device: those that helpers make, what is kept for another session, and parts that come early."""

import numpy as np
import pytest

from codedfl.errors import CipherError
from codedfl.schemes import Work
from codedfl.schemes.coded.placing.block_layout import KEY, PART, REPAIR
from schemes.coded.test_sealed_coded_device import MODEL, C, D, grant, made, parcel, refused, words
from schemes.residues import carry
from tiny import is_one_sentence


class TestRepair:
    def test_two_helpers_make_a_coded_block(self) -> None:
        """Their sum; each is taken once, and no third."""
        _, fleet, _ = made()
        refused("has the shape", fleet[3].absorb_from, 0, parcel(REPAIR, coded=words(4, D)))
        work = Work()
        fleet[3].absorb_from(0, parcel(REPAIR, coded=words(D, 4)), work)
        refused("expects no coded block of device 0", fleet[3].absorb_from, 0, parcel(REPAIR, coded=words(D, 4)))
        refused("is not complete", fleet[3].reply, 2, MODEL)
        assert fleet[3].keep() is None
        fleet[3].absorb_from(1, parcel(REPAIR, coded=2 * words(D, 4)), work)
        assert work.macs == 2 * D * 4
        assert fleet[3].keep()["coded"].tolist() == (3 * words(D, 4)).tolist()
        refused("expects no coded block of device 2", fleet[3].absorb_from, 2, parcel(REPAIR, coded=words(D, 4)))
        refused("expects no part", fleet[3].absorb_from, 0, parcel(PART, 0, part=words(8)))
        assert fleet[3].reply(2, MODEL, Work())["product"].tolist() == (MODEL["model"] @ (3 * words(D, 4))).tolist()

    def test_a_worker_sends_a_multiple_of_its_block(self) -> None:
        _, fleet, _ = made()
        repair = grant(REPAIR, 3, factor=np.array(5, np.uint64))
        refused("no worker, or its coded block is not complete", fleet[0].export, repair)
        fleet[0].recall({"coded": words(D, 4)})
        refused("The grant of device 0 is refused: it has no array 'factor'", fleet[0].export, grant(REPAIR, 3))
        for _ in range(2):
            work = Work()
            sent = fleet[0].export(repair, work)
            assert set(sent) == {"kind", "coded"}
            assert sent["coded"].tolist() == (5 * words(D, 4)).tolist()
            assert work.macs == D * 4


class TestRecall:
    def test_what_was_kept_is_taken_again(self) -> None:
        _, fleet, stages = made()
        for transfers in stages:
            carry(fleet, transfers)
        _, again, (pieces, *_) = made()
        assert again[0].keep() is None
        again[0].recall(fleet[0].keep())
        assert (
            again[0].reply(2, MODEL, Work())["product"].tolist() == fleet[0].reply(2, MODEL, Work())["product"].tolist()
        )
        assert again[0].keep()["coded"].tolist() == fleet[0].keep()["coded"].tolist()
        own = next(each for each in pieces if each.sender == 0)
        refused("has sealed its data before", again[0].export, own.grant)
        refused("expects no part", again[0].absorb_from, 1, parcel(PART, 1, part=words(8)))
        for device in (again[0], fleet[0], fleet[3]):
            with pytest.raises(CipherError, match="takes no kept block after it has sealed its data") as error:
                device.recall(fleet[0].keep())
            assert is_one_sentence(str(error.value))

    def test_a_device_that_received_parts_of_others_takes_none(self) -> None:
        _, fleet, _ = made()
        fleet[0].absorb_from(1, parcel(PART, 1, part=words(8)), Work())
        with pytest.raises(CipherError, match="takes no kept block"):
            fleet[0].recall({"coded": words(D, 4)})

    def test_a_block_of_another_shape(self) -> None:
        _, fleet, _ = made(masks=True)
        with pytest.raises(CipherError, match="What device 0 has kept is refused: 'coded' has the shape"):
            fleet[0].recall({"coded": words(4, D)})
        fleet[0].recall({"coded": words(D, 4)})
        refused("has no mask key to send", fleet[0].export, grant(KEY, 1))


def test_own_parts_are_added_when_their_blocks_are_there() -> None:
    """Four chunks; a worker has all parts of the others first, and the own part of each counts with the first of them.

    Then its coded block has the parts that all devices would send to it, its own included.
    """
    scheme, fleet, stages = made(3, 24, workers=2)
    layout, worker = scheme.layout, scheme.workers.chosen[0]
    late, own_parts = [], []
    for number, transfers in enumerate(stages):
        for each in transfers:
            if number % 3 == 2 and each.sender == worker:
                own_parts.append(each)
                continue
            work, sent = Work(), fleet[each.sender].export(each.grant, Work())
            if number % 3 == 1 and each.recipient == worker:
                late.append((each.sender, sent))
                continue
            fleet[each.recipient].absorb_from(each.sender, sent, work)
            if number % 3 == 2 and each.recipient == worker:
                band = int(each.grant["band"])
                own = next(other for other in layout.owned_by(worker) if other in layout.bands.chunk(band))
                first = next(every for every in transfers if every.recipient == worker)
                assert work.macs == (layout.part_operations(own) if first.sender == each.sender else 0)
    assert len(late) == 4
    refused("is not complete", fleet[worker].reply, 2, {"model": words(C, 24)})
    assert fleet[worker].keep() is None
    for sender, sent in late:
        assert fleet[worker].keep() is None
        fleet[worker].absorb_from(sender, sent, Work())
    carry(fleet, own_parts)
    kept = scheme.formats.field.from_wire(fleet[worker].keep()["coded"])
    expected = np.zeros((24, 12), np.uint64)
    for device in fleet:
        for number in layout.owned_by(fleet.index(device)):
            part = device.export(grant(PART, worker, number), Work())["part"]
            layout.place(expected, number, part)
    assert kept.tolist() == expected.tolist()
