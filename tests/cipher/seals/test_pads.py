"""Pads: AES against independent routes, uniformity, one use each, streaming, and products that never hold a matrix."""

import hmac
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from codedfl.cipher.seals import (
    FIELD_31,
    RINGS,
    Z_32,
    Z_64,
    Domain,
    FixedPoint,
    Pad,
    PadLedger,
    Ring,
    Seed,
    pack_upper,
    packed_size,
    seal,
    unpack_upper,
)
from codedfl.cipher.seals import pads as pads_module
from codedfl.errors import CipherError

SECRET = b"seed of thirty-two bytes, fixed."
every_ring = pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS.keys())
rings = st.sampled_from(list(RINGS.values()))


def pad_of(ring: Ring, device: int = 0, export: int = 0, block: int = 0) -> Pad:
    return Pad(ring, Seed(SECRET), Domain(device, export, block))


def hmac_sha256(key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, "sha256").digest()


def by_hand(ring: Ring, domain: tuple[int, int, int], words: int) -> np.ndarray:
    """Words of the key stream from HMAC (RFC 5869 in one step) and single AES blocks (no counter mode involved)."""
    info = b"codedfl pad 1 " + ring.name.encode() + b"\x00" + b"".join(n.to_bytes(8, "big") for n in domain) + b"stream"
    key = hmac_sha256(hmac_sha256(bytes(32), SECRET), info + b"\x01")
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    count = -(-words * ring.dtype.itemsize // 16)
    stream = b"".join(block.update(counter.to_bytes(16, "big")) for counter in range(count))
    return np.frombuffer(stream, ring.dtype.newbyteorder("<"))[:words]


@pytest.mark.parametrize("ring", [Z_32, Z_64], ids=str)
def test_the_stream_is_aes_of_the_counter(ring: Ring) -> None:
    np.testing.assert_array_equal(pad_of(ring, 3, 1, 4).residues(50), by_hand(ring, (3, 1, 4), 50))


def test_the_field_keeps_31_bits_of_each_word() -> None:
    np.testing.assert_array_equal(pad_of(FIELD_31).residues(50), by_hand(FIELD_31, (0, 0, 0), 50) & (2**31 - 1))


def test_counter_mode_is_that_of_nist() -> None:
    """SP 800-38A, F.5.5: CTR-AES256, first two blocks; the key stream is the output block."""
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    counter = int("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", 16)
    stream = pads_module.key_stream(key, counter).update(bytes(32))
    assert stream.hex() == "0bdf7df1591716335e9a8b15c860c502" + "5a6e699d536119065433863c8f657b94"


@given(rings, st.integers(0, 70_000), st.integers(0, 200_000))
@settings(max_examples=25)
def test_a_pad_is_added_and_subtracted_as_a_whole(ring: Ring, count: int, more: int) -> None:
    pad = pad_of(ring)
    whole = pad.residues(count)
    np.testing.assert_array_equal(pad.residues(count + more)[:count], whole)
    padded = np.full(count, ring.modulus - 1, ring.dtype)
    pad.add_to(padded)
    np.testing.assert_array_equal(padded, ring.subtract(whole, np.ones(count, ring.dtype)))
    pad.take_from(padded)
    assert np.all(padded == ring.modulus - 1)


@given(st.lists(st.tuples(*[st.integers(0, 300)] * 3), min_size=2, max_size=2, unique=True), rings)
@settings(max_examples=40)
def test_other_domains_have_other_pads(domains: list[tuple[int, int, int]], ring: Ring) -> None:
    """Two unrelated pads agree in a given residue with probability 2^-31 or less, in two with 2^-62."""
    first, second = (pad_of(ring, *domain).residues(8) for domain in domains)
    assert np.count_nonzero(first == second) <= 1


def test_other_seeds_and_rings_have_other_pads() -> None:
    streams = [pad_of(Z_32).residues(8), pad_of(FIELD_31).residues(8), pad_of(Z_64).residues(4).view(np.uint32)]
    streams += [Pad(Z_32, seed, Domain(0, 0)).residues(8) for seed in (Seed(), Seed())]
    low = [stream & (2**31 - 1) for stream in streams]
    assert all(np.count_nonzero(low[i] == low[j]) <= 1 for i in range(5) for j in range(i))


@every_ring
@pytest.mark.parametrize("part", ["high", "low"])
def test_residues_are_uniform(ring: Ring, part: str) -> None:
    """Chi-square of 256 cells on 2^18 residues, the range cut into equal cells or by the low byte.

    The seed is fixed; a correct generator would fail for one seed in a million for each of the six tests.
    """
    residues = pad_of(ring, 1).residues(1 << 18)
    cells = residues.astype(object) * 256 // ring.modulus if part == "high" else residues % 256
    counts = np.bincount(cells.astype(np.int64), minlength=256)
    expected = residues.size / 256
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 255)


