"""Keys of devices: pinned by the server or by others, revoked, of a session, and none where none are needed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from codedfl.deploy.protocol.envelopes import DeviceKey, Member, SessionKey, statement
from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.deploy.server.deployment import serve
from codedfl.errors import EngineError, LostDevicesError, UsageError
from contracts.test_engines import EPOCHS, chosen
from deploy.server.test_deployment import ON_SITES, refused, replace
from fleets import InProcessFleet
from tiny import is_one_sentence


def test_the_server_can_pin_keys_too(sites: InProcessFleet, tmp_path: Path) -> None:
    pins = {site: key.fingerprint for site, key in sites.keys.items()}
    words = refused(
        sites, chosen("conventional"), tmp_path / "run", EngineError, pins=pins | {"device-5": pins["device-1"]}
    )
    assert "device-5 has the key sha256:" in words
    assert sites.deploy(chosen("conventional"), tmp_path / "run", pins=pins).summary["epochs"] == EPOCHS


def test_revoked_sites_and_keys_are_refused(sites: InProcessFleet, tmp_path: Path) -> None:
    """Also without pins, and with another name."""
    key = sites.keys["device-4"].fingerprint
    words = refused(sites, chosen("conventional"), tmp_path / "run", EngineError, revoked=(key,))
    assert f"the key {key} of device-4 is revoked" in words
    words = refused(sites, chosen("conventional"), tmp_path / "run", UsageError, revoked=("device-2", "device-9"))
    assert words.startswith("device-2: revoked by the server's site.toml")
    others = ("device-9", DeviceKey().fingerprint)
    assert sites.deploy(chosen("conventional"), tmp_path / "run", revoked=others).summary["epochs"] == EPOCHS


@pytest.mark.parametrize("pinned", [True, False])
def test_a_server_without_pins_says_so_once(
    pinned: bool, sites: InProcessFleet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pins = {"fingerprints": {site: key.fingerprint for site, key in sites.keys.items()}} if pinned else {}
    scenario = chosen("conventional", **ON_SITES).to_toml()
    serve(sites.carrier, {"scenario": scenario, "sites": list(sites.sites), "site": {"folder": str(tmp_path), **pins}})
    said = [record.getMessage() for record in caplog.records if "pinned no device keys" in record.getMessage()]
    assert len(said) == (0 if pinned else 1)
    assert all(is_one_sentence(sentence) for sentence in said)


@pytest.mark.parametrize(
    ("forge", "words"),
    [
        (lambda key, session: Member.of(key, SessionKey(), "an earlier session", "device-3"), "is not signed by its"),
        (lambda key, session: Member.of(key, SessionKey(), session, "device-4"), "is not signed by its"),
        (lambda key, session: Member(key.public, SessionKey().public, bytes(64)), "is not signed by its"),
        (lambda key, session: Member(key.public, bytes(32), _signed_zeros(key, session)), "is invalid"),
    ],
    ids=["replayed", "other site", "unsigned", "weak"],
)
def test_a_site_with_an_invalid_session_key_is_named_by_the_server(
    forge: Callable[[DeviceKey, str], Member], words: str, sites: InProcessFleet, tmp_path: Path
) -> None:
    """As with a site that is lost before the start, nobody trains; without it in the way, the same sites do."""

    def lie(site: str, tag: int, payload: bytes) -> list[bytes]:
        frame = decode(payload)
        if site != "device-3" or "member" not in frame.fields:
            return [payload]
        forged = forge(sites.keys[site], frame.fields["session"]).to_hex()
        return [encode(Frame(frame.kind, {**frame.fields, "member": forged}, frame.arrays))]

    sites.faults.reply = lie
    for pins in (None, {site: key.fingerprint for site, key in sites.keys.items()}):
        sentence = refused(sites, chosen("sealed-coded"), tmp_path / "run", EngineError, pins=pins)
        assert f"the session key of device-3 {words}" in sentence
    sites.faults.reply = lambda site, tag, payload: [payload]
    assert sites.deploy(chosen("sealed-coded"), tmp_path / "run").summary["epochs"] == EPOCHS


def _signed_zeros(key: DeviceKey, session: str) -> bytes:
    return key.sign(statement("codedfl session 2", session.encode(), b"device-3", bytes(32)))


def test_a_site_with_another_key_than_pinned_by_others_is_refused(sites: InProcessFleet, tmp_path: Path) -> None:
    """Somebody in the middle puts its own key in the place of device-2's."""
    replace(sites, 1, key=DeviceKey(), pins=None)
    words = refused(sites, chosen("sealed-coded"), tmp_path / "run", EngineError)
    assert "device-2 has a key with the fingerprint" in words


def test_no_keys_are_needed_where_no_parcels_are_sent(sites: InProcessFleet, tmp_path: Path) -> None:
    for device in range(6):
        replace(sites, device, key=None)
    assert sites.deploy(chosen("conventional"), tmp_path / "run").summary["epochs"] == EPOCHS
    with pytest.raises(LostDevicesError, match="has no key"):
        sites.deploy(chosen("sealed"), tmp_path / "sealed")
