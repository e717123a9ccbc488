"""The watch over replies: which epochs are checked when, and what is left for the end and for the audit."""

import numpy as np
import pytest

from codedfl.engines.contract import LATE_ROUNDS, Reply
from codedfl.schemes.contract import Round
from codedfl.schemes.messages import Message
from codedfl.training.records import Lie
from training.watched import NEEDED, WRONG, Open, Referee, Training, honest, message, question, right

# --- what is checked when ---


def test_an_epoch_is_checked_as_soon_as_it_has_one_reply_more_than_it_needs() -> None:
    training = Training()
    training.epoch(0, 1, 2)
    assert (training.state.checked, training.safe) == ({1}, None)
    second, _ = training.epochs(2)
    assert (training.state.checked, training.safe) == ({1}, 1)
    training.post.arrives(second, 4)
    training.watch.collect()
    assert (training.state.checked, training.safe) == ({1, 2}, 2)
    assert training.state.safe is not None
    assert (training.state.safe.fields["model"] == 2).all()


def test_late_replies_are_taken_in_when_the_next_epoch_is_answered() -> None:
    training = Training()
    first = training.epoch()
    training.post.arrives(first, 5)
    training.epoch()
    assert (training.state.checked, training.safe) == ({1}, 1)


@pytest.mark.parametrize("asked", [question(1, NEEDED), question(1, needed=None)])
def test_questions_without_spare_requests_are_not_watched(asked: Round) -> None:
    training = Training()
    training.epoch(0, 1, asked=asked, wrong=[0])
    training.watch.settle()
    assert (training.state.checked, training.safe, training.post.asked) == (set(), None, [])


def test_one_more_request_than_needed_is_watched() -> None:
    training = Training()
    training.epoch(0, 1, asked=question(1, NEEDED + 1))
    assert training.safe == 0


def test_the_first_point_has_the_state_of_the_server_and_later_ones_that_of_the_training() -> None:
    training = Training()
    first, _ = training.epochs(2)
    assert training.state.safe is not None and dict(training.state.safe.server) == training.server.state()
    training.post.arrives(first, 2)
    training.watch.collect()
    assert training.state.safe is not None and dict(training.state.safe.server) == {"epoch": np.array(1)}


def test_a_simulation_computes_one_spare_reply_of_an_epoch_and_no_late_one() -> None:
    training = Training()
    training.checked_epochs(4)
    replies = {device: Open(right(5, device)) for device in range(5)}
    put = question(5)
    training.watch.begin()
    training.watch.answered(put, replies)
    assert training.state.checked == {1, 2, 3, 4, 5}
    assert [each.is_computed for each in replies.values()] == [True, True, True, False, False]
    late = Open(right(5, 5))
    training.post.arrived.append((put, Reply(5, late, 1.0)))
    training.watch.collect()
    assert not late.is_computed


def test_replies_that_were_read_check_before_those_that_were_not() -> None:
    """Two of five were read, and one more is enough."""
    training = Training()
    training.checked_epochs(4)
    replies = {device: Open(right(5, device)) for device in range(5)}
    assert replies[3]["number"] == right(5, 3) and replies[4]["number"] == right(5, 4)
    training.watch.begin()
    training.watch.answered(question(5), replies)
    assert [each.is_computed for each in replies.values()] == [True, False, False, True, True]


def test_all_replies_that_are_known_are_checked() -> None:
    """Three right ones come first: the wrong one is none of those that would be enough."""
    training = Training()
    assert training.spoilt(lambda: training.epoch(0, 1, 2, 3, wrong=[3])).liars is None


# --- epochs that get no spare reply in time ---


def test_late_replies_are_awaited_for_some_rounds() -> None:
    training = Training()
    first, *_ = training.epochs(LATE_ROUNDS)
    assert (training.server.deferred_of, training.safe) == ([], 0)
    training.epoch()
    assert (training.server.deferred_of, training.safe) == ([1], 1)
    training.post.arrives(first, 2, wrong=[2])
    training.watch.collect()
    assert training.state.checked == set()


def test_a_checked_epoch_is_not_deferred() -> None:
    training = Training()
    training.epoch(0, 1, 2)
    training.epochs(LATE_ROUNDS)
    assert training.server.deferred_of == []


def test_what_is_deferred_is_in_all_points_that_a_training_may_go_back_to() -> None:
    training = Training(Referee(defers=True))
    training.epochs(LATE_ROUNDS + 1)
    assert training.state.safe is not None
    assert training.state.safe.server["deferred"].tolist() == [1]


def test_in_the_end_replies_on_their_way_are_awaited_and_the_rest_is_asked_again() -> None:
    """Of two epochs, one gets a spare reply; the other is asked for one more than it needs, at whatever loss."""
    training = Training()
    first, _ = training.epochs(2)
    training.post.on_their_way.append((first, Reply(3, message(right(1, 3)), 1.0)))
    training.watch.settle()
    assert training.state.checked == {1, 2}
    assert [(each.epoch, each.quorum, each.least) for each in training.post.asked] == [(2, NEEDED + 1, 0)]
    assert training.safe is None
    training.watch.settle()
    assert len(training.post.asked) == 1, "nothing is left to ask"


def test_who_is_asked_again_and_missing_leaves_an_epoch_unchecked() -> None:
    training = Training(answers=lambda epoch, device: honest(epoch, device) if device < 2 else None)
    training.epoch()
    training.watch.settle()
    assert (training.state.checked, training.safe) == (set(), None)


@pytest.mark.parametrize("told", [message(WRONG), {"other": np.array([right(1, 0)])}, {}])
def test_an_answer_that_differs_from_the_first_one_spoils_the_epoch(told: Message) -> None:
    training = Training(answers=lambda epoch, device: told if device == 0 else honest(epoch, device))
    training.epoch()
    spoilt = training.spoilt(training.watch.settle)
    assert (spoilt.liars, spoilt.found.question.epoch) == (None, 1)
    assert training.watch.recover(spoilt) == [0]
    assert training.state.lies == [Lie(0, 1, True)]
    assert training.stands_after(0)


def test_a_wrong_answer_to_the_question_asked_again_spoils_the_epoch() -> None:
    training = Training(answers=lambda epoch, device: message(WRONG) if device == 2 else honest(epoch, device))
    training.epoch()
    spoilt = training.spoilt(training.watch.settle)
    assert training.watch.recover(spoilt) == [2]
    assert training.state.lies == [Lie(2, 1, False)]
    assert (training.state.checked, training.stands_after(0)) == (set(), True), "the last epoch was interrupted"
