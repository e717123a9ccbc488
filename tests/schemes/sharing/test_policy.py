"""The sharing policy by hand: small fleets whose decisions follow from docs/sharing.md line by line."""

import doctest
import math

import pytest

from codedfl.schemes.sharing import policy as sharing
from codedfl.schemes.sharing.policy import Decision, Handover, SharingPolicy


def policy(devices: int, supports: int = 100, *, delta: float = 1.0, supply: str = "once") -> SharingPolicy:
    return SharingPolicy(devices=devices, supports=supports, delta=delta, supply=supply)


def moves(decision: Decision) -> list[tuple[int, int, int | None]]:
    return [(move.sender, move.recipient, move.support) for move in decision.handovers]


def times(*seconds: float) -> dict[int, float]:
    return dict(enumerate(seconds))


def test_an_even_number_sends_in_pairs_slowest_first() -> None:
    """Limit 1 + 1 = 2: devices 2 to 5 straggle. Slowest first 4 (9), 2 (8), 5 (7), 3 (6); of the two that stay,
    1 is the slower, so the first pair goes to 1 and the second to 0."""
    chosen = policy(6)
    decision = chosen.after_epoch(times(1.0, 1.5, 8.0, 6.0, 9.0, 7.0))
    assert decision.stragglers == (4, 2, 5, 3)
    assert moves(decision) == [(4, 1, 0), (2, 1, 1), (5, 0, 2), (3, 0, 3)]
    assert decision.waiting == ()
    assert chosen.active == (0, 1)
    assert [chosen.foreign_supports(device) for device in (0, 1)] == [2, 2]
    assert chosen.issued == 4


def test_exactly_delta_is_not_late() -> None:
    assert policy(3).after_epoch(times(1.0, 2.0, 2.0)).stragglers == ()
    assert policy(3).after_epoch(times(1.0, 2.0, 2.0 + 2**-51)).stragglers == (2,)
    assert policy(3, delta=0.0).after_epoch(times(1.0, 1.0, 1.0)).stragglers == ()


def test_an_odd_number_takes_the_slowest_that_never_received_along() -> None:
    """Device 3 straggles alone; 2 (1.9) is the slowest of the others and sends with it to the next slowest, 1."""
    chosen = policy(4)
    decision = chosen.after_epoch(times(1.0, 1.5, 1.9, 7.0))
    assert decision.stragglers == (3,)
    assert moves(decision) == [(3, 1, 0), (2, 1, 1)]
    assert chosen.active == (0, 1)
    assert chosen.may_forward(1)
    assert not chosen.may_forward(0)


def test_without_a_partner_one_sends_alone_and_its_recipient_may_not_forward() -> None:
    """Two devices: 1 straggles, and 0 must stay to receive. It then holds one foreign support."""
    chosen = policy(2)
    assert moves(chosen.after_epoch(times(1.0, 5.0))) == [(1, 0, 0)]
    assert chosen.foreign_supports(0) == 1
    assert not chosen.may_forward(0)


def test_two_foreign_supports_are_enough_to_forward() -> None:
    """Fleet of six. Epoch a: 3 and 4 send to 2, the slowest that stays. Epoch b: 5 and 1 straggle; 0 never received.

    Epoch c: 2 straggles and forwards its two supports to 0, which then holds four.
    """
    chosen = policy(6)
    assert moves(chosen.after_epoch(times(1.0, 1.1, 1.9, 9.0, 8.0, 1.2))) == [(3, 2, 0), (4, 2, 1)]
    assert moves(chosen.after_epoch({0: 1.0, 1: 4.0, 2: 1.5, 5: 5.0})) == [(5, 0, 2), (1, 0, 3)]
    assert moves(chosen.after_epoch({0: 1.0, 2: 3.0})) == [(2, 0, None)]
    assert chosen.foreign_supports(0) == 4
    assert chosen.active == (0,)
    assert chosen.issued == 4


def test_a_single_foreign_support_is_not_enough_to_forward() -> None:
    """Told that 1 once sent alone to 0: when 0 straggles, it gets a support of its own, with 3 to make the pair."""
    chosen = policy(4)
    chosen.resume([(1, 0, 0)])
    assert not chosen.may_forward(0)
    assert moves(chosen.after_epoch({0: 9.0, 2: 1.0, 3: 1.5})) == [(0, 2, 1), (3, 2, 2)]
    assert chosen.foreign_supports(2) == 1 + 1 + 1, "the one that 0 held, its own, and that of 3"


