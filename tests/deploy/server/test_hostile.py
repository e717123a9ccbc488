"""Servers, peers and relays that do as they please: a site answers in words, keeps its data, and goes on."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.deploy.protocol.envelopes import DeviceKey, Envelopes, Member, SessionKey
from codedfl.deploy.protocol.wire import Frame, decode, encode, pack_messages, unpack_messages
from codedfl.deploy.site.host import DeviceHost
from codedfl.deploy.site.parcels import Inbox, Parcel
from codedfl.deploy.site.session import LocalData
from codedfl.errors import EngineError, LostDevicesError
from codedfl.schemes import SCHEMES, Message
from codedfl.task import Shard
from contracts.test_engines import chosen, given
from deploy.site.test_host import GIVEN, SITES, Asker, host, reason, sealed, shown
from fleets import InProcessFleet, fleet
from tiny import is_one_sentence, known

GRANT: Message = {"0/seed": np.zeros(32, np.uint8), "0/export": np.array(1), "0/moments": np.array(1, np.int8)}


class Pair:
    """A site of ``sealed`` with its asker, and a peer that it has pinned."""

    def __init__(self) -> None:
        self.key = DeviceKey()
        fresh = SessionKey()
        self.shown = Member.of(self.key, fresh, "s1", "device-2")
        own = DeviceKey()
        self.asker = Asker(host(key=own, pins={"device-2": self.key.fingerprint}), "sealed")
        told = self.asker.describe()
        self.members = {"device-1": told.fields["member"], "device-2": self.shown.to_hex()}
        self.told = told
        assert self.asker.prepare(told, members=self.members).kind == "answer"
        public = {site: Member.from_hex(*shown) for site, shown in self.members.items()}
        run = self.asker.host._run
        assert run is not None
        self.peer = Envelopes("device-2", fresh, self.shown, public, "s1", f"r {run.told}", None)

    @property
    def host(self) -> DeviceHost:
        return self.asker.host

    def closed(self, stage: int = 1, number: int = 0, **contents: Any) -> bytes:
        parcel = Parcel(stage, number, contents or {"moments": np.zeros(GIVEN.shape, np.uint64)})
        return self.peer.close("device-1", parcel.to_bytes())

    def bring(self, payload: bytes) -> Frame:
        return decode(self.host.handle_peer("device-2", payload))


STAGE: dict[str, Any] = {"occasion": None, "first": 0, "after": [], "export": [[0, "device-2", 0]], "absorb": []}
QUESTIONS: dict[str, dict[str, Any]] = {
    "describe": {"scenario": "", "run": "run-1", "sites": ["device-1", "device-2"], "device": 0},
    "reply": {"epoch": 1, "question": 0, "standing": False, "offline": False},
    "export": {"stage": 1, "occasion": None, "parcels": [[0, "device-2", False, None]]},
    "absorb": {"stage": 1, "occasion": None, "parcels": [[0, "device-2"]]},
    "carry": {"stage": 1, "stages": [STAGE], "order": [0], "channel_turns": [[0, False, None, None]]},
    "progress": {"stage": 1},
    "forget": {"stage": 1},
    "prepare": {
        "run": "r",
        "index": 0,
        "sites": ["device-1", "device-2"],
        "samples": [4, 5],
        "features": 3,
        "outputs": 2,
        "dtype": "float64",
        "largest_feature": 4.0,
        "largest_target": 1.0,
        "accuracy": 0.05,
        "feature_energy": 40.0,
        "target_energy": None,
        "nonces": ["00" * 16, "11" * 16],
        "members": {},
    },
}
WRONG: list[Any] = [None, True, -1, 1.5, 10**30, "x", "\ud800", "1e9", [], [[]], [None], [[0, 0, 0]], {}, {"a": [1]}]


@pytest.mark.parametrize("name", STAGE)
def test_a_stage_of_any_other_kind_is_refused_in_words(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The same for what is said about a stage that may overlap with others."""
    for value in [*WRONG, [[0, "device-2", 0], [0, "device-2", 0]], [[1, "device-1"]], [0], ...]:
        asker = Asker(host(key=DeviceKey()), "sealed")
        told = asker.describe()
        asker.prepare(told)
        stage = {each: entry for each, entry in {**STAGE, name: value}.items() if entry is not ...}
        own = {"stage": 1, "stages": [stage]}
        fields = {"session": asker.session, "number": 99, **own}
        answer = decode(asker.host.handle(encode(Frame("carry", fields, sealed(told, GRANT, own)))))
        assert answer.kind == "error"
        assert is_one_sentence(reason(answer))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR], "no traceback"


