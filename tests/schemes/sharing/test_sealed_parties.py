"""Devices and codec of sealed sharing alone: what is sealed, who holds whose data, what is counted and refused."""

from typing import Any

import numpy as np
import pytest

from codedfl.cipher.seals import Z_64, pack_upper
from codedfl.errors import CipherError
from codedfl.schemes import Message, Public, Work
from codedfl.schemes.sealing import Formats
from codedfl.schemes.sharing.sealed import (
    GRAM,
    MOMENTS,
    Sealed,
    SealedCodec,
    SealedDevice,
    SealedOptions,
    fresh_grant,
    pad_of,
)
from codedfl.task import Shard

PUBLIC = Public((4, 4, 4), 3, 2, np.dtype("float64"))
FORMATS = Formats.choose(Z_64, PUBLIC)
RNG = np.random.default_rng(5)
SHARDS = [Shard(RNG.uniform(-1, 1, (4, 3)), RNG.uniform(-1, 1, (4, 2))) for _ in range(3)]
MODEL = np.array([[0.5, -1.0], [0.25, 2.0], [1.0, -0.75]])
TRIANGLE = 3 * 4 // 2


def device(index: int, public: Public = PUBLIC) -> SealedDevice:
    return SealedDevice(index, SHARDS[index], FORMATS, public)


def grams(*devices: int) -> np.ndarray:
    """The sum of the rounded Gram matrices."""
    return np.sum([FORMATS.gram.decode_sum(FORMATS.gram.encode(SHARDS[each].gram)) for each in devices], axis=0)


def sides(*devices: int) -> np.ndarray:
    form = FORMATS.moments
    return -np.sum([form.decode_sum(form.encode(SHARDS[each].moments)) for each in devices], axis=0)


class TestGrants:
    def test_a_seed_is_fresh_and_has_a_number(self) -> None:
        one, other = fresh_grant(4), fresh_grant(5)
        assert [len(each["seed"]) for each in (one, other)] == [32, 32]
        assert not np.array_equal(one["seed"], other["seed"])
        assert [int(each["export"]) for each in (one, other)] == [4, 5]

    @pytest.mark.parametrize("missing", ["seed", "export"])
    def test_an_incomplete_grant_seals_nothing(self, missing: str) -> None:
        grant = fresh_grant(1)
        del grant[missing]
        with pytest.raises(CipherError, match=f"without {missing} seals nothing: device 2 sends no data in clear"):
            pad_of(Z_64, 2, grant, GRAM)
        held = device(2)
        with pytest.raises(CipherError, match="seals nothing"):
            held.export(grant, Work())
        assert len(held.held) == 3, "a refusal changes nothing"

    def test_device_block_number_and_nonce_make_other_pads(self) -> None:
        grant, later = fresh_grant(1), fresh_grant(1)
        later["seed"] = grant["seed"]
        pads = [
            pad_of(Z_64, 2, grant, GRAM),
            pad_of(Z_64, 1, grant, GRAM),
            pad_of(Z_64, 2, grant, MOMENTS),
            pad_of(Z_64, 2, grant | {"export": np.array(2)}, GRAM),
            pad_of(Z_64, 2, grant, GRAM, b"one"),
            pad_of(Z_64, 2, grant, GRAM, b"two"),
        ]
        assert len({pad.residues(4).tobytes() for pad in pads}) == 6
        assert np.array_equal(pads[0].residues(4), pad_of(Z_64, 2, later, GRAM).residues(4))


