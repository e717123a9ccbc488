"""Grants under a site's own key: what is altered, repeated or meant for another site or request is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.deploy.protocol.envelopes import DeviceKey, Member, SessionKey, close_grants, open_grants, run_name
from codedfl.deploy.protocol.wire import Frame
from codedfl.errors import ParcelError
from codedfl.schemes import Message
from deploy.site.test_host import Asker, host, reason, sealed, shown
from tiny import is_one_sentence

GRANT: Message = {"0/seed": np.zeros(32, np.uint8), "0/export": np.array(1), "0/moments": np.array(1, np.int8)}
REQUEST: dict[str, Any] = {"stage": 3, "occasion": {"epoch": 2}, "parcels": [[0, "device-2", False, 0]]}
KEY = SessionKey()
OWN = Member.of(DeviceKey(), KEY, "s1", "a")


class Prepared:
    """A prepared site of ``sealed`` that knows the key of its peer, whom nobody reaches."""

    def __init__(self) -> None:
        self.asker = Asker(host(key=DeviceKey(), pins=None), "sealed")
        self.told = self.asker.describe()
        members = {"device-1": self.told.fields["member"], "device-2": shown(DeviceKey())}
        assert self.asker.prepare(self.told, members=members).kind == "answer"

    def export(self, arrays: Message, **changes: Any) -> str:
        fields = {"stage": 1, "occasion": None, "parcels": [[0, "device-2", False, 0]]} | changes
        return reason(self.asker.ask("export", arrays, **fields))

    def closed(self, told: Frame | None = None, run: str = "r", **changes: Any) -> Message:
        request = {"stage": 1, "occasion": None, "parcels": [[0, "device-2", False, 0]]} | changes
        return sealed(told or self.told, GRANT, request, run)


EXPORTED = "could not send to device-2"
"""The parcel was made, so the grant was taken."""


def test_a_grant_is_taken_once() -> None:
    site = Prepared()
    first = site.closed()
    assert EXPORTED in site.export(first)
    assert "the grants of stage 1 are a repetition" in site.export(first), "under another number of the request"
    assert "the grants of stage 1 are a repetition" in site.export(site.closed())


@pytest.mark.parametrize(
    "make",
    [
        lambda site: site.closed(stage=2),
        lambda site: site.closed(occasion={"epoch": 2}),
        lambda site: site.closed(parcels=[[0, "device-3", False, 0]]),
        lambda site: site.closed(run="another"),
        lambda site: site.closed(told=Prepared().told),
        lambda site: {"sealed": np.zeros(0, np.uint8)},
        lambda site: {"sealed": np.zeros(80, np.uint8)},
    ],
    ids=["stage", "epoch", "recipient", "run", "site", "nothing", "zeros"],
)
def test_a_grant_for_anything_else_is_refused(make: Callable[[Prepared], Message]) -> None:
    site = Prepared()
    assert "grants were altered, or not made for device-1 and this request" in site.export(make(site))
    assert EXPORTED in site.export(site.closed()), "the site goes on"


@pytest.mark.parametrize("arrays", [GRANT, {}], ids=["grants", "nothing"])
def test_a_site_with_a_key_takes_no_grant_in_clear(arrays: Message) -> None:
    assert "grants for device-1 are not encrypted under its key" in Prepared().export(arrays)


def test_a_grant_of_an_earlier_session_is_refused() -> None:
    """The session key of the site is another."""
    site = Prepared()
    old = site.closed()
    site.asker.session = "s2"
    told = site.asker.describe()
    same = [one == other for one, other in zip(told.fields["member"], site.told.fields["member"], strict=True)]
    assert same == [True, False, False], "device key, session key, signature"
    assert site.asker.prepare(told).kind == "answer"
    assert "grants were altered" in site.export(old)


@settings(max_examples=100)
@given(st.binary(max_size=200), st.integers(0, 10**6), st.integers(1, 255))
def test_what_was_closed_opens_and_no_byte_can_be_altered(contents: bytes, place: int, change: int) -> None:
    closed = close_grants("a", OWN, "run", REQUEST, contents)
    assert open_grants("a", KEY, OWN, "run", REQUEST, closed) == contents
    assert contents not in closed or len(contents) < 8
    at = place % len(closed)
    altered = closed[:at] + bytes([closed[at] ^ change]) + closed[at + 1 :]
    with pytest.raises(ParcelError) as error:
        open_grants("a", KEY, OWN, "run", REQUEST, altered)
    assert is_one_sentence(str(error.value))


def test_a_key_without_order_gets_no_grant() -> None:
    """X25519 refuses the zero point, whose agreements are known to everybody."""
    with pytest.raises(ParcelError, match="the session key of a is invalid"):
        close_grants("a", Member(OWN.public, bytes(32), OWN.signature), "run", REQUEST, b"")


def test_a_run_is_named_by_what_is_announced() -> None:
    G = np.arange(6, dtype=np.float32).reshape(2, 3)
    names = [{}, {"G": G}, {"H": G}, {"G": G.T.copy()}, {"G": G.astype(np.float64)}, {"G": G + np.float32(1e-6)}]
    assert run_name("r", {}) == "r"
    assert len({run_name("r", announced) for announced in names}) == len(names)
    assert run_name("r", {"G": G}) == run_name("r", {"G": G.copy()}) != run_name("s", {"G": G})
