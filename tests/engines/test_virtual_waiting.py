"""The virtual engine's other ways of waiting, by hand: deadlines, open questions, several questions, uploads."""

from collections.abc import Mapping

import numpy as np
import pytest

from codedfl.engines import VirtualEngine
from codedfl.errors import EngineError
from codedfl.network import DelayModel
from codedfl.scenario import Fleet, Links
from codedfl.schemes import SERVER, Device, Message, Round, Server, Stage, Transfer, Work
from engines.test_virtual import LINKS, Stub, ask, engine, question
from tiny import is_one_sentence


def with_deadline(asked: Round, seconds: float) -> Round:
    return Round(asked.epoch, asked.requests, deadline=seconds)


def standing(asked: Round) -> Round:
    return Round(asked.epoch, asked.requests, standing=True)


# Every device below takes 1.5 s to receive one number, works for as many seconds as it has MAC, and sends for 3 s.


def waiting(*macs: int) -> VirtualEngine:
    return engine([Stub(1, count) for count in macs], [1.0] * len(macs))


def everyone(epoch: int, count: int) -> Round:
    return question(epoch, dict.fromkeys(range(count), 1))


@pytest.mark.parametrize(
    ("deadline", "least", "replied", "now"),
    [
        (6.0, 0, [0], 6.0),  # replies are due at 5.5, 8.5 and 14.5
        (8.5, 0, [0, 1], 8.5),  # in the nick of time
        (6.0, 2, [0, 1], 8.5),  # two are needed: the second ends it, after the deadline
        (3.0, 0, [], 3.0),  # nobody is in time
        (20.0, 0, [0, 1, 2], 14.5),  # all are there before the deadline
    ],
)
def test_a_deadline_ends_a_round(deadline: float, least: int, replied: list[int], now: float) -> None:
    virtual = waiting(1, 4, 10)
    answer = ask(virtual, with_deadline(everyone(1, 3), deadline), 3, least=least)
    assert [reply.device for reply in answer.replies] == replied
    assert virtual.now == now
    assert answer.costs.deadline == deadline


def test_a_deadline_is_sat_out_where_devices_are_lost() -> None:
    """The one that is there replies at 5.5 s; nobody knows that the other never will."""
    delays = DelayModel.create(Fleet(devices=[{"count": 2, "mac_rate": 1.0, "setup_ratio": 0.0}]), LINKS)
    virtual = VirtualEngine([Stub(1, 1), Stub(1, 1)], delays, seed=0, draw=0, last_epochs={1: 1})
    answer = ask(virtual, with_deadline(everyone(2, 2), 9.0), 2)
    assert ([reply.device for reply in answer.replies], answer.lost, virtual.now) == ([0], (1,), 9.0)


def test_open_questions_are_answered_in_a_standing_round() -> None:
    """Device 1 needs 14.5 s for the question of epoch 1; device 0 needs 5.5 s each time and is asked again.

    Replies: 0 at 5.5 (epoch 1), 0 at 11 (epoch 2), 1 at 14.5 (epoch 3, to the question of epoch 1), 0 at 16.5.
    """
    virtual = waiting(1, 10)
    heard = [ask(virtual, everyone(1, 2), 1)]
    heard += [ask(virtual, standing(question(epoch, {0: 1})), 1) for epoch in (2, 3)]
    heard += [ask(virtual, standing(question(4, {1: 1})), 1)]
    found = [(reply.device, reply.message["answer"].tolist(), reply.seconds) for a in heard for reply in a.replies]
    assert found == [(0, [1.0], 5.5), (0, [2.0], 5.5), (1, [1.0], 14.5), (0, [3.0], 5.5)]
    assert virtual.now == 16.5


def test_a_lost_device_answers_no_open_question() -> None:
    delays = DelayModel.create(Fleet(devices=[{"count": 2, "mac_rate": 1.0, "setup_ratio": 0.0}]), LINKS)
    virtual = VirtualEngine([Stub(1, 1), Stub(1, 10)], delays, seed=0, draw=0, last_epochs={1: 1})
    ask(virtual, everyone(1, 2), 1)
    answer = ask(virtual, standing(question(2, {0: 1})), 2)
    assert [reply.device for reply in answer.replies] == [0]