class TestDevices:
    def test_replies_are_counted(self) -> None:
        """Products of 2 x 3 and 3 x 3; a first gradient only where the request asks for it."""
        mine, work = device(1), Work()
        assert np.array_equal(FORMATS.moments.decode_sum(mine.reply(1, {}, work)["moments"]), sides(1))
        assert work.macs == 0
        mine.reply(1, {"model": np.zeros((3, 2), np.uint64)}, work)
        assert work.macs == 18
        sent = FORMATS.gram.encode_model(MODEL)
        found = mine.reply(2, {"model": sent.residues}, work)["product"]
        assert FORMATS.gram.decode_product(found, sent) == pytest.approx(sent.value.T @ grams(1), rel=0, abs=1e-14)
        assert work.macs == 36

    def test_a_model_of_another_shape_is_refused(self) -> None:
        with pytest.raises(CipherError, match="The model for device 1"):
            device(1).reply(2, {"model": np.zeros((3, 2), np.uint64)}, Work())

    def test_a_hand_over_takes_everything_along(self) -> None:
        """2 goes to 1 and both to 0, each under a pad; what is sealed and what is added is counted."""
        devices = [device(index) for index in range(3)]
        grants = [fresh_grant(number) for number in range(3)]
        pads, works = [], []
        for sender, recipient in ((2, 1), (1, 0)):
            work, receiving = Work(), Work()
            assert devices[sender].owners(grants[sender]) == set(range(sender, 3))
            owners = devices[sender].owners(grants[sender])
            parcel = devices[sender].export(grants[sender], work)
            assert set(parcel) == {"gram"}
            assert parcel["gram"].shape == (TRIANGLE,)
            devices[recipient].absorb_from(sender, parcel, receiving, owners)
            works.append((work.macs, receiving.macs))
            pads.append(pad_of(Z_64, sender, grants[sender], GRAM).residues(TRIANGLE))
            assert devices[sender].covers(2) == devices[sender].owners(grants[sender]) == frozenset()
        assert works == [(TRIANGLE, TRIANGLE)] * 2
        assert devices[0].covers(2) == {0, 1, 2}
        assert devices[0].covers(1) == {0}
        open_sum = Z_64.subtract(Z_64.subtract(pack_upper(devices[0].held), pads[0]), pads[1])
        assert FORMATS.gram.decode_sum(open_sum) == pytest.approx(pack_upper(grams(0, 1, 2)), rel=0, abs=1e-14)
        for retired in (1, 2):
            with pytest.raises(CipherError, match=f"Device {retired} has handed over its data"):
                _ = devices[retired].held

    def test_right_hand_sides_move_alone(self) -> None:
        one, other, work = device(1), device(0), Work()
        grant = fresh_grant(3) | {"moments": np.array(1, np.int8)}
        assert one.owners(grant) == {1}
        parcel = one.export(grant, work)
        assert (set(parcel), parcel["moments"].shape, work.macs) == ({"moments"}, (3, 2), 6)
        assert not one.reply(1, {}, Work())["moments"].any()
        assert one.owners(grant) == one.covers(1) == frozenset()
        assert one.covers(2) == {1}
        assert len(one.held) == 3
        other.absorb_from(1, parcel, work, frozenset({1}))
        assert work.macs == 12
        assert (other.covers(1), other.covers(2)) == ({0, 1}, {0})
        pad = pad_of(Z_64, 1, grant, MOMENTS).residues(6).reshape(3, 2)
        total = Z_64.subtract(other.reply(1, {}, Work())["moments"], pad)
        assert FORMATS.moments.decode_sum(total) == pytest.approx(sides(0, 1), rel=0, abs=1e-14)

    @pytest.mark.parametrize("kind", ["moments", "gram"])
    def test_nobodys_data_are_taken_twice(self, kind: str) -> None:
        parcel: Message = {"moments": np.zeros((3, 2), np.uint64)}
        if kind == "gram":
            parcel = {"gram": np.zeros(TRIANGLE, np.uint64)}
        mine = device(1)
        mine.absorb_from(0, parcel, Work(), frozenset({0, 2}))
        before = mine.held.copy(), mine.reply(1, {}, Work())["moments"].copy()
        for owners, first in ((frozenset({1, 2}), 1), (frozenset({2}), 2)):
            with pytest.raises(CipherError, match=f"device 0 is refused: .* 1 holds data of device {first} already"):
                mine.absorb_from(0, parcel, Work(), owners)
        assert np.array_equal(mine.held, before[0])
        assert np.array_equal(mine.reply(1, {}, Work())["moments"], before[1])

    @pytest.mark.parametrize("parcel", [{"moments": np.zeros((2, 3), np.uint64)}, {"gram": np.zeros(9, np.uint64)}])
    def test_parcels_of_other_shapes_are_refused(self, parcel: Message) -> None:
        with pytest.raises(CipherError, match="A parcel of device 0"):
            device(1).absorb_from(0, parcel, Work())