def test_three_with_one_recipient() -> None:
    """All but 0 straggle, and 0 must stay: a pair and a single one, all to 0."""
    chosen = policy(4)
    assert moves(chosen.after_epoch(times(1.0, 4.0, 5.0, 6.0))) == [(3, 0, 0), (2, 0, 1), (1, 0, 2)]
    assert chosen.foreign_supports(0) == 3


def test_the_partner_may_leave_a_single_device() -> None:
    """Epoch a: 4 straggles, 3 makes the pair, both to 2. Epoch b: 1 straggles; 0 never received and makes the pair."""
    chosen = policy(5)
    assert moves(chosen.after_epoch(times(1.0, 1.2, 1.4, 1.6, 9.0))) == [(4, 2, 0), (3, 2, 1)]
    assert moves(chosen.after_epoch({0: 1.0, 1: 7.0, 2: 1.1})) == [(1, 2, 2), (0, 2, 3)]
    assert chosen.active == (2,)


def test_when_all_that_stay_have_received_an_odd_one_sends_alone() -> None:
    """After (3, 2) -> 1, device 0 never received and 1 did. Device 0 straggles: 1 is no partner, for it received."""
    chosen = policy(4)
    assert moves(chosen.after_epoch(times(1.0, 1.5, 8.0, 9.0))) == [(3, 1, 0), (2, 1, 1)]
    decision = chosen.after_epoch({0: 9.0, 1: 1.0})
    assert moves(decision) == [(0, 1, 2)]
    assert chosen.foreign_supports(1) == 3


def test_exhaustion_the_slowest_leave_and_the_rest_wait() -> None:
    chosen = policy(6, 2)
    decision = chosen.after_epoch(times(1.0, 1.5, 8.0, 6.0, 9.0, 7.0))
    assert moves(decision) == [(4, 1, 0), (2, 1, 1)]
    assert decision.waiting == (5, 3)
    assert not chosen.may_grant
    decision = chosen.after_epoch({0: 1.0, 1: 1.5, 3: 6.0, 5: 7.0})
    assert (decision.stragglers, decision.handovers, decision.waiting) == ((5, 3), (), (5, 3))
    assert moves(chosen.after_epoch({0: 1.0, 1: 9.0, 3: 6.0, 5: 1.2})) == [(1, 5, None)], "forwarding needs none"


def test_reissued_supports_come_back_with_the_same_numbers() -> None:
    chosen = policy(6, 2, supply="reissued")
    assert moves(chosen.after_epoch(times(1.0, 1.5, 8.0, 6.0, 9.0, 7.0))) == [(4, 1, 0), (2, 1, 1)]
    assert chosen.may_grant
    decision = chosen.after_epoch({0: 1.0, 1: 1.5, 3: 6.0, 5: 7.0})
    assert moves(decision) == [(5, 0, 0), (3, 0, 1)], "device 1 has received, 0 has not"
    assert chosen.issued == 4


@pytest.mark.parametrize("supply", ["once", "reissued"])
def test_of_an_odd_number_of_supports_one_stays_unused(supply: str) -> None:
    """Three stragglers and three supports: two go out; one alone would leave a recipient with a single support."""
    chosen = policy(5, 3, supply=supply)
    decision = chosen.after_epoch(times(1.0, 1.5, 7.0, 8.0, 9.0))
    assert moves(decision) == [(4, 1, 0), (3, 1, 1)]
    assert decision.waiting == (2,)
    assert chosen.may_grant == (supply == "reissued")


def test_a_single_support_is_never_issued() -> None:
    chosen = policy(3, 1)
    decision = chosen.after_epoch(times(1.0, 1.5, 7.0))
    assert decision.handovers == ()
    assert decision.waiting == (2,)


def test_unlimited_supports_never_run_out() -> None:
    chosen = policy(6, 0, supply="unlimited")
    decision = chosen.after_epoch(times(1.0, 8.0, 6.0, 9.0, 7.0, 5.0))
    assert moves(decision) == [(3, 0, 0), (1, 0, 1), (4, 0, 2), (2, 0, 3), (5, 0, 4)]


def test_recipients_wrap_round() -> None:
    """Eight stragglers make four pairs; 1 (1.5) and 0 (1.0) take turns, the slower first."""
    chosen = policy(10)
    decision = chosen.after_epoch(times(1.0, 1.5, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0, 18.0))
    assert [move.recipient for move in decision.handovers] == [1, 1, 0, 0, 1, 1, 0, 0]
    assert [chosen.foreign_supports(device) for device in (0, 1)] == [4, 4]


