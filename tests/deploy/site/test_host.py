"""A site by hand: what it answers, what it refuses, and what it drops when nobody awaits it any more."""

import threading
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.deploy.protocol.carrier import Peers
from codedfl.deploy.protocol.envelopes import DeviceKey, Member, SessionKey, close_grants
from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.deploy.site.agreement import Agreement
from codedfl.deploy.site.host import DeviceHost
from codedfl.deploy.site.locks import Cancelled
from codedfl.deploy.site.session import LocalData, Site
from codedfl.errors import EngineError
from codedfl.schemes import Message, Work
from codedfl.schemes.plain.conventional import GradientDevice
from codedfl.testing.in_process import any_terms
from tiny import is_one_sentence, problem, scenario

GIVEN = problem([4, 5], features=3, outputs=2)
SITES = ["device-1", "device-2"]


class NoPeers(Peers):
    """Nobody is there."""

    def send(self, site: str, payload: bytes) -> bytes:
        raise EngineError(f"{site} did not answer")


class Asker:
    """Puts questions of one session to a host, as the server does."""

    def __init__(self, host: DeviceHost, scheme: str = "conventional", session: str = "s1") -> None:
        self.host = host
        self.session = session
        self.number = 0
        self.scenario = scenario({"scheme": scheme, "fleet.devices": [{"count": 2, "mac_rate": 1e6}]})

    def payload(self, kind: str, arrays: Message | None = None, **fields: Any) -> bytes:
        self.number += 1
        return encode(Frame(kind, {"session": self.session, "number": self.number, **fields}, arrays or {}))

    def ask(self, kind: str, arrays: Message | None = None, **fields: Any) -> Frame:
        return decode(self.host.handle(self.payload(kind, arrays, **fields)))

    def describe(self) -> Frame:
        return self.ask("describe", **self.described)

    @property
    def described(self) -> dict[str, Any]:
        return {"scenario": self.scenario.to_toml(), "run": "run-1", "sites": SITES, "device": 0}

    def prepare(self, told: Frame, **changes: Any) -> Frame:
        public = schemes.agree(self.scenario, [schemes.describe(self.scenario, shard) for shard in GIVEN.shards])
        fields = {
            "run": "r",
            "index": 0,
            "sites": SITES,
            "samples": list(public.samples),
            "features": public.features,
            "outputs": public.outputs,
            "dtype": public.dtype.name,
            "largest_feature": public.largest_feature,
            "largest_target": public.largest_target,
            "accuracy": public.accuracy,
            "feature_energy": public.feature_energy,
            "target_energy": public.target_energy,
            "nonces": [told.fields["nonce"], *("00" * 16 for _ in SITES[1:])],
            "marks": [told.fields["mark"], *("" for _ in SITES[1:])],
            "members": {"device-1": told.fields["member"]} if told.fields["member"] else {},
        }
        return self.ask("prepare", **(fields | changes))

    def export(self, told: Frame, grants: Message, **fields: Any) -> Frame:
        return self.ask("export", sealed(told, grants, fields), **fields)

    def begin(self) -> None:
        assert self.prepare(self.describe()).kind == "answer"

    def round(self, epoch: int, *, standing: bool = False) -> bytes:
        fields = {"epoch": epoch, "question": 0, "standing": standing, "offline": False}
        return self.payload("reply", {"model": np.full(GIVEN.shape, epoch, float)}, **fields)


def sealed(told: Frame, grants: Message, request: dict[str, Any], run: str = "r") -> Message:
    """The grants of a request as the server encrypts them for a site that describes itself so."""
    closed = close_grants(
        "device-1", Member.from_hex(*told.fields["member"]), run, request, encode(Frame("grants", {}, grants))
    )
    return {"sealed": np.frombuffer(closed, np.uint8)}


def shown(key: DeviceKey, session: str = "s1", site: str = "device-2") -> list[str]:
    """What a site with this key announces in a session."""
    return Member.of(key, SessionKey(), session, site).to_hex()


def site(**changes: Any) -> Site:
    local_data = LocalData(GIVEN.shards[0], "classification", ("a", "b"))
    own = {"name": "device-1", "load": lambda wanted: local_data, "pins": {}, "agreement": any_terms(SITES)}
    return Site(**(own | changes))


def host(emulation: Any = None, **changes: Any) -> DeviceHost:
    return DeviceHost(site(**changes), NoPeers(), emulation)