@pytest.mark.parametrize("kind", QUESTIONS)
def test_a_field_of_any_other_kind_is_refused_in_words(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each field in turn is left out, or is something else: no traceback, nothing that hangs, and the site lives on."""
    for name in (*QUESTIONS[kind], "session", "number"):
        for value in [*WRONG, ...]:
            asker = Asker(host(key=DeviceKey()), "sealed")
            if kind != "describe":
                told = asker.describe()
            if kind not in ("describe", "prepare"):
                asker.prepare(told)
            fields = {"session": asker.session, "number": 99, **QUESTIONS[kind], name: value}
            if value is ...:
                del fields[name]
            arrays: Message = {"model": np.zeros(GIVEN.shape)} if kind == "reply" else {}
            if kind in ("export", "carry"):  # the grants fit, so that only the field is wrong
                own = {each: fields[each] for each in QUESTIONS[kind] if each in fields}
                arrays = sealed(told, GRANT, own)
            answer = decode(asker.host.handle(encode(Frame(kind, fields, arrays))))
            if answer.kind != "answer":
                assert is_one_sentence(reason(answer))
            again = Asker(asker.host, "sealed", "another")
            assert again.prepare(again.describe(), members=_own(again)).kind == "answer"
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR], "no traceback"


def _own(asker: Asker) -> dict[str, Any]:
    run = asker.host._run
    assert run is not None
    assert run.own is not None
    return {"device-1": run.own.to_hex()}


@pytest.mark.parametrize(
    "changes", [{"features": 4}, {"outputs": 3}, {"dtype": "float32"}, {"samples": [4]}, {"index": 2}], ids=str
)
def test_a_site_is_not_prepared_for_data_of_other_sizes(changes: dict[str, Any]) -> None:
    asker = Asker(host())
    assert "for another site" in reason(asker.prepare(asker.describe(), **changes))


def test_a_question_that_comes_twice_is_done_once() -> None:
    pair = Pair()
    question = pair.asker.round(2)
    assert [decode(pair.host.handle(question)).kind for _ in range(3)] == ["error", "repeated", "repeated"]
    assert pair.bring(pair.closed()).kind == "taken"
    absorb = pair.asker.payload("absorb", stage=1, occasion=None, parcels=[[0, "device-2"]])
    assert [decode(pair.host.handle(absorb)).kind for _ in range(2)] == ["answer", "repeated"]


def test_a_session_begins_once_and_does_not_come_back() -> None:
    """A relay brings an old question again; the session that is on goes on."""
    same = host()
    old, new = Asker(same), Asker(same, session="s2")
    first = old.payload("describe", scenario=old.scenario.to_toml(), run="run-1", sites=SITES, device=0)
    assert decode(same.handle(first)).kind == "answer"
    new.begin()
    assert decode(same.handle(first)).kind == "repeated"
    assert new.describe().kind == "repeated"
    assert decode(same.handle(new.round(1))).kind == "answer"


def test_a_server_that_prepares_anew_cannot_have_old_parcels_taken_again() -> None:
    """Numbers of parcels would begin anew with it; so a session is prepared once."""
    pair = Pair()
    parcel = pair.closed()
    assert pair.bring(parcel).kind == "taken"
    assert pair.asker.ask("absorb", stage=1, occasion=None, parcels=[[0, "device-2"]]).kind == "answer"
    assert "already been prepared for this session" in reason(pair.asker.prepare(pair.told, members=pair.members))
    refusal = pair.bring(parcel)
    assert (refusal.kind, "is a repetition" in refusal.fields["reason"]) == ("refused", True)


def test_parcels_of_a_session_before_are_refused() -> None:
    pair = Pair()
    parcel = pair.closed()
    pair.asker.session = "s2"
    told = pair.asker.describe()
    members = {"device-1": told.fields["member"], "device-2": shown(pair.key, "s2")}
    assert pair.asker.prepare(told, members=members).kind == "answer"
    assert "was altered, or not encrypted by it" in pair.bring(parcel).fields["reason"]


def test_a_server_is_not_sent_what_goes_to_devices(tmp_path: Path) -> None:
    """It knows the pads of ``sealed``: an uploaded parcel would be the data themselves."""
    pair = Pair()
    answer = pair.asker.ask("export", GRANT, stage=1, occasion=None, parcels=[[0, None, False, None]])
    assert "to each other only" in reason(answer)
    assert not answer.arrays
    assert [name for name in SCHEMES if known(name).uploads] == ["parity"]


def test_peers_cannot_take_each_others_place() -> None:
    """Who sends first under a number that is another's changes nothing for the other."""
    inbox = Inbox()
    inbox.put("device-3", Parcel(1, 0, {"x": np.ones(2)}))
    inbox.put("device-2", Parcel(1, 0, {"x": np.zeros(2)}))
    (found,) = inbox.take(1, [(0, "device-2")])
    assert found.contents["x"].tolist() == [0.0, 0.0]


def test_of_a_stage_that_is_over_nothing_is_kept() -> None:
    inbox = Inbox()
    inbox.put("device-2", Parcel(3, 0, {"x": np.ones(2)}))
    with pytest.raises(EngineError, match="has not arrived from device-3"):
        inbox.take(3, [(0, "device-2"), (1, "device-3")])
    assert len(inbox.take(3, [(0, "device-2")])) == 1
    inbox.put("device-2", Parcel(5, 0, {"x": np.ones(2)}))
    inbox.drop(5)
    for stage in (1, 3, 5, 6):
        inbox.put("device-2", Parcel(stage, 7, {}))
    for stage in (1, 3, 5):
        with pytest.raises(EngineError, match="has not arrived from device-2"):
            inbox.take(stage, [(7, "device-2")])
    assert inbox.take(6, [(7, "device-2")]) == [Parcel(6, 7, {})]


def test_a_peer_cannot_fill_the_memory() -> None:
    """Four parcels that the scheme sends fit; no fifth, no others, and nobody else is the worse for it."""
    pair = Pair()
    kinds = [pair.bring(pair.closed(1 + number, number)).kind for number in range(5)]
    assert kinds == ["taken"] * 4 + ["refused"]
    assert "send no more" in pair.bring(pair.closed(9)).fields["reason"]
    assert "other arrays than this scheme sends" in pair.bring(pair.closed(9, x=np.zeros(10))).fields["reason"]
    assert "bytes, more than the" in pair.bring(pair.closed(9, x=np.zeros(100_000))).fields["reason"]


@pytest.mark.parametrize(
    "frame",
    [
        Frame("answer", {"stage": 1, "number": 0, "travel": None}),
        Frame("parcel", {"stage": -1, "number": 0, "travel": None}),
        Frame("parcel", {"stage": "1", "number": 0, "travel": None}),
        Frame("parcel", {"stage": 1, "number": 10**40, "travel": None}),
        Frame("parcel", {"stage": 1, "number": 0, "travel": 0}),
        Frame("parcel", {"stage": 1}),
        Frame("parcel", {"stage": 1, "number": 0, "travel": None}, {"x": np.array([np.nan])}),
    ],
    ids=str,
)
def test_what_is_no_proper_parcel_is_refused(frame: Frame) -> None:
    pair = Pair()
    answer = pair.bring(pair.peer.close("device-1", encode(frame)))
    assert answer.kind == "refused"
    assert is_one_sentence(answer.fields["reason"])
    assert pair.bring(pair.peer.close("device-1", b"no frame")).kind == "refused"


def test_a_failure_while_a_parcel_is_taken_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Inbox, sender: str, parcel: Parcel, arrived: float) -> None:
        raise MemoryError

    monkeypatch.setattr(Inbox, "put", broken)
    pair = Pair()
    assert pair.bring(pair.closed()).fields["reason"] == "MemoryError while it was received"


