"""A server that deviates in stages that overlap: whatever it says about their order, devices refuse what they must."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from codedfl.deploy.protocol.wire import pack_messages
from codedfl.deploy.server.channel import SiteRequest
from codedfl.schemes import Work
from codedfl.schemes.contract import Transfer
from codedfl.schemes.sharing.sealed import fresh_grant
from codedfl.testing.hostile import HostileServer, HostileSession
from codedfl.testing.hostile_attacks import VICTIM
from codedfl.testing.small import problem
from contracts.test_schemes import wanted
from fleets import InProcessFleet, fleet
from tiny import is_one_sentence

OPTIONS = {"schemes.sealed-coded.workers": 4, "schemes.sealed-coded.threshold": 2}
SCENARIO = wanted("sealed-coded").with_settings(
    {**OPTIONS, "task.precision": "float64", "fleet.devices": [{"count": 5, "mac_rate": 25e6}]}
)


@pytest.fixture(scope="module")
def sites() -> Iterator[InProcessFleet]:
    with fleet(problem([6, 5, 6, 5, 6], features=40, outputs=2)) as made:
        yield made


def carried(session: HostileSession, *stages: Sequence[Transfer]) -> str:
    """Ask the victim to send parcels in stages that await nothing; return its refusal."""
    number, rows, grants = 0, [], {}
    for transfers in stages:
        first, export = number, []
        for each in transfers:
            export.append([number, session.channel.sites[each.recipient], None])
            grants[number] = each.grant
            number += 1
        rows.append({"occasion": None, "first": first, "after": [], "export": export, "absorb": []})
    session._stages += 1
    fields: dict[str, Any] = {"stage": session._stages, "stages": rows}
    sealed = session.session.seal(VICTIM, fields, pack_messages(grants))
    replies = session.channel.ask_all({VICTIM: SiteRequest("carry", fields, sealed)})
    assert not replies, "it has sent all"
    return session.channel.lost[VICTIM]


def own(stage: Any) -> list[Transfer]:
    return [each for each in stage.transfers if each.sender == VICTIM]


def only_its_own(session: HostileSession, stages: Sequence[Any]) -> str:
    """Its own pieces, and at once what follows from the sum: that would be the sum over one device."""
    return carried(session, own(stages[1]), own(stages[2]))


def its_part_alone(session: HostileSession, stages: Sequence[Any]) -> str:
    return carried(session, own(stages[1]), own(stages[3]))


def a_piece_twice(session: HostileSession, stages: Sequence[Any]) -> str:
    first, *_ = own(stages[1])
    return carried(session, [first], [Transfer(VICTIM, first.recipient, {**first.grant, **fresh_grant(1)})])


def a_piece_of_another_seal(session: HostileSession, stages: Sequence[Any]) -> str:
    """All pieces of all chunks honestly, then one again under another seed: the difference would read both."""
    for stage in stages[1::3]:
        session.carry(stage)
    first, *_ = own(stages[1])
    return carried(session, [Transfer(VICTIM, first.recipient, {**first.grant, **fresh_grant(1)})])


def a_chunk_without_its_pieces(session: HostileSession, stages: Sequence[Any]) -> str:
    """The first chunk is whole, the second is not."""
    session.carry(stages[1])
    return carried(session, own(stages[6]))


DEVIATIONS: list[tuple[Callable[..., str], str]] = [
    (only_its_own, "has no sealed piece of device 1 and 3 more"),
    (its_part_alone, "has no sealed piece of device 1 and 3 more"),
    (a_piece_twice, "or sent it before"),
    (a_piece_of_another_seal, "has sealed its data before"),
    (a_chunk_without_its_pieces, "has no sealed piece of device 1 and 3 more"),
]


@pytest.mark.parametrize(("deviate", "sentence"), DEVIATIONS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_site_refuses_and_sends_nothing(deviate: Any, sentence: str, sites: InProcessFleet) -> None:
    server = HostileServer(sites.carrier, sites.sites, {"sealed-coded": SCENARIO}, sites.clock, 30.0)
    session = server.begin("sealed-coded")
    stages = session.server.set_up()
    assert session.scheme.layout.bands.chunks > 1  # type: ignore[attr-defined]
    session.carry(stages[0])
    parcels = {"count": 0}

    def counted(site: str, tag: int, payload: bytes) -> bytes:
        parcels["count"] = len(sites.recording.relayed)
        return payload

    sites.faults.question = counted
    refusal = deviate(session, stages)
    assert sentence in refusal
    assert is_one_sentence(refusal)
    assert len(sites.recording.relayed) == parcels["count"], "it sends nothing of the request that it refuses"


def test_seals_and_masks_of_two_attempts_differ(sites: InProcessFleet) -> None:
    """The same data under the seeds of the first attempt again: no piece of the second tells anything of the first."""
    server = HostileServer(sites.carrier, sites.sites, {"sealed-coded": SCENARIO}, sites.clock, 30.0)
    found: list[dict[int, Any]] = []
    kept: list[Transfer] = []
    for _ in range(2):
        session = server.begin("sealed-coded")
        keys, pieces, *_ = session.server.set_up()
        session.carry(keys)
        kept = kept or own(pieces)
        run = vars(sites.carrier.host(sites.sites[VICTIM]))["_run"]
        run.device._seal(kept[0].grant, Work())
        found.append({number: piece.copy() for number, piece in run.device._pieces.items()})
    for number, piece in found[0].items():
        same = np.mean(piece == found[1][number])
        assert same < 0.05, "residues agree by chance only"
