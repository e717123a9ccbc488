"""Sites that misbehave, and only in answers to epochs, from the epoch on that their own file says."""

import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.deploy.protocol.carrier import Host, Peers
from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.errors import EngineError, ScenarioError
from codedfl.testing import misbehaving
from codedfl.testing.misbehaving import GO, KINDS, MisbehavingHost, Misbehaviour, make_host
from tiny import is_one_sentence


class Proper(Host):
    """Answers with numbers that tell the epoch."""

    def __init__(self) -> None:
        self.closed = False

    def handle(self, payload: bytes) -> bytes:
        frame = decode(payload)
        epoch = int(frame.fields.get("epoch", 0))
        arrays = {"part": np.full((2, 3), epoch, np.float32), "whole": np.full(4, epoch, np.uint32)}
        return encode(Frame("answer", dict(frame.fields), arrays))

    def handle_peer(self, sender: str, payload: bytes) -> bytes:
        return sender.encode() + payload

    def close(self) -> None:
        self.closed = True


class Server(Peers):
    """Takes parcels, or does not."""

    def __init__(self, *, takes: bool = False) -> None:
        self.takes = takes
        self.came: list[tuple[str, bytes]] = []

    def send(self, site: str, payload: bytes) -> bytes:
        self.came.append((site, payload))
        if not self.takes:
            raise EngineError("server did not accept a parcel; it may be gone")
        return b""


def question(epoch: int | None) -> bytes:
    return encode(Frame("absorb" if epoch is None else "reply", {} if epoch is None else {"epoch": epoch, "number": 9}))


def host(kind: str, folder: Path, peers: Peers | None = None, **more: Any) -> MisbehavingHost:
    wanted = Misbehaviour.from_table({"kind": kind, "epoch": 3, **more})
    return MisbehavingHost(Proper(), wanted, peers or Server(), folder)


@pytest.mark.parametrize("kind", KINDS)
def test_before_its_epoch_and_in_all_else_a_site_is_proper(kind: str, tmp_path: Path) -> None:
    site, proper = host(kind, tmp_path), Proper()
    for asked in (question(None), question(1), question(2)):
        assert site.handle(asked) == proper.handle(asked)
    assert site.handle_peer("device-2", b"parcel") == b"device-2parcel"


def test_garbage_is_no_message(tmp_path: Path) -> None:
    with pytest.raises(EngineError):
        decode(host("garbage", tmp_path).handle(question(3)))


def test_what_is_no_message_itself_is_answered_by_the_inner_host(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="not a message"):
        host("garbage", tmp_path).handle(b"nothing")


def test_nan_has_the_shapes_of_the_right_answer(tmp_path: Path) -> None:
    answer = decode(host("nan", tmp_path).handle(question(4)))
    assert (answer.kind, answer.fields["number"]) == ("answer", 9)
    assert (answer.arrays["part"].dtype, answer.arrays["part"].shape) == (np.float32, (2, 3))
    assert answer.arrays["whole"].dtype == np.float64, "no whole number is NaN"
    assert all(np.isnan(array).all() for array in answer.arrays.values())


def test_an_old_answer_is_the_last_before(tmp_path: Path) -> None:
    site, proper = host("old", tmp_path), Proper()
    for epoch in (1, 2):
        site.handle(question(epoch))
    for epoch in (3, 4):
        assert site.handle(question(epoch)) == proper.handle(question(2))


def test_a_slow_answer_is_the_right_one(tmp_path: Path) -> None:
    assert host("slow", tmp_path, seconds=0.01).handle(question(3)) == Proper().handle(question(3))


def test_a_parcel_that_is_answered_late_is_answered_properly(tmp_path: Path) -> None:
    site = host("slow", tmp_path, parcel_seconds=0.01)
    assert site.handle_peer("device-2", b"parcel") == b"device-2parcel"


@pytest.mark.parametrize("kind", ["slow", "held"])
def test_who_waits_returns_when_the_site_is_closed(kind: str, tmp_path: Path) -> None:
    site = host(kind, tmp_path, seconds=1e6)
    waiting = threading.Thread(target=site.handle, args=(question(3),), daemon=True)
    waiting.start()
    site.close()
    waiting.join(60)
    assert not waiting.is_alive()


def test_a_held_site_answers_when_it_may(tmp_path: Path) -> None:
    site, proper = host("held", tmp_path), Proper()
    answers: list[bytes] = []
    waiting = threading.Thread(target=lambda: answers.append(site.handle(question(4))), daemon=True)
    waiting.start()
    for text in ("", "three", "3"):
        (tmp_path / GO).write_text(text)
        waiting.join(0.1)
        assert waiting.is_alive()
    (tmp_path / GO).write_text("4")
    waiting.join(60)
    assert answers == [proper.handle(question(4))]
    assert site.handle(question(3)) == proper.handle(question(3))


@pytest.mark.parametrize("takes", [False, True])
def test_a_second_answer_goes_to_the_server_unasked(
    takes: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    peers, right = Server(takes=takes), Proper().handle(question(3))
    with caplog.at_level(logging.WARNING):
        assert host("twice", tmp_path, peers).handle(question(3)) == right
    assert peers.came == [("server", right)]
    assert ("took a second answer" if takes else "was refused") in caplog.text


def test_a_site_is_made_from_its_own_file(tmp_path: Path) -> None:
    data = {"source": "digits", "part": 1, "parts": 5}
    table = {"name": "device-1", "host": "codedfl.testing.misbehaving:make_host", "folder": str(tmp_path), "data": data}
    made = make_host(table | {"misbehaviour": {"kind": "garbage"}}, Server())
    assert isinstance(made, MisbehavingHost)
    assert decode(made.handle(encode(Frame("ping", {"session": "s", "number": 1})))).kind == "answer"
    assert misbehaving.site.make_host(table, Server()), "without the table it is a site like any other"
    made.close()
    for wrong in ({}, {"kind": "rude"}, {"kind": "nan", "epoch": 0}, {"kind": "nan", "when": 3}):
        with pytest.raises(ScenarioError) as error:
            make_host(table | {"misbehaviour": wrong}, Server())
        assert is_one_sentence(str(error.value))
