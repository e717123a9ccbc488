"""Virtual time: exact timelines, ties, and what is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.network import VirtualClock

delays = st.floats(min_value=0, max_value=1e6)


def test_events_come_in_the_order_of_their_times() -> None:
    clock: VirtualClock[str] = VirtualClock()
    clock.schedule(3.0, "c")
    clock.schedule(1.0, "a")
    clock.schedule(2.5, "b")
    timeline = []
    while len(clock):
        timeline.append((clock.next(), clock.now))
    assert timeline == [("a", 1.0), ("b", 2.5), ("c", 3.0)]


def test_a_delay_counts_from_the_present() -> None:
    """Two machines, one queue: at 1 and 2 s they finish and each starts another job of 1.5 s and 0.25 s."""
    clock: VirtualClock[str] = VirtualClock(now=10.0)
    clock.schedule(1.0, "first")  # due at 11
    clock.schedule(2.0, "second")  # due at 12
    assert (clock.next(), clock.now) == ("first", 11.0)
    clock.schedule(1.5, "third")  # due at 12.5
    assert (clock.next(), clock.now) == ("second", 12.0)
    clock.schedule(0.25, "fourth")  # due at 12.25, before the third
    assert (clock.next(), clock.now) == ("fourth", 12.25)
    assert (clock.next(), clock.now) == ("third", 12.5)
    assert len(clock) == 0


def test_ties_are_broken_by_the_order_of_scheduling() -> None:
    clock: VirtualClock[object] = VirtualClock()
    events = [object() for _ in range(20)]  # objects that cannot be compared
    for event in events:
        clock.schedule(1.0, event)
    assert [clock.next() for _ in events] == events
    assert clock.now == 1.0


def test_a_tie_between_an_early_and_a_late_schedule() -> None:
    clock: VirtualClock[str] = VirtualClock()
    clock.schedule(2.0, "scheduled first")
    clock.schedule(1.0, "sooner")
    clock.next()
    clock.schedule(1.0, "scheduled later")  # also due at 2
    assert [clock.next(), clock.next()] == ["scheduled first", "scheduled later"]


def test_time_that_passes_delays_what_is_scheduled_afterwards() -> None:
    clock: VirtualClock[str] = VirtualClock()
    clock.advance(2.0)
    clock.advance(0.0)
    clock.schedule(0.5, "event")
    assert (clock.next(), clock.now) == ("event", 2.5)


def test_forgotten_events_never_happen_and_time_stands() -> None:
    clock: VirtualClock[str] = VirtualClock()
    for delay in (1.0, 2.0, 3.0):
        clock.schedule(delay, "old")
    clock.next()
    assert len(clock) == 2
    clock.forget()
    assert (len(clock), clock.now) == (0, 1.0)
    clock.schedule(5.0, "new")  # due at 6, after the forgotten ones would have been
    assert (clock.next(), clock.now) == ("new", 6.0)


@pytest.mark.parametrize("delay", [-1.0, -5e-324, -math.inf, math.nan])
def test_neither_events_nor_time_go_back(delay: float) -> None:
    clock: VirtualClock[str] = VirtualClock(now=4.0)
    with pytest.raises(ValueError, match=f"{delay} s"):
        clock.schedule(delay, "never")
    with pytest.raises(ValueError, match=f"{delay} s"):
        clock.advance(delay)
    assert (len(clock), clock.now) == (0, 4.0)


@given(st.lists(delays, max_size=30))
def test_the_timeline_is_the_stable_sort_of_the_delays(wanted: list[float]) -> None:
    clock: VirtualClock[int] = VirtualClock()
    for number, delay in enumerate(wanted):
        clock.schedule(delay, number)
    happened = [(clock.next(), clock.now) for _ in wanted]
    assert happened == sorted(enumerate(wanted), key=lambda pair: pair[1])


actions = st.lists(st.tuples(st.sampled_from(["schedule", "next", "advance", "forget"]), delays), max_size=30)


@given(actions)
def test_time_never_runs_backwards(wanted: list[tuple[str, float]]) -> None:
    """Whatever is done in whatever order; passing over an event that is due may be refused instead."""
    clock: VirtualClock[None] = VirtualClock()
    for action, seconds in wanted:
        before = clock.now
        if action == "schedule":
            clock.schedule(seconds, None)
        elif action == "next" and len(clock):
            clock.next()
        elif action == "advance":
            try:
                clock.advance(seconds)
            except ValueError:
                assert len(clock) > 0
        elif action == "forget":
            clock.forget()
        assert clock.now >= before