def test_recipients_are_the_slowest_that_never_received_and_then_the_fastest() -> None:
    """Fleet of nine. Epoch a: 8 and 7 to 6 (1.9), the slowest that stays.

    Epoch b: 5, 4, 3, 2 and, to make the pairs even, nobody: two pairs. Staying: 0 (1.0), 1 (1.3), 6 (1.1).
    Never received: 1, then 0. So the pairs go to 1 and 0. Epoch c: 1 straggles and forwards; both 0 (1.2) and 6 (1.0)
    have received, so the fastest takes it: 6.
    """
    chosen = policy(9)
    assert moves(chosen.after_epoch(times(1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.9, 8.0, 9.0))) == [(8, 6, 0), (7, 6, 1)]
    decision = chosen.after_epoch({0: 1.0, 1: 1.3, 2: 5.0, 3: 6.0, 4: 7.0, 5: 8.0, 6: 1.1})
    assert moves(decision) == [(5, 1, 2), (4, 1, 3), (3, 0, 4), (2, 0, 5)]
    assert moves(chosen.after_epoch({0: 1.2, 1: 9.0, 6: 1.0})) == [(1, 6, None)]


def test_of_those_that_have_received_the_fastest_come_first_one_after_the_other() -> None:
    """6, 7 and 8 went to 0, 1 and 2. Of five stragglers two pairs go to 0 (1.0) and 1 (1.2), and the last to 2 (1.4).

    Nobody that has received makes a pair, so the last sends alone.
    """
    chosen = policy(11)
    chosen.resume([(6, 0, 0), (7, 1, 1), (8, 2, 2)])
    decision = chosen.after_epoch({0: 1.0, 1: 1.2, 2: 1.4, 3: 9.0, 4: 8.0, 5: 7.0, 9: 6.0, 10: 5.0})
    assert moves(decision) == [(3, 0, 3), (4, 0, 4), (5, 1, 5), (9, 1, 6), (10, 2, 7)]


def test_a_fleet_of_one_needs_nobody() -> None:
    chosen = policy(1, 0, delta=0.0)
    assert (chosen.active, chosen.delta, chosen.issued) == ((0,), 0.0, 0)
    assert chosen.after_epoch({0: 5.0}) == Decision((), (), ())
    assert policy(1, 0, supply="unlimited").may_grant


def test_what_may_be_done_next() -> None:
    """Epoch a: 3 and 2 go to 1, which may forward then; of five supports three are left, then one."""
    chosen = policy(5, 5, delta=0.5)
    assert (chosen.delta, chosen.may_grant, chosen.may_double, chosen.supports_left) == (0.5, True, False, 5)
    chosen.after_epoch(times(1.0, 1.4, 8.0, 9.0, 1.0))
    assert chosen.is_active.tolist() == [True, True, False, False, True]
    assert chosen.forwards.tolist() == [False, True, False, False, False]
    assert [chosen.may_forward(device) for device in chosen.active] == [False, True, False]
    assert (chosen.may_grant, chosen.supports_left) == (True, 3)
    chosen.after_epoch({0: 1.0, 1: 9.0, 4: 1.2})
    assert chosen.forwards.tolist() == [False, False, False, False, True], "what has been forwarded is not there"
    chosen.after_epoch({0: 9.0, 4: 1.0})
    assert (chosen.issued, chosen.may_grant, chosen.supports_left) == (3, True, 2)


@pytest.mark.parametrize(("supports", "may"), [(1, False), (2, True)])
def test_two_errors_need_two_supports(supports: int, may: bool) -> None:
    for odd_set in ("partner", "two-errors"):
        chosen = SharingPolicy(devices=3, supports=supports, delta=1.0, supply="once", odd_set=odd_set)
        assert chosen.may_double is (may and odd_set == "two-errors")
        assert chosen.may_grant is may


def test_supports_without_a_limit_are_never_counted() -> None:
    chosen = policy(6, 0, supply="unlimited")
    chosen.after_epoch(times(1.0, 8.0, 6.0, 9.0, 7.0, 5.0))
    assert (chosen.may_grant, chosen.supports_left, chosen.issued) == (True, math.inf, 5)


def test_hand_overs_of_earlier_sessions_are_repeated() -> None:
    """2 forwarded to 1 without a support; 3 brought two, of which each is an entry; numbers go on from there."""
    chosen = policy(6)
    chosen.resume([(2, 1, None), (3, 1, 0), (3, 1, 1)])
    assert chosen.active == (0, 1, 4, 5)
    assert (chosen.foreign_supports(1), chosen.issued) == (2, 2)
    assert moves(chosen.after_epoch({0: 1.0, 1: 1.1, 4: 9.0, 5: 8.0})) == [(4, 0, 2), (5, 0, 3)]