def reason(frame: Frame) -> str:
    assert frame.kind == "error"
    assert is_one_sentence(frame.fields["reason"])
    return str(frame.fields["reason"])


def test_a_site_describes_prepares_and_replies() -> None:
    asker = Asker(host())
    told = asker.describe()
    assert (told.fields["samples"], told.fields["features"], told.fields["outputs"]) == (4, 3, 2)
    assert (told.fields["kind"], told.fields["classes"], told.fields["member"]) == ("classification", 2, None)
    assert asker.prepare(told).kind == "answer"
    answer = decode(asker.host.handle(asker.round(3)))
    work = Work()
    expected = GradientDevice(GIVEN.shards[0]).reply(3, {"model": np.full(GIVEN.shape, 3.0)}, work)
    assert np.array_equal(answer.arrays["gradient"], expected["gradient"])
    assert (answer.fields["macs"], answer.fields["epoch"]) == (work.macs, 3)
    assert (answer.fields["session"], answer.fields["number"]) == ("s1", asker.number)


def test_nothing_of_the_data_is_told_but_sizes_and_bounds() -> None:
    told = Asker(host(key=DeviceKey())).describe()
    names = {"samples", "features", "outputs", "dtype", "largest_feature", "largest_target", "kind", "classes"}
    names |= {"class_digest", "class_names"}
    assert told.fields["class_names"] is None
    assert set(told.fields) == names | {"version", "member", "nonce", "mark", "session", "number"}
    assert not told.arrays


@pytest.mark.parametrize("payload", [b"", b"garbage", encode(Frame("reply")), encode(Frame("ping"))[:-1]])
def test_what_is_no_question_is_answered_with_an_error(payload: bytes) -> None:
    assert decode(host().handle(payload)).kind == "error"


def test_a_site_is_not_asked_before_it_is_prepared() -> None:
    asker = Asker(host())
    assert "takes part in no run" in reason(decode(asker.host.handle(asker.round(1))))
    asker.describe()
    assert "not prepared" in reason(decode(asker.host.handle(asker.round(1))))
    assert "no operation 'dance'" in reason(asker.ask("dance"))


@pytest.mark.parametrize(
    "changes",
    [{"index": 1}, {"samples": [7, 5]}, {"sites": ["device-9", "device-2"]}],
    ids=["index", "samples", "name"],
)
def test_a_site_does_not_let_itself_be_taken_for_another(changes: dict[str, Any]) -> None:
    asker = Asker(host())
    assert "for another site" in reason(asker.prepare(asker.describe(), **changes))


def test_a_question_without_its_fields_is_an_error_that_names_no_data() -> None:
    asker = Asker(host())
    asker.begin()
    assert "'question' of a message is not a whole number" in reason(asker.ask("reply", epoch=1))


def test_a_session_whose_data_come_in_after_a_later_one_began_does_not_begin() -> None:
    begun, gate, slowly = threading.Event(), threading.Event(), [True]

    def load(wanted: Any) -> LocalData:
        if slowly:
            slowly.clear()
            begun.set()
            assert gate.wait(60)
        return LocalData(GIVEN.shards[0], "classification", ("a", "b"))

    old, answers = Asker(host(load=load)), []
    thread = threading.Thread(target=lambda: answers.append(old.describe()))
    thread.start()
    assert begun.wait(60)
    new = Asker(old.host, session="s2")
    new.begin()
    gate.set()
    thread.join()
    assert answers[0].kind == "superseded"
    assert decode(new.host.handle(new.round(1))).kind == "answer"


def test_a_new_session_takes_the_place_of_the_old_one() -> None:
    same = host()
    old, new = Asker(same), Asker(same, session="s2")
    old.begin()
    new.begin()
    assert "another session since" in reason(decode(same.handle(old.round(1))))
    assert decode(same.handle(new.round(1))).kind == "answer"


def test_data_are_loaded_once_for_the_same_settings_and_again_for_others() -> None:
    loaded: list[int] = []

    def load(wanted: Any) -> LocalData:
        loaded.append(1)
        return LocalData(GIVEN.shards[0], "regression")

    same = host(load=load)
    Asker(same).describe()
    Asker(same, session="s2").describe()
    assert len(loaded) == 1
    asker = Asker(same, session="s3")
    asker.scenario = asker.scenario.with_settings({"features.seed": 5})
    asker.describe()
    assert len(loaded) == 2
    asker.ask("forget", stage=None)
    asker.session = "s4"
    asker.describe()
    assert len(loaded) == 3


