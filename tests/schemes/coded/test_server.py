"""The server that decodes padded sums: which replies it uses, which it finds wrong, and what it audits together."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.cipher.seals import FIELD_61
from codedfl.errors import CipherError
from codedfl.schemes import Round, Work
from codedfl.task import Problem
from schemes.residues import set_up, wanted
from tiny import is_one_sentence, plain_gradient, problem

D, C, N = 6, 2, 5


@cache
def shared() -> Problem:
    return problem([4] * N, features=D, outputs=C)


def made(alpha: int) -> tuple[Any, list[Any]]:
    """A server that needs K = 6 - alpha of five replies, and devices that hold padded data."""
    options = {"schemes.coded-padded": {"alpha": alpha, "ring": FIELD_61.name}}
    scheme: Any = schemes.create(wanted("coded-padded", options, rates=(1e6,) * N), shared())
    server, devices, _, _ = set_up(scheme, shared().shards)
    return server, devices


def model(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((D, C))


def told(server: Any, devices: list[Any], epoch: int) -> tuple[Round, dict[int, dict[str, np.ndarray]]]:
    question = server.ask(epoch, model(epoch))
    return question, {
        device: dict(devices[device].reply(epoch, request, Work())) for device, request in question.requests.items()
    }


def lie(replies: dict[int, Any], device: int, *, by: int = 1) -> dict[int, Any]:
    """Add to one number of one reply; the largest number of the type is no residue."""
    ((name, array),) = replies[device].items()
    changed = array.copy()
    changed.flat[3] = changed.flat[3] + by if by else np.iinfo(changed.dtype).max
    return {**replies, device: {name: changed}}


@pytest.mark.parametrize("epoch", [1, 2])
def test_replies_check_each_other(epoch: int) -> None:
    """K = 2: of five replies one or two wrong ones are noticed; of four or five one is found."""
    server, devices = made(4)
    told(server, devices, 1)
    question, replies = told(server, devices, epoch)
    assert server.check(question, replies) == ()
    for device in range(N):
        assert server.check(question, lie(replies, device)) == (device,)
    four = {device: replies[device] for device in (4, 0, 3, 1)}
    assert server.check(question, lie(four, 3)) == (3,)
    three = {device: replies[device] for device in (4, 0, 3)}
    assert server.check(question, three) == ()
    assert server.check(question, lie(three, 3)) is None
    two = {device: replies[device] for device in (4, 0)}
    assert server.check(question, lie(two, 0)) == (), "nothing is left to check it"
    assert server.check(question, lie(lie(replies, 1), 2)) is None


@pytest.mark.parametrize("epoch", [1, 2])
def test_words_that_are_no_residues_are_wrong_in_any_case(epoch: int) -> None:
    server, devices = made(4)
    told(server, devices, 1)
    question, replies = told(server, devices, epoch)
    two = {device: replies[device] for device in (4, 0)}
    assert server.check(question, lie(two, 4, by=0)) == (4,)
    assert server.check(question, lie(replies, 3, by=0)) == (3,)
    assert server.check(question, lie(lie(replies, 3, by=0), 1, by=0)) == (1, 3)
    assert server.check(question, lie(lie(replies, 3, by=0), 1)) == (1, 3), "one of four others is found"
    three = lie(lie({device: replies[device] for device in (0, 1, 2, 3)}, 3, by=0), 1)
    assert server.check(question, three) is None
    two_left = lie(lie({device: replies[device] for device in (0, 1, 3)}, 3, by=0), 1)
    assert server.check(question, two_left) == (3,)


@pytest.mark.parametrize("epoch", [1, 2])
def test_the_first_replies_by_number_are_decoded_and_must_be_residues(epoch: int) -> None:
    """K = 3 of five: the gradient is the plaintext one, and the others are not looked at."""
    server, devices = made(3)
    _, first = told(server, devices, 1)
    server.combine(1, first, Work())
    question, replies = told(server, devices, epoch)
    gradient = server.combine(epoch, lie(lie(replies, 3), 4, by=0), Work())
    expected, _ = plain_gradient(shared().shards, question.point)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
    server, devices = made(3)
    _, first = told(server, devices, 1)
    server.combine(1, first, Work())
    _, replies = told(server, devices, epoch)
    for device in range(3):
        with pytest.raises(CipherError, match=f"The reply of device {device} cannot be used: it holds") as error:
            server.combine(epoch, lie(replies, device, by=0), Work())
        assert is_one_sentence(str(error.value))
    with pytest.raises(CipherError, match="The reply of device 1 cannot"):
        server.combine(epoch, lie(lie(replies, 1, by=0), 2, by=0), Work())


def test_modulus_itself_is_no_residue() -> None:
    server, devices = made(4)
    question, replies = told(server, devices, 1)
    changed = replies[2]["moments"].copy()
    changed[0, 0] = FIELD_61.modulus
    assert server.check(question, {**replies, 2: {"moments": changed}}) == (2,)
    changed[0, 0] = FIELD_61.modulus - 1
    assert server.check(question, {**replies, 2: {"moments": changed}}) == (2,), "a residue, but not the right one"


@pytest.mark.parametrize("alpha", [1, 3])
def test_what_decoding_multiplies(alpha: int) -> None:
    """Every number of K replies once; products of the model with the pads, where there are any."""
    server, devices = made(alpha)
    K, first, later = 6 - alpha, Work(), Work()
    _, replies = told(server, devices, 1)
    server.combine(1, replies, first)
    assert first.macs == K * D * C
    _, replies = told(server, devices, 2)
    server.combine(2, replies, later)
    assert later.macs == K * D * C + (C * D * D if alpha > 1 else 0)


class TestAudit:
    def deferred(self, alpha: int = 3, wrong: int | None = None) -> tuple[Any, list[Any], list[Any]]:
        """A server that has deferred epochs 2 and 3, decoded from as many replies as it needs."""
        server, devices = made(alpha)
        question, replies = told(server, devices, 1)
        assert server.defer(question, replies) is None, "right-hand sides are no products with a model"
        server.combine(1, replies, Work())
        states = []
        for epoch in (2, 3):
            question, replies = told(server, devices, epoch)
            needed = {device: replies[device] for device in range(6 - alpha)}
            if epoch == wrong:
                needed = lie(needed, 0)
            states.append(server.defer(question, needed))
            if epoch != wrong:  # numbers that are decoded from lies may be too large for the format
                server.combine(epoch, needed, Work())
        return server, devices, states

    def answers(self, server: Any, devices: list[Any]) -> dict[int, Any]:
        question = server.audit(4)
        return {device: devices[device].reply(4, request, Work()) for device, request in question.requests.items()}

    def test_one_question_about_all_deferred_epochs(self) -> None:
        """It awaits one reply more than are needed, so that they check each other."""
        server, devices, states = self.deferred()
        assert [state["deferred"].tolist() for state in states] == [[2], [2, 3]]
        question = server.audit(4)
        assert (question.epoch, sorted(question.requests)) == (4, [0, 1, 2, 3, 4])
        assert (question.quorum, question.least, question.needed) == (4, 4, 3)
        assert server.check(question, self.answers(server, devices)) == ()
        assert server.audited(self.answers(server, devices)) == [2, 3]
        assert server.audit(5) is None, "nothing is left to audit"

    @pytest.mark.parametrize("wrong", [2, 3])
    def test_a_wrong_product_is_found(self, wrong: int) -> None:
        server, devices, _ = self.deferred(wrong=wrong)
        assert server.audited(self.answers(server, devices)) is None
        assert server.audit(5) is None

    def test_nothing_was_deferred(self) -> None:
        server, _ = made(3)
        assert server.audit(2) is None
        assert "deferred" not in server.state()

    def test_replies_that_cannot_check_each_other_are_not_asked_for(self) -> None:
        """Of four devices one is spare; of three none, and then nothing can be audited any more."""
        server, _, _ = self.deferred()
        server.after_epoch(3, {}, [4])
        assert sorted(server.audit(4).requests) == [0, 1, 2, 3]
        assert server.state()["deferred"].tolist() == [2, 3]
        server.after_epoch(3, {}, [0])
        assert server.audit(4) is None
        assert "deferred" not in server.state()

    def test_what_was_deferred_survives_an_interruption(self) -> None:
        server, devices, _ = self.deferred()
        state = {name: np.array(value) for name, value in server.state().items()}
        again, _ = made(3)
        again.restore(state)
        assert {name: np.asarray(value).tolist() for name, value in again.state().items()} == {
            name: value.tolist() for name, value in state.items()
        }
        answers = self.answers(again, devices)
        for name in ("deferred_model", "deferred_product"):
            assert np.array_equal(again.state()[name], server.state()[name])
        assert again.audited(answers) == [2, 3]

    def test_a_server_that_goes_back_forgets_what_it_deferred_since(self) -> None:
        server, _, _ = self.deferred()
        state = {name: value for name, value in server.state().items() if not name.startswith("deferred")}
        server.restore(state)
        assert server.audit(4) is None
        assert "deferred" not in server.state()


def test_losses_that_are_left() -> None:
    """K = 3 of five: two; of which some are lost now, and some before."""
    server, _ = made(3)
    assert server.losses_left(2, set()) == 2
    assert server.losses_left(2, {1}) == 1
    assert server.losses_left(2, {1, 3}) == 0
    assert server.losses_left(2, {0, 1, 3}) == 0
    server.after_epoch(1, {}, [1])
    assert server.losses_left(2, set()) == 1
    assert server.losses_left(2, {1}) == 1
    assert server.losses_left(2, {2}) == 0


def test_the_state_says_who_works_and_what_is_summed() -> None:
    server, devices = made(3)
    _, replies = told(server, devices, 1)
    first = server.combine(1, replies, Work())
    server.after_epoch(1, {}, [3])
    state = server.state()
    assert state["workers"].tolist() == [0, 1, 2, 4]
    assert state["gone"].tolist() == []
    np.testing.assert_allclose(state["first"], first * 4 * N, rtol=1e-12)
    again, _ = made(3)
    assert again.restore(state).stages == ()
    assert sorted(again.ask(2, model(2)).requests) == [0, 1, 2, 4]