def test_forwarders_choose_first_and_what_they_gave_counts_at_once() -> None:
    """Epoch a: 6 and 5 to 4. Epoch b: 4, 3, 2 straggle; 4 forwards to 1 (1.5), the slower of 0 and 1.

    Then 3 and 2 need supports; 1 has received a moment ago, so the pair goes to 0.
    """
    chosen = policy(7)
    assert moves(chosen.after_epoch(times(1.0, 1.1, 1.2, 1.3, 1.9, 8.0, 9.0))) == [(6, 4, 0), (5, 4, 1)]
    decision = chosen.after_epoch({0: 1.0, 1: 1.5, 2: 5.0, 3: 6.0, 4: 7.0})
    assert moves(decision) == [(4, 1, None), (3, 0, 2), (2, 0, 3)]


def test_two_that_tie_go_by_number() -> None:
    decision = policy(4).after_epoch(times(1.0, 1.0, 5.0, 5.0))
    assert decision.stragglers == (2, 3)
    assert moves(decision) == [(2, 0, 0), (3, 0, 1)]


def test_a_decision_in_words() -> None:
    assert str(Decision((), (), ())) == "no stragglers"
    decision = Decision((4, 2, 5), (Handover(4, 1, None), Handover(2, 0, 7)), (5,))
    assert str(decision).splitlines() == [
        "stragglers, slowest first: 4, 2, 5",
        "device 4 forwards to device 1 and retires",
        "device 2 adds support 7 and sends to device 0 and retires",
        "no support left, so these stay: 5",
    ]


def test_the_example_in_the_docstring() -> None:
    results = doctest.testmod(sharing)
    assert results.attempted >= 3
    assert results.failed == 0


@pytest.mark.parametrize("replies", [{}, {0: 1.0}, {0: 1.0, 1: 1.0, 2: 1.0}, {0: 1.0, 2: 1.0}])
def test_reply_times_of_others_are_refused(replies: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="do not fit the active devices"):
        policy(2).after_epoch(replies)


def test_one_that_left_is_not_listened_to() -> None:
    chosen = policy(4)
    chosen.after_epoch(times(1.0, 1.5, 8.0, 9.0))
    with pytest.raises(ValueError, match="do not fit the active devices"):
        chosen.after_epoch(times(1.0, 1.5, 8.0, 9.0))


@pytest.mark.parametrize(
    "changes", [{"devices": 0}, {"supports": -1}, {"delta": -1.0}, {"delta": float("nan")}], ids=str
)
def test_impossible_settings_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="need devices"):
        SharingPolicy(**{"devices": 2, "supports": 2, "delta": 1.0, "supply": "once", **changes})


def test_two_errors_on_the_last_of_an_odd_set() -> None:
    """Slowest first 4, 3, 2: the pair 4, 3 goes to 1, the slower of those that stay; 2 sends alone to 0."""
    chosen = SharingPolicy(devices=5, supports=8, delta=1.0, supply="once", odd_set="two-errors")
    decision = chosen.after_epoch(times(1.0, 1.5, 7.0, 8.0, 9.0))
    assert decision.handovers == (Handover(4, 1, 0), Handover(3, 1, 1), Handover(2, 0, 2, 3))
    assert str(decision).splitlines()[-1] == "device 2 adds supports 2 and 3 and sends to device 0 and retires"
    assert chosen.active == (0, 1)
    assert [chosen.foreign_supports(device) for device in (0, 1)] == [2, 2]
    assert (chosen.issued, chosen.supports_left) == (4, 4)


def test_two_errors_need_a_support_more_than_there_are_stragglers() -> None:
    """L = 3 for three stragglers: two send as a pair, the third waits for want of a second support."""
    chosen = SharingPolicy(devices=5, supports=3, delta=1.0, supply="once", odd_set="two-errors")
    decision = chosen.after_epoch(times(1.0, 1.5, 7.0, 8.0, 9.0))
    assert decision.handovers == (Handover(4, 1, 0), Handover(3, 1, 1))
    assert decision.waiting == (2,)


@pytest.mark.parametrize(("first", "epochs"), [(1, [True, True, True]), (2, [False, True, True])])
def test_from_which_epoch_on_stragglers_are_looked_for(first: int, epochs: list[bool]) -> None:
    chosen = SharingPolicy(devices=2, supports=2, delta=1.0, supply="once", detect_from=first)
    assert [chosen.detects(epoch) for epoch in (1, 2, 3)] == epochs