def test_an_owner_decides_which_schemes_run() -> None:
    picky = host(agreement=Agreement(cohort=tuple(SITES), least=2, schemes=("sealed", "sealed-coded")))
    assert "has not agreed to scheme 'conventional'" in reason(Asker(picky).describe())
    assert Asker(picky, "sealed-coded", "s2").describe().kind == "answer"


def test_without_a_key_no_parcels_are_exchanged() -> None:
    asker = Asker(host(), "sealed")
    asker.begin()
    grant = {"0/seed": np.zeros(32, np.uint8), "0/export": np.array(1), "0/moments": np.array(1, np.int8)}
    answer = asker.ask("export", grant, stage=1, occasion=None, parcels=[[0, "device-2", False, 0]])
    assert "has no key" in reason(answer)
    assert decode(asker.host.handle_peer("device-2", b"")).kind == "refused"


def test_a_recipient_that_does_not_answer_is_named() -> None:
    """The key of device-2 is pinned, and nobody answers there."""
    key, other = DeviceKey(), DeviceKey()
    asker = Asker(host(key=key, pins={"device-2": other.fingerprint}), "sealed")
    told = asker.describe()
    members = {"device-1": told.fields["member"], "device-2": shown(other)}
    asker.prepare(told, members=members)
    grant = {"0/seed": np.zeros(32, np.uint8), "0/export": np.array(1), "0/moments": np.array(1, np.int8)}
    answer = asker.export(told, grant, stage=1, occasion=None, parcels=[[0, "device-2", False, 0]])
    assert "could not send to device-2" in reason(answer)
    assert answer.fields["unreached"] == "device-2"


def test_a_scheme_without_parcels_exports_none() -> None:
    asker = Asker(host())
    asker.begin()
    for site, why in ((None, "to each other only"), ("device-2", "can exchange no parcels")):
        assert why in reason(asker.ask("export", stage=1, occasion=None, parcels=[[0, site, False, 0]]))


def test_absorbing_what_has_not_come_changes_nothing() -> None:
    asker = Asker(host(), "sealed")
    asker.begin()
    assert "has not arrived" in reason(asker.ask("absorb", stage=1, occasion=None, parcels=[[0, "device-2"]]))
    assert asker.ask("forget", stage=1).kind == "answer"


def test_a_site_that_was_closed_takes_part_in_nothing() -> None:
    asker = Asker(host())
    asker.begin()
    asker.host.close()
    asker.host.close()
    assert "no run" in reason(decode(asker.host.handle(asker.round(1))))


def test_members_must_hold_the_own_key() -> None:
    asker = Asker(host(key=DeviceKey()))
    answer = asker.prepare(asker.describe(), members={})
    assert "than its own" in reason(answer)


def test_a_nonce_is_drawn_for_every_session_with_or_without_a_key() -> None:
    for own in (host(), host(key=DeviceKey())):
        nonces = [bytes.fromhex(Asker(own, session=name).describe().fields["nonce"]) for name in ("s1", "s2")]
        assert [len(nonce) for nonce in nonces] == [16, 16]
        assert nonces[0] != nonces[1]


@pytest.mark.parametrize("ending", ["forgotten", "replaced", "closed"])
def test_keys_of_a_session_die_with_it(ending: str) -> None:
    """Recorded parcels cannot be opened any more, not even by the site."""
    asker = Asker(host(key=DeviceKey(), pins=None), "sealed")
    told = asker.describe()
    assert asker.prepare(told, members={"device-1": told.fields["member"], "device-2": shown(DeviceKey())})
    session = asker.host._run
    assert session is not None
    assert session.envelopes.close("device-2", b"contents")
    if ending == "forgotten":
        asker.ask("forget", stage=None)
    elif ending == "replaced":
        Asker(asker.host, "sealed", "s2").describe()
    else:
        asker.host.close()
    assert (session._key, session._envelopes) == (None, None)
    with pytest.raises(Cancelled):
        _ = session.envelopes
    with pytest.raises(Cancelled):
        session.grants(Frame("export", {"stage": 1}, {"sealed": np.zeros(0, np.uint8)}))
