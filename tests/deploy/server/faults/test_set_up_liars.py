"""Sites and relays that deviate while the stages of a set-up overlap: who does is named, and nobody waits for long."""

import math
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from codedfl.deploy.protocol.receipts import Receipts
from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.deploy.server.channel import Channel
from codedfl.deploy.server.stages import OverlappingExchange
from codedfl.deploy.site.exchange import stage
from codedfl.deploy.site.parcels import Inbox, deliver
from codedfl.errors import LostDevicesError
from codedfl.schemes.contract import Stage, Transfer
from codedfl.testing.in_process import InProcessCarrier
from deploy.server.test_overlapping_set_up import PLACES, chosen, given
from fleets import fleet
from tiny import is_one_sentence


@pytest.mark.parametrize("claim", ["released", "unreached"])
def test_a_site_that_gives_up_without_a_reason_is_lost_itself(claim: str, tmp_path: Path) -> None:
    """A site that claims to have been released, or not to reach another one that is there, stops the set-up alone.

    It does nothing else, so that all others wait for it, and are released because of it.
    """
    claims: dict[str, dict[str, Any]] = {
        "released": {"reason": "the stages were given up", "unreached": None},
        "unreached": {"reason": "it could not send to device-5", "unreached": "device-5"},
    }
    carried: dict[int, bytes] = {}

    def question(site: str, tag: int, payload: bytes) -> bytes:
        frame = decode(payload)
        if site != "device-2" or frame.kind != "carry":
            return payload
        carried[tag] = payload
        return encode(Frame("ping", {name: frame.fields[name] for name in ("session", "number")}))

    def reply(site: str, tag: int, payload: bytes) -> list[bytes]:
        if tag not in carried:
            return [payload]
        echo = {name: decode(carried[tag]).fields[name] for name in ("session", "number")}
        return [encode(Frame("error", {**claims[claim], **echo}))]

    with fleet(given()) as sites:
        sites.faults.question, sites.faults.reply = question, reply
        with pytest.raises(LostDevicesError) as error:
            sites.deploy(chosen(), tmp_path / "run")
    assert str(error.value).endswith(f"lost: device-2 ({claims[claim]['reason']})")
    assert is_one_sentence(str(error.value))


def test_a_site_that_gives_up_and_refuses_parcels_is_lost_and_not_those_who_sent_them(tmp_path: Path) -> None:
    """They fail when the server knows of the first, and before it can release them."""
    released, failed = threading.Event(), {f"device-{number}": threading.Event() for number in (1, 3, 4, 5, 6)}
    carried: dict[int, Frame] = {}

    def question(site: str, tag: int, payload: bytes) -> bytes:
        frame = decode(payload)
        if frame.kind == "carry":
            carried[tag] = frame
        if frame.kind == "carry" and site == "device-2":
            return encode(Frame("ping", {name: frame.fields[name] for name in ("session", "number")}))
        if frame.kind == "forget" and frame.fields["stage"] is not None:
            released.set()
            assert site == "device-2" or failed[site].wait(60)
        return payload

    def reply(site: str, tag: int, payload: bytes) -> list[bytes]:
        if tag in carried and site == "device-2":
            echo = {name: carried[tag].fields[name] for name in ("session", "number")}
            return [encode(Frame("error", {"reason": "the stages were given up", "unreached": None, **echo}))]
        if tag in carried:
            assert decode(payload).fields["unreached"] == "device-2"
            failed[site].set()
        return [payload]

    def parcel(sender: str, recipient: str, payload: bytes) -> bytes | None:
        if recipient != "device-2":
            return payload
        assert released.wait(60)
        return None

    with fleet(given()) as sites:
        sites.faults.question, sites.faults.reply, sites.faults.parcel = question, reply, parcel
        with pytest.raises(LostDevicesError, match=r"lost: device-2 \(the stages were given up\)$"):
            sites.deploy(chosen(), tmp_path / "run")


@pytest.mark.parametrize("number", PLACES[::2])
def test_a_receipt_that_the_recipient_has_not_signed_is_found_by_the_sender(number: int, tmp_path: Path) -> None:
    """The relay keeps a parcel and answers itself: with nothing, or with the receipt of another parcel."""
    with fleet(given()) as sites:
        relay, counted, one_at_a_time, real = sites.carrier.relay, [0], threading.Lock(), [encode(Frame("taken"))]

        def forged(sender: str, recipient: str, payload: bytes) -> bytes:
            with one_at_a_time:
                counted[0] += sender == "device-3"
                vanishes = sender == "device-3" and counted[0] > number
            if vanishes:
                return real[-1]
            real.append(relay(sender, recipient, payload))
            return real[-1]

        sites.carrier.relay = forged  # type: ignore[method-assign]
        with pytest.raises(
            LostDevicesError, match=r"lost: device-3 \(it could not send to device-.: its receipt"
        ) as error:
            sites.deploy(chosen(), tmp_path / "run", patience=30.0, longest=3600.0)
        assert sites.clock() == 0.0, "nobody has to wait for it"
        assert is_one_sentence(str(error.value))
        assert str(error.value).count("(") == 2, "nobody else is lost"


