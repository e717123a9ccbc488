"""Devices, codec and backends of homomorphic encryption alone, against integers that are added and multiplied here."""

import math
from typing import Any

import numpy as np
import pytest

from codedfl.cipher.ckks import keys as ckks
from codedfl.cipher.ckks.lattice import Lattice
from codedfl.errors import DataError, ScenarioError
from codedfl.schemes import Public, Work
from codedfl.schemes.sealing import Formats
from codedfl.schemes.sharing.he import Encrypted, EncryptedCodec, EncryptedDevice, EncryptedOptions
from codedfl.schemes.sharing.he_backends import RING, CkksBackend, CkksOpener, ClearBackend, ClearOpener
from codedfl.task import Shard

FEATURES, OUTPUTS = 5, 3
LATTICE = Lattice.holding(FEATURES)
PUBLIC = Public((4, 4, 4), FEATURES, OUTPUTS, np.dtype("float64"))
FORMATS = Formats.choose(RING, PUBLIC)
RNG = np.random.default_rng(3)
SHARDS = [Shard(RNG.uniform(-1, 1, (4, FEATURES)), RNG.uniform(-1, 1, (4, OUTPUTS))) for _ in range(3)]
MODEL = RNG.uniform(-1, 1, (FEATURES, OUTPUTS))
SIDE, GRAM = 2, 3
"""Ciphertexts of three right-hand sides and of five rows, two in each."""

needs_tenseal = pytest.mark.skipif(not ckks.installed(), reason="TenSEAL is not installed")
BACKENDS = [pytest.param("ckks", marks=needs_tenseal), "costs"]


def sides_of(backend: str) -> tuple[Any, Any]:
    """The server's side, and a device's side that has its key."""
    if backend == "costs":
        return ClearOpener(LATTICE, FEATURES), ClearBackend(LATTICE, FEATURES)
    opener, made = CkksOpener(LATTICE, FEATURES), CkksBackend(LATTICE)
    made.take_key(opener.public_words)
    return opener, made


def residues(*integers: list[int]) -> np.ndarray:
    return np.array(integers, np.int64).astype(np.uint32)


@pytest.mark.parametrize("backend", BACKENDS)
class TestBackends:
    rows = residues([1, -2, 3, 0, 0], [0, 7, -1, 1, 2], [5, 5, 5, -5, 4])
    others = residues([0, 0, 1, 0, 9], [3, 0, 0, -8, 0], [0, 2, 0, 0, 0])

    def test_rows_are_stored_in_pairs(self, backend: str) -> None:
        opener, made = sides_of(backend)
        packed = made.to_bytes(made.hide(self.rows))
        assert (packed.dtype, packed.shape) == (np.uint8, (2, LATTICE.ciphertext_bytes))
        found = opener.open_sum([packed])
        assert (found.dtype, found.shape) == (np.uint32, (2, 2, FEATURES))
        assert np.array_equal(found.reshape(4, FEATURES), np.concatenate([self.rows, residues([0] * 5)]))

    def test_sums_are_opened_together(self, backend: str) -> None:
        opener, made = sides_of(backend)
        one, other = made.hide(self.rows), made.hide(self.others)
        added = made.to_bytes(made.add(one, other))
        assert np.array_equal(opener.open_sum([added]).reshape(4, FEATURES)[:3], self.rows + self.others)
        parts = [made.to_bytes(one), made.to_bytes(one), made.to_bytes(other)]
        found = opener.open_sum(parts).reshape(4, FEATURES)[:3]
        assert np.array_equal(found, self.rows + self.others + self.rows)

    def test_products_are_those_of_integers(self, backend: str) -> None:
        opener, made = sides_of(backend)
        left = residues([1, -1, 2], [0, 3, 0])
        held = made.from_bytes(made.to_bytes(made.hide(self.rows)))
        found = opener.open_sum([made.to_bytes(made.multiply(left, held))])
        assert found.shape == (2, 2, FEATURES)
        assert np.array_equal(found[:, 0], residues([11, 1, 14, -11, 6], [0, 21, -3, 3, 6]))

    def test_keys_are_as_long_as_two_pairs_of_polynomials(self, backend: str) -> None:
        opener, _ = sides_of(backend)
        assert opener.public_words.shape == (4 * LATTICE.degree,)
        assert opener.public_words.dtype == np.uint64
        assert bool(opener.public_words.any()) is (backend == "ckks")


