"""Envelopes: only the named sender can have closed one, only the named recipient can open it, and only once."""

import contextlib
import hashlib
import itertools
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from codedfl.deploy.protocol.envelopes import DeviceKey, Envelopes, Member, SessionKey, fingerprint, statement, verify
from codedfl.errors import KeyFileError, ParcelError
from tiny import is_one_sentence

SITES = ("a", "b", "c")
KEYS = {site: DeviceKey() for site in SITES}
PINS = {site: key.fingerprint for site, key in KEYS.items()}


def session_keys() -> dict[str, SessionKey]:
    return {site: SessionKey() for site in SITES}


def members(fresh: dict[str, SessionKey], session: str = "s") -> dict[str, Member]:
    return {site: Member.of(KEYS[site], fresh[site], session, site) for site in SITES}


def all_envelopes(run: str = "run", fresh: dict[str, SessionKey] | None = None) -> dict[str, Envelopes]:
    fresh = fresh or session_keys()
    known = members(fresh)
    return {site: Envelopes(site, fresh[site], known[site], known, "s", run, PINS) for site in SITES}


def told(known: dict[str, Member], fresh: dict[str, SessionKey], pins: dict[str, str] | None = PINS) -> Envelopes:
    """Site a, to which the server announces these members in session s."""
    return Envelopes("a", fresh["a"], known["a"], known, "s", "run", pins)


def refused(envelopes: Envelopes, sender: str, parcel: bytes) -> str:
    with pytest.raises(ParcelError) as error:
        envelopes.open(sender, parcel)
    assert is_one_sentence(str(error.value))
    return str(error.value)


@given(st.lists(st.binary(max_size=100), min_size=1, max_size=4))
def test_what_is_closed_is_opened(contents: list[bytes]) -> None:
    sites = all_envelopes()
    for text in contents:
        parcel = sites["a"].close("b", text)
        assert sites["b"].open("a", parcel) == text
        assert sites["a"].open("b", sites["b"].close("a", text)) == text


def test_the_same_contents_look_different_every_time() -> None:
    """Two parcels of one site, and the first one of its peer, agree in the magic and in nothing that is encrypted."""
    sites, text = all_envelopes(), bytes(1000)
    parcels = sites["a"].close("b", text), sites["a"].close("b", text), sites["b"].close("a", text)
    assert parcels[0][:12] == parcels[2][:12], "the magic and number 1 in both directions"
    for one, other in itertools.combinations(parcels, 2):
        assert text[:32] not in one + other
        assert sum(x == y for x, y in zip(one[12:], other[12:], strict=True)) < 100  # 1016 bytes, 1 in 256 by chance


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_an_altered_parcel_is_refused(place: int, change: int) -> None:
    sites = all_envelopes()
    parcel = bytearray(sites["a"].close("b", b"contents"))
    parcel[place % len(parcel)] ^= change
    refused(sites["b"], "a", bytes(parcel))
    assert sites["b"].open("a", sites["a"].close("b", b"next")) == b"next"


@given(st.integers(0, 70))
def test_a_cut_parcel_is_refused(length: int) -> None:
    sites = all_envelopes()
    parcel = sites["a"].close("b", b"contents")
    refused(sites["b"], "a", parcel[: min(length, len(parcel) - 1)])


def test_a_parcel_is_opened_once_and_in_order() -> None:
    sites = all_envelopes()
    first, second = (sites["a"].close("b", text) for text in (b"1", b"2"))
    assert sites["b"].open("a", first) == b"1"
    assert "is a repetition" in refused(sites["b"], "a", first)
    assert sites["b"].open("a", second) == b"2"
    assert "is a repetition" in refused(sites["b"], "a", first)


def test_a_parcel_that_comes_after_a_later_one_is_refused() -> None:
    sites = all_envelopes()
    first, second = (sites["a"].close("b", text) for text in (b"1", b"2"))
    assert sites["b"].open("a", second) == b"2"
    assert "is a repetition" in refused(sites["b"], "a", first)


def test_a_parcel_for_another_or_from_another_is_refused() -> None:
    sites = all_envelopes()
    parcel = sites["a"].close("b", b"contents")
    assert "not encrypted by it" in refused(sites["c"], "a", parcel)
    assert "not encrypted by it" in refused(sites["b"], "c", parcel)
    assert sites["b"].open("a", parcel) == b"contents"


def test_a_parcel_does_not_come_back_to_its_sender() -> None:
    sites = all_envelopes()
    assert "not encrypted by it" in refused(sites["a"], "b", sites["a"].close("b", b"contents"))


