"""Masks: agreements against RFC 7748 and HKDF by hand, pads that cancel, envelopes that open for one address only."""

import hmac

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.cipher.masks.pairwise import AGREEMENT_OPERATIONS, AgreementKey, add_mask, close_envelope, open_envelope
from codedfl.cipher.seals import RINGS, Domain, Pad, Ring, Seed
from codedfl.errors import CipherError
from tiny import is_one_sentence

rings = st.sampled_from(list(RINGS.values()))
ALICE = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
SHARED = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")


def hkdf(secret: bytes, info: bytes) -> bytes:
    """RFC 5869 in one step, from HMAC."""
    return hmac.digest(hmac.digest(bytes(32), secret, "sha256"), info + b"\x01", "sha256")


def test_agreements_are_those_of_rfc_7748() -> None:
    """Section 6.1: the public keys and the shared secret of Alice and Bob, and HKDF of it bound to both keys."""
    alice, bob = AgreementKey(ALICE), AgreementKey(BOB)
    assert alice.public.hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert bob.public.hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    info = b"codedfl agreement 1 mask\x00" + alice.public + bob.public
    assert alice.agree(bob.public, "mask") == bob.agree(alice.public, "mask") == hkdf(SHARED, info)
    assert alice.agree(bob.public, "envelope") != alice.agree(bob.public, "mask")


def test_keys_are_fresh_and_never_shown() -> None:
    keys = [AgreementKey() for _ in range(4)]
    assert len({key.public for key in keys}) == len({key.secret for key in keys}) == 4
    assert AgreementKey(keys[0].secret).public == keys[0].public
    assert keys[0].secret.hex() not in repr(keys[0])
    assert repr(keys[0]) == "AgreementKey(secret)"


def test_what_an_agreement_is_charged_with() -> None:
    """RFC 7748, section 5: ten field products a bit; 2^255 - 21 as exponent: 254 squares and 11 products."""
    assert AGREEMENT_OPERATIONS == (255 * 10 + 254 + 11) * 64


@given(rings, st.integers(2, 6), st.integers(1, 50), st.integers(0, 2**32))
@settings(max_examples=25)
def test_pairwise_masks_cancel_in_the_sum(ring: Ring, devices: int, count: int, epoch: int) -> None:
    """The lower number adds, the higher takes away; a single device's words are changed all the same."""
    keys = [AgreementKey() for _ in range(devices)]
    total = np.zeros(count, ring.dtype)
    for own in range(devices):
        words = np.zeros(count, ring.dtype)
        for other in range(devices):
            if other != own:
                secret = keys[own].agree(keys[other].public, "mask")
                add_mask(ring, secret, Domain(0, epoch), words, minus=other < own)
        expected = [Pad(ring, Seed(keys[own].agree(keys[o].public, "mask")), Domain(0, epoch)) for o in range(devices)]
        signed = sum(
            (1 if other > own else -1) * expected[other].residues(count).astype(object)
            for other in range(devices)
            if other != own
        )
        assert np.array_equal(words.astype(object), signed % ring.modulus)
        total = ring.add(total, words)
    assert not total.any()


@given(st.binary(min_size=1, max_size=80), st.binary(max_size=24), st.data())
@settings(max_examples=40)
def test_an_envelope_opens_for_its_key_and_address_only(contents: bytes, address: bytes, data: st.DataObject) -> None:
    key = data.draw(st.binary(min_size=32, max_size=32))
    closed = close_envelope(key, contents, address)
    assert len(closed) == len(contents) + 28
    assert open_envelope(key, closed, address) == contents
    assert close_envelope(key, contents, address) != closed, "nonces are fresh"
    place = data.draw(st.integers(0, len(closed) - 1))
    altered = bytes(byte ^ (place == at) for at, byte in enumerate(closed))
    wrong = [(key, altered, address), (key, closed, address + b"1"), (bytes(31) + b"\x07", closed, address)]
    wrong += [(key, closed[:20], address), (key, b"", address)]
    for others in wrong:
        with pytest.raises(CipherError, match="does not open") as error:
            open_envelope(*others)
        assert is_one_sentence(str(error.value))


@pytest.mark.parametrize("public", [bytes(32), b"\x01" + bytes(31), bytes(31)], ids=["zero", "one", "short"])
def test_keys_that_are_none_are_refused(public: bytes) -> None:
    with pytest.raises(CipherError, match="none of X25519") as error:
        AgreementKey().agree(public, "mask")
    assert is_one_sentence(str(error.value))


def test_a_private_key_of_another_length_is_refused() -> None:
    with pytest.raises(CipherError, match="31 bytes") as error:
        AgreementKey(bytes(31))
    assert is_one_sentence(str(error.value))
