"""Wrong replies: where a training goes back to, who is named, and what the audit finds."""

import numpy as np
import pytest

from codedfl.engines.contract import LATE_ROUNDS
from codedfl.errors import LyingDeviceError
from codedfl.training.checking import Watch
from codedfl.training.records import Lie
from tiny import is_one_sentence
from training.watched import DEVICES, NEEDED, WRONG, Referee, Training, honest, message, question

# --- the audit ---


def test_the_audit_confirms_all_deferred_epochs_by_one_question() -> None:
    training = Training(Referee(defers=True))
    training.epochs(3)
    training.watch.settle()
    assert training.state.checked == {1, 2, 3}
    assert [(each.epoch, each.quorum, each.least) for each in training.post.asked] == [(3, NEEDED + 1, 0)]


def test_after_the_first_epoch_the_audit_asks_as_in_the_second() -> None:
    training = Training(Referee(defers=True))
    training.epoch()
    training.watch.settle()
    assert training.server.audits == [2]


def test_an_audit_with_too_few_replies_checks_nothing() -> None:
    training = Training(Referee(defers=True), lambda epoch, device: honest(epoch, device) if device < 2 else None)
    training.epochs(2)
    training.watch.settle()
    assert (training.state.checked, training.safe) == (set(), None)


def test_a_lie_in_the_audit_itself_is_named_there() -> None:
    """The gradients may be right, but nobody knows: the training goes back to the last epoch."""
    training = Training(
        Referee(defers=True), lambda epoch, device: message(WRONG) if device == 1 else honest(epoch, device)
    )
    training.epochs(2)
    spoilt = training.spoilt(training.watch.settle)
    assert training.watch.recover(spoilt) == [1]
    assert training.state.lies == [Lie(1, 2, False)]


def test_an_audit_that_fails_goes_back_to_before_the_first_deferred_epoch_and_awaits_everyone() -> None:
    """Epoch 1 is checked; epochs 2 and 3 are deferred, and 2 was wrong. Nobody is named yet."""
    training = Training(Referee(defers=True))
    training.epoch(0, 1, 2)
    training.epoch(wrong=[0])
    training.epoch()
    spoilt = training.spoilt(training.watch.settle)
    assert spoilt.liars == []
    assert training.watch.recover(spoilt) == []
    assert training.stands_after(1)
    assert (training.state.spoilt, training.state.checked, training.state.lies) == (2, {1}, [])
    put = training.epoch(*range(DEVICES))
    assert (put.quorum, put.least) == (DEVICES, NEEDED)
    assert training.watch.put(question(9, needed=None)).quorum == NEEDED


def test_a_second_audit_that_fails_goes_back_to_what_was_deferred_since() -> None:
    training = Training(Referee(defers=True))
    training.epoch(wrong=[0])
    training.watch.recover(training.spoilt(training.watch.settle))
    assert training.stands_after(0)
    training.epoch(*range(DEVICES))
    training.epoch(wrong=[0])
    training.watch.recover(training.spoilt(training.watch.settle))
    assert training.stands_after(1)


def test_a_return_to_a_later_point_forgets_no_deferred_epoch() -> None:
    """Epoch 1 was wrong and is deferred; a late lie in epoch 3 is found first."""
    training = Training(Referee(defers=True))
    training.epoch(wrong=[0])
    _, third, *_ = training.epochs(LATE_ROUNDS)
    training.post.arrives(third, 2, 3, 4, wrong=[3])
    training.watch.recover(training.spoilt(training.watch.collect))
    training.watch.recover(training.spoilt(training.watch.settle))
    assert training.stands_after(0)