class TestCodec:
    @pytest.mark.parametrize("nonces", [(), (b"zero", b"one", b"two")])
    @pytest.mark.parametrize("everyone", [True, False])
    def test_the_sum_of_right_hand_sides_is_opened_at_once(self, everyone: bool, nonces: tuple[bytes, ...]) -> None:
        public = Public(PUBLIC.samples, 3, 2, PUBLIC.dtype, nonces=nonces)
        codec, devices = SealedCodec(public, FORMATS), [device(index, public) for index in range(3)]
        (stage,) = codec.set_up()
        assert [(each.sender, each.recipient) for each in stage.transfers] == [(1, 0), (2, 0)]
        assert [int(each.grant["export"]) for each in stage.transfers] == [1, 2]
        for each in stage.transfers:
            devices[0].absorb_from(each.sender, devices[each.sender].export(each.grant, Work()), Work())
        asked = codec.first_round(MODEL, (0, 1, 2), everyone=everyone)
        assert list(asked.requests) == ([0, 1, 2] if everyone else [0])
        assert asked.expected is not None
        assert asked.expected[0] == {"moments": (np.dtype("uint64"), (3, 2))}
        assert np.array_equal(asked.point, np.zeros((3, 2)))
        assert [set(each) for each in asked.requests.values()] == ([{"model"}] * 3 if everyone else [set()])
        replies = {number: devices[number].reply(1, request, Work()) for number, request in asked.requests.items()}
        if everyone:
            assert asked.requests[1]["model"].shape == (3, 2)
            assert not asked.requests[1]["model"].any()
        work = Work()
        assert codec.decode_first(replies, work) == pytest.approx(sides(0, 1, 2), rel=0, abs=1e-14)

    def test_pads_of_hand_overs_are_taken_from_the_sum(self) -> None:
        """The server multiplies the summed pads, 2 x 3 times 3 x 3, once there are any."""
        codec, devices = SealedCodec(PUBLIC, FORMATS), [device(index) for index in range(3)]
        active, counts, numbers = [0, 1, 2], [], []
        for sender in (2, 1, None):
            request, reply, point = codec.encode(MODEL)
            assert reply == {"product": (np.dtype("uint64"), (2, 3))}
            assert point == pytest.approx(MODEL, abs=1e-3)
            work = Work()
            replies = {each: devices[each].reply(2, request, Work()) for each in active}
            assert codec.decode(replies, work) == pytest.approx(grams(0, 1, 2) @ point, abs=1e-12)
            counts.append(work.macs)
            if sender is not None:
                grant: Any = codec.grant(sender, ())
                numbers.append(int(grant["export"]))
                parcel = devices[sender].export(grant, Work())
                devices[sender - 1].absorb_from(sender, parcel, Work(), frozenset(range(sender, 3)))
                active.remove(sender)
        assert counts == [0, 18, 18]
        assert numbers == [1, 2], "no two exports have one number"


def test_a_scheme_takes_parcels_of_words() -> None:
    made = Sealed(PUBLIC, SealedOptions(ring="Z_2^32"))
    word = np.dtype("uint32")
    assert made.parcels(1) == ({"moments": (word, (3, 2))}, {"gram": (word, (TRIANGLE,))})
    assert made.reply_sum(1, {}) is made.formats.ring
    assert SealedOptions().delta == 1
