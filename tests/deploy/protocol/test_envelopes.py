"""Envelopes: only the named sender can have closed one, only the named recipient can open it, and only once."""

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.deploy.protocol.envelopes import DeviceKey, Envelopes, Member, fingerprint
from codedfl.errors import KeyFileError, ParcelError
from tiny import is_one_sentence

SITES = ("a", "b", "c")
KEYS = {site: DeviceKey() for site in SITES}
PINS = {site: key.fingerprint for site, key in KEYS.items()}


def members() -> dict[str, Member]:
    return {site: Member.of(key) for site, key in KEYS.items()}


def all_envelopes(run: str = "run", known: dict[str, Member] | None = None) -> dict[str, Envelopes]:
    known = known or members()
    return {site: Envelopes(site, KEYS[site], known[site], known, run, PINS) for site in SITES}


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
    """Fresh keys: two parcels agree in the magic and in nothing that is sealed."""
    sites, text = all_envelopes(), bytes(1000)
    one, other = sites["a"].close("b", text), sites["a"].close("b", text)
    assert text[:32] not in one + other
    assert sum(x == y for x, y in zip(one[44:], other[44:], strict=True)) < 100  # 1016 bytes, 1 in 256 by chance


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
    """Also if the server gives two runs the same name: the recipient has drawn another number."""
    known = members()
    parcel = all_envelopes("run", known)["a"].close("b", b"contents")
    assert "in this run" in refused(all_envelopes("other", known)["b"], "a", parcel)
    assert "in this run" in refused(all_envelopes("run")["b"], "a", parcel)
    assert all_envelopes("run", known)["b"].open("a", parcel) == b"contents"


def test_an_announced_number_that_is_wrong_makes_parcels_useless() -> None:
    """A server that tells the sender another number of the recipient's gets nothing opened."""
    known = members()
    told = known | {"b": Member(KEYS["b"].public, bytes(16))}
    sender = Envelopes("a", KEYS["a"], known["a"], told, "run", PINS)
    receiver = Envelopes("b", KEYS["b"], known["b"], known, "run", PINS)
    refused(receiver, "a", sender.close("b", b"contents"))


def test_another_key_than_the_pinned_one_is_refused() -> None:
    known = members() | {"b": Member.of(DeviceKey())}
    with pytest.raises(ParcelError, match="b has a key") as error:
        Envelopes("a", KEYS["a"], known["a"], known, "run", PINS)
    assert is_one_sentence(str(error.value))
    assert PINS["b"] in str(error.value)


def test_nothing_is_exchanged_with_a_site_that_has_no_pin() -> None:
    known, pins = members(), {"b": PINS["b"]}
    envelopes = Envelopes("a", KEYS["a"], known["a"], known, "run", pins)
    with pytest.raises(ParcelError, match="no key of c"):
        envelopes.close("c", b"contents")
    assert "no key of c" in refused(envelopes, "c", b"")
    assert "no key of d" in refused(envelopes, "d", b"")
    envelopes.close("b", b"contents")


def test_without_pins_the_announced_keys_are_taken() -> None:
    known = {site: Member.of(DeviceKey() if site == "b" else KEYS[site]) for site in SITES}
    Envelopes("a", KEYS["a"], known["a"], known, "run", None).close("b", b"contents")


def test_a_site_is_not_told_another_key_of_its_own() -> None:
    known = members()
    with pytest.raises(ParcelError, match="than its own"):
        Envelopes("a", KEYS["a"], known["a"], known | {"a": Member.of(KEYS["a"])}, "run", PINS)


def test_a_key_that_is_none_is_refused() -> None:
    """All zeros is a point of low order: everyone would share the same secret with it."""
    with pytest.raises(ParcelError, match="versions agree"):
        Member(b"short", bytes(16))
    weak = members() | {"b": Member(bytes(32), bytes(16))}
    envelopes = Envelopes("a", KEYS["a"], weak["a"], weak, "run", None)
    with pytest.raises(ParcelError, match="is invalid"):
        envelopes.close("b", b"contents")


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
    with pytest.raises(KeyFileError, match="holds no X25519 key"):
        DeviceKey.read(path)
    with pytest.raises(KeyFileError, match="cannot read"):
        DeviceKey.read(tmp_path / "none")


def test_a_key_is_never_shown() -> None:
    key = DeviceKey()
    assert repr(key) == f"DeviceKey({key.fingerprint})"