def test_a_parcel_of_another_run_is_refused() -> None:
    """Also if the server gives two runs the same name: the sites have drawn other keys."""
    fresh = session_keys()
    parcel = all_envelopes("run", fresh)["a"].close("b", b"contents")
    assert "in this run" in refused(all_envelopes("other", fresh)["b"], "a", parcel)
    assert "in this run" in refused(all_envelopes("run")["b"], "a", parcel)
    assert all_envelopes("run", fresh)["b"].open("a", parcel) == b"contents"


def signed(message: bytes) -> Callable[[SessionKey], Member]:
    """Return what site b announces if it signs this statement instead; KEY stands for its session key."""
    return lambda fresh: Member(
        KEYS["b"].public, fresh.public, KEYS["b"].sign(message.replace(b"K" * 32, fresh.public))
    )


def stated(label: str = "codedfl session 2", session: bytes = b"s", site: bytes = b"b") -> bytes:
    return statement(label, session, site, b"K" * 32)


@pytest.mark.parametrize(
    "announced",
    [
        signed(stated(session=b"s0")),
        signed(stated(site=b"c")),
        signed(stated(label="codedfl record 1")),
        signed(stated()[:-1]),
        lambda fresh: Member(KEYS["b"].public, fresh.public, bytes(64)),
        lambda fresh: Member(KEYS["b"].public, fresh.public, Member.of(DeviceKey(), fresh, "s", "b").signature),
        lambda fresh: Member(KEYS["b"].public, fresh.public, Member.of(KEYS["b"], SessionKey(), "s", "b").signature),
    ],
    ids=["old session", "other site", "other label", "cut", "zeros", "other device key", "other session key"],
)
def test_a_session_key_that_is_not_signed_for_session_and_site_is_refused(
    announced: Callable[[SessionKey], Member],
) -> None:
    """So a key of an earlier session cannot be replayed, nor put in another site's place."""
    fresh = session_keys()
    known = members(fresh)
    for pins in (PINS, None):
        told(known | {"b": signed(stated())(fresh["b"])}, fresh, pins).close("b", b"contents")
        with pytest.raises(ParcelError, match="the session key of b is not signed by its device key") as error:
            told(known | {"b": announced(fresh["b"])}, fresh, pins)
        assert is_one_sentence(str(error.value))