def test_a_reopened_question_is_answered_when_it_would_have_been() -> None:
    """Interrupted at 5.5 s, after epoch 1: device 1's reply is due at 14.5 s all the same."""
    virtual = VirtualEngine([Stub(1, 1), Stub(1, 10)], *_unlucky(), seed=0, draw=0, now=5.5)
    virtual.reopen(question(1, {1: 1}), 0.0)
    answers = [ask(virtual, standing(question(epoch, {0: 1})), 1) for epoch in (2, 3)]
    assert [(reply.device, reply.seconds) for a in answers for reply in a.replies] == [(0, 5.5), (1, 14.5)]
    assert virtual.now == 14.5


def _unlucky() -> list[DelayModel]:
    return [DelayModel.create(Fleet(devices=[{"count": 2, "mac_rate": 1.0, "setup_ratio": 0.0}]), LINKS)]


@pytest.mark.parametrize("epoch", [1, 4])
def test_questions_of_one_epoch_have_delays_of_their_own(epoch: int) -> None:
    """The second question of an epoch meets other random numbers than the first, those of the delay model."""
    delays = DelayModel.create(Fleet(devices=[{"count": 3, "mac_rate": 2.0}]), Links(loss=0.5))
    virtual = VirtualEngine([Stub(1, 8)] * 3, delays, seed=5, draw=11)
    for number in range(3):
        answer = ask(virtual, everyone(epoch, 3), 3)
        luck = delays.chance(5, epoch, 11, 1, number)
        expected = delays.reply_seconds(answer.costs, luck)[0]
        assert {reply.device: reply.seconds for reply in answer.replies} == dict(enumerate(expected.tolist()))
    assert len({delays.chance(5, epoch, 11, 1, number).setup[0, 0] for number in range(3)}) == 3


def test_a_question_to_nobody_takes_no_time() -> None:
    virtual = waiting(1)
    answer = ask(virtual, Round(2, {}), 0)
    assert (answer.replies, virtual.now, len(answer.costs.asked)) == ((), 0.0, 0)


class Sender(Device):
    """Sends two numbers."""

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        return {}

    def export(self, grant: Message, work: Work) -> Message:
        return {"number": np.full(2, 7, np.float32)}


def test_an_upload_goes_to_the_server_on_the_up_link() -> None:
    """64 bits up at 1.5 * 64 / 16 = 6 s; a replay gives it to the server again and takes no time."""
    fleet = Fleet(devices=[{"mac_rate": 1.0, "setup_ratio": 0.0}])
    virtual = VirtualEngine([Sender()], DelayModel.create(fleet, LINKS), seed=0, draw=0)
    received: list[tuple[int, list[float]]] = []

    def receive(sender: int, parcel: Message) -> None:
        received.append((sender, parcel["number"].tolist()))

    upload = Stage([Transfer(0, SERVER, {})])
    outcome = virtual.carry(upload, 0, receive)
    virtual.replay(upload, receive)
    assert received == [(0, [7.0, 7.0])] * 2
    assert virtual.now == 6.0
    assert outcome.costs[0].bits() == {"down": 0, "up": 64, "d2d": 0}


class Deaf(Server):
    """Asks and combines, and does nothing else."""

    def ask(self, epoch: int, model: np.ndarray) -> Round:
        return Round(epoch, {})

    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> np.ndarray:
        return np.zeros((1, 1))


def test_who_exchanges_no_parcels_says_so_in_one_sentence() -> None:
    fleet = Fleet(devices=[{"count": 2, "mac_rate": 1.0}])
    virtual = VirtualEngine([Sender(), Stub(1, 1)], DelayModel.create(fleet, LINKS), seed=0, draw=0)
    for transfer, what in (
        (Transfer(0, SERVER, {}), "Deaf takes no parcels"),
        (Transfer(0, 1, {}), "Stub takes no parcels"),
        (Transfer(1, 0, {}), "Stub sends no parcels"),
    ):
        with pytest.raises(EngineError, match=what) as error:
            virtual.carry(Stage([transfer]), 0, Deaf().receive)
        assert is_one_sentence(str(error.value))
