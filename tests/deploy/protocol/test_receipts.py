"""Receipts: what a recipient has signed holds for one parcel of one session, and nobody else can sign it."""

import pytest

from codedfl.deploy.protocol.envelopes import DeviceKey, Member, SessionKey
from codedfl.deploy.protocol.receipts import Receipts
from codedfl.errors import EngineError

KEYS = {site: DeviceKey() for site in ("device-1", "device-2", "device-3")}
MEMBERS = {site: Member.of(key, SessionKey(), "s", site) for site, key in KEYS.items()}


def of(site: str, session: str = "s") -> Receipts:
    return Receipts(session, site, KEYS.get(site), MEMBERS)


SHOWN = of("device-2").sign("device-1", 7, 3)


@pytest.mark.parametrize("site", ["device-1", "device-3", ""])
def test_everyone_can_check_a_receipt(site: str) -> None:
    assert of(site).check("device-1", "device-2", 7, 3, SHOWN)


@pytest.mark.parametrize(
    ("session", "told"),
    [
        ("t", ("device-1", "device-2", 7, 3)),
        ("s", ("device-3", "device-2", 7, 3)),
        ("s", ("device-1", "device-3", 7, 3)),
        ("s", ("device-2", "device-1", 7, 3)),
        ("s", ("device-1", "device-9", 7, 3)),
        ("s", ("device-1", "device-2", 8, 3)),
        ("s", ("device-1", "device-2", 7, 4)),
        ("s", ("device-1", "device-2", 73, 0)),
    ],
)
def test_a_receipt_is_of_one_parcel_of_one_session(session: str, told: tuple[str, str, int, int]) -> None:
    assert not of("device-1", session).check(*told, SHOWN)


@pytest.mark.parametrize(
    "shown",
    [None, 0, "", "x", "00" * 64, SHOWN[:-2], SHOWN + "00", [SHOWN], of("device-1").sign("device-1", 7, 3)],
    ids=["nothing", "number", "empty", "no hex", "zeros", "shorter", "longer", "list", "another key"],
)
def test_what_the_recipient_has_not_signed_is_no_receipt(shown: object) -> None:
    assert not of("device-1").check("device-1", "device-2", 7, 3, shown)


def test_who_has_no_key_signs_nothing() -> None:
    with pytest.raises(EngineError, match="has no key to sign receipts with"):
        Receipts("s", "device-9").sign("device-1", 7, 3)