@pytest.mark.parametrize("where", ["features", "targets"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_data_with_holes_stay_at_home(where: str, value: float, caplog: pytest.LogCaptureFixture) -> None:
    x, y = (array.copy() for array in (GIVEN.shards[0].x, GIVEN.shards[0].y))
    (x if where == "features" else y)[1, 1] = value
    broken = host(load=lambda wanted: LocalData(Shard(x, y), "regression"))
    assert "the data of device-1 cannot be used for this run" in reason(Asker(broken).describe())
    assert f"the {where} of device-1 hold missing or infinite" in caplog.text


def test_a_site_encrypts_or_does_not_take_part() -> None:
    asker = Asker(host(), "he")
    asker.scenario = asker.scenario.with_settings({"schemes.he.backend": "costs"})
    assert "encrypt nothing; set schemes.he.backend = 'ckks'" in reason(asker.prepare(asker.describe()))


@pytest.mark.parametrize(
    "change",
    [
        lambda message: {**message, "features": message["features"][:, :-1]},
        lambda message: {name: array for name, array in message.items() if name != "batch"},
        lambda message: {**message, "batch": np.array(99, np.int32)},
        lambda message: {**message, "batch": np.zeros(2)},
        lambda message: {},
    ],
    ids=["shape", "missing", "index", "kind", "nothing"],
)
def test_an_upload_that_cannot_be_taken_in_stops_the_run_in_words(change: Any, tmp_path: Path) -> None:
    """Parity data of device-2's last batch; the scheme alone knows what they should look like."""

    def alter(site: str, tag: int, payload: bytes) -> list[bytes]:
        frame = decode(payload)
        uploads = sorted({int(name.partition("/")[0]) for name in frame.arrays if "/" in name})
        if site != "device-2" or not uploads:
            return [payload]
        messages = unpack_messages(frame.arrays, uploads)
        messages[uploads[-1]] = change(messages[uploads[-1]])
        return [encode(Frame(frame.kind, frame.fields, pack_messages(messages)))]

    with fleet(given()) as sites:
        sites.faults.reply = alter
        with pytest.raises(LostDevicesError, match="device-2 sent a parcel that the server cannot absorb") as error:
            sites.deploy(chosen("parity"), tmp_path / "run")
    assert is_one_sentence(str(error.value))


def stolen(sites: InProcessFleet, site: str) -> Frame:
    """What the server had sent a site to prepare it, as if a relay had kept it."""
    frames = [decode(payload) for name, payload in sites.recording.sent if name == site]
    return next(frame for frame in frames if frame.kind == "prepare")


@pytest.mark.parametrize(("overlap", "most"), [(True, 80), (False, 100)])
def test_a_run_goes_on_undisturbed_while_old_questions_are_brought_again(
    overlap: bool, most: int, tmp_path: Path
) -> None:
    """In epoch 3 every question of the run so far comes to its site once more, and a prepare under a new number."""
    with fleet(given()) as sites:
        wanted = chosen("sealed-coded", **{"schemes.sealed-coded.overlap": overlap})
        whole = sites.deploy(wanted, tmp_path / "whole")
        answers: list[str] = []

        def again(site: str, tag: int, payload: bytes) -> bytes:
            frame = decode(payload)
            if (site, frame.kind, frame.fields.get("epoch")) == ("device-1", "reply", 3) and not answers:
                for name, earlier in list(sites.recording.sent):
                    if decode(earlier).fields.get("epoch") != 3:
                        answers.append(decode(sites.carrier.host(name).handle(earlier)).kind)
                prepare = stolen(sites, "device-1")
                fields = {**prepare.fields, "session": frame.fields["session"], "number": 1}
                answers.append(decode(sites.carrier.host(site).handle(encode(Frame("prepare", fields)))).kind)
            return payload

        sites.faults.question = again
        run = sites.deploy(wanted, tmp_path / "run")
    assert set(answers) == {"repeated", "error"}
    assert len(answers) > most
    models = [np.load(each.path / "model.npz")["theta"] for each in (run, whole)]
    assert np.array_equal(*models)
    assert run.summary["deployment"]["lost"] == {}