@needs_tenseal
def test_nothing_is_encrypted_before_a_key_has_arrived() -> None:
    with pytest.raises(RuntimeError, match="no public key"):
        CkksBackend(LATTICE).hide(TestBackends.rows)


def test_what_costs_only_is_padded_with_zeros() -> None:
    made = ClearBackend(LATTICE, FEATURES)
    packed = made.to_bytes(made.hide(TestBackends.rows))
    assert packed[:, : 8 * FEATURES].tobytes()[:60] == TestBackends.rows.astype("<u4").tobytes()
    assert not packed[:, 8 * FEATURES :].any()
    second = made.multiply(residues([1, 1, 1]), made.hide(TestBackends.rows))[:, 1]
    assert not second.any()


def placed() -> tuple[EncryptedCodec, list[EncryptedDevice], list[tuple[int, int]]]:
    """Codec and devices after the set-up, and the work of sender and recipient of each transfer."""
    opener, _ = sides_of("costs")
    codec = EncryptedCodec(PUBLIC, FORMATS, opener, LATTICE)
    devices = [EncryptedDevice(i, SHARDS[i], FORMATS, ClearBackend(LATTICE, FEATURES)) for i in range(3)]
    works = []
    for stage in codec.set_up():
        for each in stage.transfers:
            sending, receiving = Work(), Work()
            parcel = devices[each.sender].export(each.grant, sending)
            assert {name: array.shape for name, array in parcel.items()} == {
                "moments": (SIDE, LATTICE.ciphertext_bytes)
            }
            devices[each.recipient].absorb(parcel, receiving)
            works.append((sending.macs, receiving.macs))
    return codec, devices, works


class TestParties:
    """Right-hand sides go from 0 to 1, and with those of all others to 0; every export encrypts two ciphertexts."""

    encryption = LATTICE.encryption_macs(SIDE)
    addition = SIDE * LATTICE.words

    def test_the_first_device_sends_first(self) -> None:
        codec = EncryptedCodec(PUBLIC, FORMATS, sides_of("costs")[0], LATTICE)
        ways = [[(each.sender, each.recipient) for each in stage.transfers] for stage in codec.set_up()]
        assert ways == [[(0, 1)], [(1, 0), (2, 0)]]

    @pytest.mark.parametrize("everyone", [True, False])
    def test_the_sum_of_right_hand_sides_is_opened_at_once(self, everyone: bool) -> None:
        codec, devices, works = placed()
        assert works == [(self.encryption, self.addition)] * 3
        asked = codec.first_round(MODEL, (0, 1, 2), everyone=everyone)
        assert list(asked.requests) == ([0, 1, 2] if everyone else [0])
        assert np.array_equal(asked.point, np.zeros((FEATURES, OUTPUTS)))
        assert asked.expected is not None
        assert asked.expected[0] == {"moments": (np.dtype("uint8"), (SIDE, LATTICE.ciphertext_bytes))}
        work, counting = Work(), Work()
        replies = {number: devices[number].reply(1, request, work) for number, request in asked.requests.items()}
        first = FEATURES**2 * OUTPUTS
        assert work.macs == (3 * (self.encryption + first) if everyone else self.encryption)
        form = FORMATS.moments
        exact = -sum(form.decode_sum(form.encode(shard.moments)) for shard in SHARDS)
        assert np.array_equal(codec.decode_first(replies, counting), exact)
        assert counting.macs == LATTICE.decryption_macs(SIDE)

    def test_products_are_those_of_all_data_wherever_they_lie(self) -> None:
        codec, devices, _ = placed()
        form = FORMATS.gram
        total = sum(form.decode_sum(form.encode(shard.gram)) for shard in SHARDS)
        active = [0, 1, 2]
        for sender, recipient in ((2, 1), (1, 0), (None, None)):
            request, reply, point = codec.encode(MODEL)
            assert reply == {"product": (np.dtype("uint8"), (OUTPUTS, LATTICE.ciphertext_bytes))}
            work, counting = Work(), Work()
            replies = {each: devices[each].reply(2, request, work) for each in active}
            assert work.macs == len(active) * OUTPUTS * GRAM * LATTICE.words, "whatever was received"
            assert codec.decode(replies, counting) == pytest.approx(total @ point, rel=0, abs=1e-12)
            assert counting.macs == LATTICE.decryption_macs(OUTPUTS)
            if sender is not None and recipient is not None:
                moving, receiving = Work(), Work()
                parcel = devices[sender].export({}, moving)
                assert {name: array.shape for name, array in parcel.items()} == {
                    "gram": (GRAM, LATTICE.ciphertext_bytes)
                }
                devices[recipient].absorb(parcel, receiving)
                assert (moving.macs, receiving.macs) == (0, GRAM * LATTICE.words)
                active.remove(sender)
                with pytest.raises(RuntimeError, match=f"device {sender} has handed over its data and retired"):
                    _ = devices[sender].held

    def test_what_is_received_before_the_first_epoch_is_added_to_its_own(self) -> None:
        made = ClearBackend(LATTICE, FEATURES)
        mine = EncryptedDevice(0, SHARDS[0], FORMATS, made)
        zeros = {"moments": made.to_bytes(made.hide(residues([1] * 5, [0] * 5, [0] * 5)))}
        before = made.from_bytes(mine.reply(1, {}, Work())["moments"])
        for _ in range(3):
            mine.absorb(zeros, Work())
        gained = made.from_bytes(mine.reply(1, {}, Work())["moments"]) - before
        assert np.array_equal(gained.reshape(4, FEATURES), residues([3] * 5, [0] * 5, [0] * 5, [0] * 5))