def test_an_epoch_that_cannot_be_deferred_takes_what_came_after_it_along() -> None:
    """Epoch 1 was wrong and is asked again, epoch 2 is deferred and undone with it: what is deferred from then on goes
    back to the new model of epoch 1, not to that of the lie.
    """
    training = Training(Referee(defers=True, asked_again=[1]))
    training.epoch(wrong=[0])
    training.epoch()
    assert training.watch.recover(training.spoilt(training.watch.settle)) == [0]
    assert training.stands_after(0)
    training.state.model = training.state.model + 0.5
    training.epoch()
    training.epoch(wrong=[1])
    training.watch.recover(training.spoilt(training.watch.settle))
    assert training.state.epoch == 1
    assert (training.state.model == 1.5).all()


# --- going back ---


def test_a_wrong_reply_among_the_first_goes_back_to_before_the_epoch() -> None:
    training = Training(answers=lambda epoch, device: message(WRONG) if device == 3 else honest(epoch, device))
    training.epochs(2)
    spoilt = training.spoilt(lambda: training.epoch(0, 1, 2, 3, wrong=[3]))
    assert training.watch.recover(spoilt) == [3]
    assert training.stands_after(2)
    assert (training.state.spoilt, training.safe) == (1, 0)
    assert training.state.lies == [Lie(3, 3, False)]
    assert training.post.dropped == [(3, "its reply in epoch 3 does not fit the replies of the others")]
    assert [each.quorum for each in training.post.asked] == [DEVICES], "everyone is asked again"
    assert training.watch.put(question(4)).quorum == NEEDED, "the liar is known"


def test_who_contradicts_itself_is_told_so() -> None:
    told = iter([message(WRONG)])
    training = Training(answers=lambda epoch, device: next(told) if device == 0 else honest(epoch, device))
    spoilt = training.spoilt(lambda: training.epoch(0, 1, 2, wrong=[1]))
    assert training.watch.recover(spoilt) == [0, 1]
    assert set(training.state.lies) == {Lie(0, 1, True), Lie(1, 1, True)}
    assert dict(training.post.dropped)[0] == "it replied two different numbers to the same question of epoch 1"


def test_a_late_reply_that_does_not_fit_a_checked_epoch_interrupts_the_present_one_only() -> None:
    training = Training()
    first = training.epoch(0, 1, 2)
    training.epoch(0, 1, 2)
    training.post.arrives(first, 3, 4, wrong=[4])
    spoilt = training.spoilt(lambda: training.epoch(0, 1, 2))
    assert training.watch.recover(spoilt) == [4]
    assert training.stands_after(2)
    assert (training.state.spoilt, training.state.checked) == (1, {1, 2})
    assert training.state.lies == [Lie(4, 1, False)]


def test_a_late_lie_in_an_epoch_that_nothing_had_checked_confirms_the_epoch() -> None:
    """Its gradient came from others; the epoch is not looked at again."""
    training = Training(answers=lambda epoch, device: message(WRONG) if device == 2 else honest(epoch, device))
    first = training.epoch()
    training.epoch(0, 1, 3)
    training.post.arrives(first, 2, 3, wrong=[2])
    spoilt = training.spoilt(lambda: training.epoch(0, 1, 3))
    assert training.watch.recover(spoilt) == [2]
    assert training.stands_after(2)
    assert (training.state.checked, training.safe, training.state.spoilt) == ({1, 2}, None, 1)
    training.epoch(0, 1, 3)
    training.watch.settle()
    assert training.state.checked == {1, 2, 3}


def test_a_late_lie_shows_a_wrong_gradient_and_all_after_it_is_undone() -> None:
    training = Training(answers=lambda epoch, device: message(WRONG) if device == 0 else honest(epoch, device))
    training.epoch(0, 1, 2)
    second = training.epoch(wrong=[0])
    training.epochs(1)
    training.post.arrives(second, 2, 3)
    spoilt = training.spoilt(lambda: training.epoch(1, 2, 3))
    assert str(spoilt) == "wrong replies in epoch 2"
    assert training.watch.recover(spoilt) == [0]
    assert training.server.rewound == [{"epoch": np.array(1)}]
    assert training.stands_after(1)
    assert (training.state.spoilt, training.state.checked) == (3, {1})
    assert training.safe is None