class _Scripted:
    """A key stream that gives words of our choice."""

    def __init__(self, words: list[int]) -> None:
        self._words = np.array(words, "<u4").tobytes()

    def update(self, zeros: bytes) -> bytes:
        taken, self._words = self._words[: len(zeros)], self._words[len(zeros) :]
        assert len(taken) == len(zeros), "no more words are needed"
        return taken

    def update_into(self, zeros: Any, out: Any) -> int:
        out[:] = self.update(zeros)
        return len(out)


def test_a_word_that_is_no_residue_is_drawn_again_from_its_own_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    p, pad, asked = FIELD_31.modulus, pad_of(FIELD_31), []

    def scripted(key: bytes, counter: int) -> _Scripted:
        asked.append((key, counter))
        if key == pad._key:
            return _Scripted([5, p, 2**32 - 1, p - 1][counter * 4 :])
        return _Scripted({1: [p, 2**32 - 1, 77], 2: [2**31 + 9]}[counter >> 64])

    monkeypatch.setattr(pads_module, "key_stream", scripted)
    assert pad.residues(4).tolist() == [5, 77, 9, p - 1]
    assert {counter for key, counter in asked if key != pad._key} == {1 << 64, 2 << 64}


def test_no_pad_is_used_twice() -> None:
    ledger, seed = PadLedger(), Seed()
    seal(np.zeros(4, np.uint32), Pad(Z_32, seed, Domain(1, 0)), ledger)
    for other in (Domain(1, 1), Domain(1, 0, 1), Domain(2, 0)):
        seal(np.zeros(4, np.uint32), Pad(Z_32, seed, other), ledger)
    untouched = np.zeros(4, np.uint32)
    with pytest.raises(CipherError, match=r"Domain\(device=1, export=0, block=0\) has hidden data before"):
        seal(untouched, Pad(Z_32, seed, Domain(1, 0)), ledger)
    assert not untouched.any()
    assert len(ledger) == 4


def test_seeds_are_fresh_and_never_shown() -> None:
    seed = Seed(SECRET)
    pad = Pad(Z_32, seed, Domain(1, 2))
    for text in (repr(seed), str(seed), repr(pad), f"{[seed, pad]}"):
        assert "thirty" not in text
        assert SECRET.hex() not in text
    assert Seed().derive(b"x") != Seed().derive(b"x")
    with pytest.raises(CipherError, match="A seed of 16 bytes does not fit"):
        Seed(bytes(16))
    with pytest.raises(CipherError, match="numbers from 0"):
        Pad(Z_32, seed, Domain(-1, 0))


@given(st.integers(0, 70), st.sampled_from([np.uint32, np.float64]), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_triangles_unpack_to_what_was_packed(d: int, dtype: type, seed: int) -> None:
    A = np.random.default_rng(seed).integers(0, 2**20, (d, d)).astype(dtype)
    A = np.triu(A) + np.triu(A, 1).T
    packed = pack_upper(A)
    np.testing.assert_array_equal(packed, A[np.triu_indices(d)])
    np.testing.assert_array_equal(unpack_upper(packed), A)


def test_triangles_that_are_none_are_refused() -> None:
    with pytest.raises(CipherError, match="4 entries are no upper triangle"):
        unpack_upper(np.zeros(4, np.uint32))


@every_ring
def test_sealed_sharing_from_end_to_end(ring: Ring) -> None:
    """Three devices seal, one sums and multiplies, the server takes the pads off: what no pad at all would give."""
    rng = np.random.default_rng(1)
    features = rng.uniform(-1, 1, (3, 40, 12))
    numbers = FixedPoint.choose(ring, entry_bound=40.0, summands=3, dimension=12)
    sealed, plain = np.zeros(packed_size(12), ring.dtype), np.zeros(packed_size(12), ring.dtype)
    pads = []
    for device, x in enumerate(features):
        pads.append(Pad(ring, Seed(), Domain(device, 0)))
        ring.add(plain, numbers.encode_symmetric(x.T @ x), out=plain)
        ring.add(sealed, seal(numbers.encode_symmetric(x.T @ x), pads[-1], PadLedger()), out=sealed)
    model = numbers.encode_model(rng.standard_normal((12, 4)))
    reply = ring.product(model.residues, unpack_upper(sealed))
    masks = [ring.product(model.residues, unpack_upper(pad.residues(packed_size(12)))) for pad in pads]
    mask = ring.add(ring.add(masks[0], masks[1]), masks[2])
    opened = numbers.decode_product(ring.subtract(reply, mask), model)
    clear = numbers.decode_product(ring.product(model.residues, unpack_upper(plain)), model)
    np.testing.assert_array_equal(opened, clear)
    with pytest.raises(CipherError, match="a pad does not match"):
        numbers.decode_product(ring.subtract(reply, ring.add(masks[1], masks[2])), model)


def test_misuse_of_pads_is_refused() -> None:
    with pytest.raises(CipherError, match="one piece of memory"):
        seal(np.zeros((4, 4), np.uint32)[:, :2], pad_of(Z_32), PadLedger())
    with pytest.raises(CipherError, match="uint32 and these are uint64"):
        seal(np.zeros(4, np.uint64), pad_of(Z_32), PadLedger())