class TestScheme:
    def test_parcels_are_ciphertexts(self) -> None:
        made = Encrypted(PUBLIC, EncryptedOptions(backend="costs"))
        byte = np.dtype("uint8")
        size = LATTICE.ciphertext_bytes
        assert made.parcels(0) == ({"moments": (byte, (SIDE, size))}, {"gram": (byte, (GRAM, size))})

    def test_devices_refuse_data_beyond_the_agreed_bound(self) -> None:
        """Entries of one row are below what four rows may have, so that only the rows tell."""
        made = Encrypted(PUBLIC, EncryptedOptions(backend="costs"))
        for x, y, said in ((1.5, 0.5, "a feature of size 1.5"), (0.5, 1.5, "a target of size 1.5")):
            shard = Shard(np.full((1, FEATURES), x), np.full((1, OUTPUTS), y))
            with pytest.raises(DataError, match=said):
                made.device(0, shard)

    def test_models_of_two_steps_are_not_too_coarse(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of four features, a length of 2 * sqrt(4)."""
        made = Encrypted(Public((4, 4), 4, 2, PUBLIC.dtype), EncryptedOptions(backend="costs"))
        monkeypatch.setattr(Lattice, "longest", lambda self, summands: 4.0)
        made.check()
        monkeypatch.setattr(Lattice, "longest", lambda self, summands: math.nextafter(4.0, 0))
        with pytest.raises(ScenarioError, match="too much noise for 4 features on 2 devices"):
            made.check()

    @pytest.mark.parametrize(("backend", "verdict"), [("ckks", "server sees replies"), ("costs", "models costs only")])
    def test_real_sites_must_encrypt(self, backend: str, verdict: str) -> None:
        made = Encrypted(PUBLIC, EncryptedOptions(backend=backend))
        assert (made.encrypts, made.verdict) == (backend == "ckks", verdict)
        assert (made.unfit_for_sites is None) is made.encrypts
        assert ("encrypts nothing" in made.allowed_if) is not made.encrypts
        assert ({cell.verdict for cell in made.secrecy()} == {"not examined"}) is not made.encrypts