@pytest.mark.parametrize("number", PLACES[::2])
@pytest.mark.parametrize("liar", ["sender", "recipient"])
def test_who_lies_about_a_parcel_is_named_and_nobody_waits_for_it(
    liar: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender says that a parcel was accepted which it has not sent; a recipient drops what it has signed for."""
    counted, one_at_a_time, dropped = [0], threading.Lock(), []
    put = Inbox.put

    def keeps(sender: str, recipient: str) -> bool:
        with one_at_a_time:
            counted[0] += sender == "device-3"
            dropped.extend([recipient] * (sender == "device-3" and counted[0] == number + 1))
            return sender == "device-3" and counted[0] == number + 1

    def lying_deliver(peers: Any, envelopes: Any, receipts: Receipts, recipient: str, parcel: Any) -> str:
        if keeps(receipts.site, recipient):
            return "00" * 64
        return deliver(peers, envelopes, receipts, recipient, parcel)

    def lying_put(inbox: Inbox, sender: str, parcel: Any, arrived: float) -> None:
        if not keeps(sender, ""):
            put(inbox, sender, parcel, arrived)

    if liar == "sender":
        monkeypatch.setattr(stage, "deliver", lying_deliver)
        match = r"lost: device-3 \(it says that device-. has accepted parcel \d+, and shows no receipt of it\)$"
    else:
        monkeypatch.setattr(Inbox, "put", lying_put)
        match = (
            r"lost: device-[1-6] \(it says that parcel \d+ of device-3 has not arrived, and has signed that it has\)$"
        )
    with fleet(given()) as sites:
        with pytest.raises(LostDevicesError, match=match) as error:
            sites.deploy(chosen(), tmp_path / "run", patience=30.0, longest=3600.0)
        assert dropped
        assert sites.clock() < 60.0
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize(("seconds", "limit"), [(math.inf, 100.0), (90.0, 1300.0)])
def test_a_site_that_holds_up_all_others_is_lost_alone(seconds: float, limit: float, tmp_path: Path) -> None:
    """It answers all that it is asked, and sends its parcels late: one never, or each just in time for itself."""
    done = threading.Event()
    with fleet(given()) as sites:

        def parcel(sender: str, recipient: str, payload: bytes) -> bytes:
            until = sites.clock() + seconds
            if sender == "device-3":
                with sites.carrier.at_rest(lambda: sites.clock() < until and not done.is_set()):
                    while sites.clock() < until and not done.wait(0.001):
                        pass
            return payload

        sites.faults.parcel = parcel
        try:
            with pytest.raises(LostDevicesError, match=rf"lost: device-3 \(no progress for {limit:g} s\)$") as error:
                sites.deploy(chosen(), tmp_path / "run", patience=30.0, longest=100.0)
        finally:
            done.set()
        assert limit < sites.clock() < limit + 100.0
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize("told", [None, "x", [-1], [[]]])
def test_progress_that_cannot_be_read_is_refused(told: Any, tmp_path: Path) -> None:
    looked = threading.Event()

    def reply(site: str, tag: int, payload: bytes) -> list[bytes]:
        frame = decode(payload)
        if site != "device-4" or "missing" not in frame.fields:
            return [payload]
        looked.set()
        return [encode(Frame(frame.kind, {**frame.fields, "sent": told}))]

    with fleet(given()) as sites:

        def question(site: str, tag: int, payload: bytes) -> bytes:
            if site == "device-6" and decode(payload).kind == "carry":
                with sites.carrier.at_rest(lambda: not looked.is_set()):  # the clock of the server goes on
                    assert looked.wait(timeout=60)
            return payload

        sites.faults.reply, sites.faults.question = reply, question
        with pytest.raises(LostDevicesError, match=r"lost: device-4 \(the field 'sent' of a message is not") as error:
            sites.deploy(chosen(), tmp_path / "run")
    assert is_one_sentence(str(error.value))


def random_stages(draws: random.Random, devices: int) -> list[Stage]:
    """Stages of parcels between random devices, each after some of those before it."""
    return [
        Stage(
            [Transfer(*draws.sample(range(devices), 2), {}) for _ in range(draws.randint(1, 6))],
            after=tuple(draws.sample(range(place), draws.randint(0, place))),
        )
        for place in range(draws.randint(1, 5))
    ]


@pytest.mark.parametrize("links", ["real", "parallel", "shared"])
@pytest.mark.parametrize("seed", range(30))
def test_somebody_always_holds_up_the_others_and_only_who_can_go_on(seed: int, links: str) -> None:
    """Whatever the order of the parcels, until all have arrived, and then all who have not answered."""
    draws, devices = random.Random(seed), 5
    stages = random_stages(draws, devices)
    transfers = [(each, place) for place, one in enumerate(stages) for each in one.transfers]
    channel = Channel(InProcessCarrier(), [f"device-{number}" for number in range(devices)])

    def exchange(order: list[int] | None) -> OverlappingExchange:
        told = {"emulated": order is not None, "order": order, "one_at_a_time": links == "shared"}
        return OverlappingExchange(channel, 1, stages, 0, lambda *told: {}, lambda *told: False, **told)

    def needs(place: int) -> set[int]:
        direct = set(stages[place].after or ())
        return direct.union(*map(needs, direct))

    def ready(sent: set[int]) -> list[int]:
        """Return the parcels whose senders have received all of the stages before."""
        open_places = {(each.recipient, place) for n, (each, place) in enumerate(transfers) if n not in sent}
        lacks = [any((each.sender, before) in open_places for before in needs(place)) for each, place in transfers]
        return [n for n, lacking in enumerate(lacks) if n not in sent and not lacking]

    order: list[int] = []
    while len(order) < len(transfers):
        order.append(draws.choice(ready({*order})))
    found, sent, everyone = exchange(None if links == "real" else order), set[int](), range(devices)
    while len(sent) < len(transfers):
        missing = {*range(len(transfers))} - sent
        holding = found._holding_up(everyone, sent, missing)
        able = ready(sent) if links == "real" else [order[len(sent)]]
        assert {transfers[n][0].sender for n in able} <= holding
        idle = {transfers[n][0].sender for n in missing} - {transfers[n][0].sender for n in ready(sent)}
        assert not idle & holding, "nobody holds up others who waits for them"
        sent.add(able[0] if links != "real" else draws.choice(able))
    assert found._holding_up(everyone, sent, set()) == {*everyone}