def test_a_signature_is_of_one_key_and_one_statement() -> None:
    """Ed25519 of RFC 8032, section 7.1, test 2, signs and verifies as there."""
    seed = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    key = DeviceKey(Ed25519PrivateKey.from_private_bytes(seed))
    assert key.public.hex() == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    signature = key.sign(bytes.fromhex("72"))
    assert signature.hex() == (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert verify(key.public, b"r", signature)
    assert not verify(key.public, b"s", signature)
    assert not verify(DeviceKey().public, b"r", signature)
    assert not verify(key.public, b"r", signature[:-1])
    assert not verify(b"short", b"r", signature)


@given(st.lists(st.binary(max_size=3), max_size=3), st.lists(st.binary(max_size=3), max_size=3))
def test_statements_are_equal_only_if_all_parts_are(one: list[bytes], other: list[bytes]) -> None:
    """No part runs into the next."""
    assert (statement("l", *one) == statement("l", *other)) == (one == other)


def opened_with(privates: list[X25519PrivateKey], known: dict[str, Member], parcel: bytes) -> bytes | None:
    """Try all agreements of some private keys with all announced public keys on a parcel from a to b."""
    publics = [key for member in known.values() for key in (member.session, member.public)]
    parties = [part for site in ("a", "b") for part in (site.encode(), known[site].public, known[site].session)]
    info = b"".join(len(part).to_bytes(8, "little") + part for part in (b"codedfl parcel 2", b"run", *parties))
    for private, public in itertools.product(privates, publics):
        with contextlib.suppress(ValueError, InvalidTag):
            shared = private.exchange(X25519PublicKey.from_public_bytes(public))
            key = HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(shared)
            return AESGCM(key).decrypt(bytes(4) + parcel[4:12], parcel[12:], parcel[:4])
    return None


def test_parcels_of_a_session_that_is_over_do_not_open_with_all_long_term_keys() -> None:
    """Forward secrecy. One session key opens the recorded parcel, which shows that the attack is carried out rightly.

    Before, a parcel's key followed from an ephemeral and the recipient's long-term key: that one alone, with the
    sender's public key, opened all that was ever recorded.
    """
    fresh = session_keys()
    known, parcel = members(fresh), all_envelopes("run", fresh)["a"].close("b", b"contents")
    assert opened_with([fresh["b"]._private], known, parcel) == b"contents"
    assert opened_with([fresh["a"]._private], known, parcel) == b"contents"
    # the X25519 form of an Ed25519 key is the first half of the hash of its seed (RFC 8032, 5.1.5)
    seeds = [key._private.private_bytes_raw() for key in KEYS.values()]
    halves = [hashlib.sha512(seed).digest()[:32] for seed in seeds]
    privates = [X25519PrivateKey.from_private_bytes(text) for text in (*seeds, *halves)]
    assert opened_with(privates, known, parcel) is None
    later = session_keys()
    assert "in this run" in refused(all_envelopes("run", later)["b"], "a", parcel), "who poses as b has other keys"


def test_another_key_than_the_pinned_one_is_refused() -> None:
    fresh = session_keys()
    known = members(fresh) | {"b": Member.of(DeviceKey(), fresh["b"], "s", "b")}
    with pytest.raises(ParcelError, match="b has a key") as error:
        told(known, fresh)
    assert is_one_sentence(str(error.value))
    assert PINS["b"] in str(error.value)


def test_nothing_is_exchanged_with_a_site_that_has_no_pin() -> None:
    fresh = session_keys()
    envelopes = told(members(fresh), fresh, {"b": PINS["b"]})
    with pytest.raises(ParcelError, match="no key of c"):
        envelopes.close("c", b"contents")
    assert "no key of c" in refused(envelopes, "c", b"")
    assert "no key of d" in refused(envelopes, "d", b"")
    envelopes.close("b", b"contents")


def test_without_pins_the_announced_keys_are_taken() -> None:
    fresh = session_keys()
    known = members(fresh) | {"b": Member.of(DeviceKey(), fresh["b"], "s", "b")}
    told(known, fresh, None).close("b", b"contents")


def test_a_site_is_not_told_another_key_of_its_own() -> None:
    fresh = session_keys()
    known = members(fresh)
    other = known | {"a": Member.of(KEYS["a"], SessionKey(), "s", "a")}
    with pytest.raises(ParcelError, match="than its own"):
        Envelopes("a", fresh["a"], known["a"], other, "s", "run", PINS)


def test_a_key_that_is_none_is_refused() -> None:
    """All zeros is a point of low order: everyone would share the same secret with it."""
    for lengths in ((31, 32, 64), (32, 33, 64), (32, 32, 63)):
        with pytest.raises(ParcelError, match="versions agree"):
            Member(*map(bytes, lengths))
    fresh, zeros = session_keys(), statement("codedfl session 2", b"s", b"b", bytes(32))
    weak = members(fresh) | {"b": Member(KEYS["b"].public, bytes(32), KEYS["b"].sign(zeros))}
    with pytest.raises(ParcelError, match="the session key of b is invalid") as error:
        told(weak, fresh)
    assert is_one_sentence(str(error.value))


def test_refusals_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        refused(all_envelopes()["b"], "a", b"nothing")
    assert "b refused a parcel" in caplog.text


def test_a_key_is_written_for_its_owner_only_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "key"
    key = DeviceKey()
    key.write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert DeviceKey.read(path).public == key.public
    assert DeviceKey.read(path).fingerprint == fingerprint(key.public) == key.fingerprint
    assert key.fingerprint.startswith("sha256:")
    with pytest.raises(KeyFileError, match="cannot write"):
        DeviceKey().write(path)
    assert DeviceKey.read(path).public == key.public


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    DeviceKey().write(tmp_path / "key")
    (tmp_path / "key").chmod(mode)
    with pytest.raises(KeyFileError, match="set its mode to 600") as error:
        DeviceKey.read(tmp_path / "key")
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize("text", [b"", b"garbage", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_file_that_holds_no_key_is_refused(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_bytes(text)
    with pytest.raises(KeyFileError, match="holds no Ed25519 key"):
        DeviceKey.read(path)
    with pytest.raises(KeyFileError, match="cannot read"):
        DeviceKey.read(tmp_path / "none")


def test_a_key_of_an_earlier_version_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_bytes(X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(KeyFileError, match=r"holds an X25519 key of an earlier version.*`codedfl deploy key`") as error:
        DeviceKey.read(path)
    assert is_one_sentence(str(error.value))


def test_a_key_is_never_shown() -> None:
    key = DeviceKey()
    assert repr(key) == f"DeviceKey({key.fingerprint})"