def test_an_epoch_before_the_one_that_is_undone_is_still_watched() -> None:
    training = Training(answers=lambda epoch, device: message(WRONG) if device == 0 else honest(epoch, device))
    first = training.epoch(1, 2)
    second = training.epoch(wrong=[0])
    training.post.arrives(second, 2, 3)
    assert training.watch.recover(training.spoilt(training.watch.collect)) == [0]
    assert (training.state.epoch, training.safe) == (1, 0)
    training.post.arrives(first, 4)
    training.watch.collect()
    assert (training.state.checked, training.safe) == ({1}, None)


def test_an_epoch_that_is_left_for_the_end_stays_so_when_the_next_one_is_undone() -> None:
    """Epoch 1 can no longer be checked by late replies when one shows that epoch 2 was wrong."""
    training = Training(answers=lambda epoch, device: message(WRONG) if device == 0 else honest(epoch, device))
    training.epoch(1, 2)
    second = training.epoch(wrong=[0])
    training.epochs(LATE_ROUNDS - 1)
    training.post.arrives(second, 2, 3)
    assert training.watch.recover(training.spoilt(training.watch.collect)) == [0]
    assert training.stands_after(1)
    training.post.answers = lambda epoch, device: None if device == 0 else honest(epoch, device)
    training.watch.settle()
    assert training.state.checked == {1}


def test_an_undone_epoch_is_not_asked_again_in_the_end() -> None:
    training = Training(answers=lambda epoch, device: message(WRONG) if device == 0 else honest(epoch, device))
    training.epoch(wrong=[0])
    training.epochs(LATE_ROUNDS)
    training.watch.recover(training.spoilt(training.watch.settle))
    assert training.stands_after(0)
    asked = len(training.post.asked)
    training.watch.settle()
    assert len(training.post.asked) == asked


def test_a_lie_that_no_reply_can_name_stops_the_run_where_it_was_right() -> None:
    """One spare reply and the same lie again: it is told how many replies there are and needed."""
    only_three: Answers = lambda epoch, device: (  # noqa: E731
        None if device > 2 else message(WRONG) if device == 0 else honest(epoch, device)
    )
    training = Training(answers=only_three)
    training.epoch(0, 1, 2)
    with pytest.raises(LyingDeviceError) as error:
        training.watch.recover(training.spoilt(lambda: training.epoch(0, 1, 2, wrong=[0])))
    text = str(error.value)
    assert "wrong numbers in epoch 2, and 3 replies do not tell which one where 2 are needed" in text
    assert "the run is saved up to epoch 1:" in text and is_one_sentence(text)
    assert training.stands_after(1)
    assert (training.state.lies, training.post.dropped) == ([], [])


@pytest.mark.parametrize("answering", [3, 4])
def test_as_many_replies_as_are_needed_name_only_who_contradicts_itself(answering: int) -> None:
    """Two replies differ from before: one or two are left, which fit anything."""
    training = Training(answers=lambda epoch, device: honest(epoch, device) if device < answering else None)
    spoilt = training.spoilt(lambda: training.epoch(0, 1, 2, wrong=[0, 1]))
    assert training.watch.recover(spoilt) == [0, 1]
    assert [(lie.device, lie.contradicts_itself) for lie in training.state.lies] == [(0, True), (1, True)]


def test_a_lie_from_before_the_run_was_saved_cannot_be_undone() -> None:
    """A resumed training does not know the points before what the server has deferred."""
    training = Training(Referee(defers=True))
    training.epochs(2)
    training.server.deferred = {1: False}
    fresh = Watch(training.server, training.post, training.state)
    with pytest.raises(LyingDeviceError, match="before the run was saved in epoch 2 or earlier") as error:
        fresh.recover(training.spoilt(fresh.settle))
    assert is_one_sentence(str(error.value))
    assert training.stands_after(2)
