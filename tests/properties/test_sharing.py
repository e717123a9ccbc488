"""Laws of the sharing policy over random fleets, supplies and reply times, against books kept here."""

import dataclasses
import math
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.schemes.sharing.policy import Decision, Handover, SharingPolicy

SUPPLIES = ("once", "reissued", "unlimited")

# ties (small whole numbers), times around a second, and heavy tails (powers of two)
SECONDS = st.one_of(
    st.integers(0, 3).map(float),
    st.floats(0.0, 2.0),
    st.integers(0, 40).map(lambda power: 2.0**power),
)


@dataclass
class Books:
    """Whose data lies where, and how many supports of others, written down from the hand-overs alone."""

    devices: int
    owned: dict[int, frozenset[int]] = field(default_factory=dict)
    foreign: dict[int, int] = field(default_factory=dict)
    received: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    numbers: list[int] = field(default_factory=list)
    moved: list[tuple[int, int, int | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.owned = {device: frozenset({device}) for device in range(self.devices)}
        self.foreign = dict.fromkeys(range(self.devices), 0)

    def write(self, handover: Handover) -> None:
        sender, recipient = handover.sender, handover.recipient
        self.owned[recipient] |= self.owned.pop(sender)
        self.foreign[recipient] += self.foreign.pop(sender) + len(handover.supports)
        self.received.add(recipient)
        self.gone.add(sender)
        self.moved += [(sender, recipient, support) for support in handover.supports or (None,)]
        self.numbers += handover.supports


@dataclass(frozen=True)
class Play:
    """A policy's settings, and a source of reply times."""

    devices: int
    supports: int
    delta: float
    supply: str
    epochs: int
    data: st.DataObject
    odd_set: str = "partner"

    def policy(self) -> SharingPolicy:
        return SharingPolicy(
            devices=self.devices, supports=self.supports, delta=self.delta, supply=self.supply, odd_set=self.odd_set
        )

    def replies(self, active: tuple[int, ...]) -> dict[int, float]:
        times = self.data.draw(st.lists(SECONDS, min_size=len(active), max_size=len(active)))
        return dict(zip(active, times, strict=True))


@st.composite
def plays(draw: st.DrawFn, supplies: tuple[str, ...] = SUPPLIES, odd_sets: tuple[str, ...] = ("partner",)) -> Play:
    return Play(
        devices=draw(st.integers(1, 14)),
        supports=draw(st.integers(0, 17)),
        delta=draw(st.sampled_from([0.0, 0.25, 1.0, 3.0, 1e6, math.inf])),
        supply=draw(st.sampled_from(supplies)),
        epochs=draw(st.integers(1, 10)),
        data=draw(st.data()),
        odd_set=draw(st.sampled_from(odd_sets)),
    )


def stragglers(replies: dict[int, float], delta: float) -> list[int]:
    """Who replied more than Delta after the fastest, slowest first, the lower number first where they tie."""
    late = [device for device in replies if replies[device] > min(replies.values()) + delta]
    return sorted(late, key=lambda device: (-replies[device], device))


def partner_of(decision: Decision) -> list[int]:
    return [move.sender for move in decision.handovers if move.sender not in decision.stragglers]


@given(plays(odd_sets=("partner", "two-errors")))
def test_every_device_counts_once_and_those_who_left_are_left_alone(play: Play) -> None:
    policy, books = play.policy(), Books(play.devices)
    everyone = frozenset(range(play.devices))
    for _ in range(play.epochs):
        before = policy.active
        decision = policy.after_epoch(play.replies(before))
        for move in decision.handovers:
            assert {move.sender, move.recipient} <= set(before) - books.gone
            assert move.sender != move.recipient
            books.write(move)
        assert len(policy.active) >= 1
        assert set(policy.active) == set(books.owned), "exactly those who hold data take part"
        assert not books.gone & set(policy.active)
        assert frozenset().union(*books.owned.values()) == everyone
        assert sum(map(len, books.owned.values())) == play.devices, "nobody's data is held twice"
        assert {device: policy.foreign_supports(device) for device in policy.active} == books.foreign


@given(plays())
def test_who_sends_and_who_receives(play: Play) -> None:
    policy, books = play.policy(), Books(play.devices)
    for _ in range(play.epochs):
        replies = play.replies(policy.active)
        decision = policy.after_epoch(replies)
        late = stragglers(replies, play.delta)
        assert list(decision.stragglers) == late
        wanting = [device for device in late if books.foreign[device] < 2]
        received_before = set(books.received)
        forwarded_to = {move.recipient for move in decision.handovers if move.support is None}
        senders = [move.sender for move in decision.handovers]
        assert len(senders) == len(set(senders))
        for move in decision.handovers:
            assert move.recipient not in late
            assert move.recipient not in senders
            if move.support is None:
                assert move.sender in late
                assert books.foreign[move.sender] >= 2
            elif move.sender in late:
                assert books.foreign[move.sender] < 2, "a support is not wasted on one that may forward"
        partners = partner_of(decision)
        assert len(partners) <= 1
        if partners:
            assert len(wanting) % 2 == 1
            fresh = [d for d in replies if d not in late and d not in received_before | forwarded_to]
            assert partners[0] in fresh
            assert replies[partners[0]] == max(replies[device] for device in fresh)
        granted = [move.sender for move in decision.handovers if move.support is not None and move.sender in late]
        assert granted == wanting[: len(granted)], "the slowest go first"
        assert list(decision.waiting) == wanting[len(granted) :]
        assert all(d in senders for d in late if d not in wanting), "those that may forward always leave"
        for move in decision.handovers:
            books.write(move)


@given(plays())
def test_fresh_parcels_come_in_pairs_and_at_most_one_comes_alone(play: Play) -> None:
    policy, books = play.policy(), Books(play.devices)
    for _ in range(play.epochs):
        replies = play.replies(policy.active)
        decision = policy.after_epoch(replies)
        granted = [move for move in decision.handovers if move.support is not None]
        for first, second in zip(granted[::2], granted[1::2], strict=False):
            assert first.recipient == second.recipient
        if len(granted) % 2:
            late, forwarded_to = decision.stragglers, {m.recipient for m in decision.handovers if m.support is None}
            fresh = [d for d in replies if d not in late and d not in books.received | forwarded_to]
            staying = [d for d in replies if d not in late]
            assert not fresh or len(staying) == 1, "unpaired only if nobody can make the pair"
            assert decision.waiting == ()
        for move in decision.handovers:
            books.write(move)


@given(plays())
def test_recipients_are_the_slowest_that_never_received_then_the_fastest(play: Play) -> None:
    """Forwarders choose first; ties in time may fall either way, so times are compared, not numbers."""
    policy, books = play.policy(), Books(play.devices)
    for _ in range(play.epochs):
        replies = play.replies(policy.active)
        decision = policy.after_epoch(replies)
        staying = set(replies) - set(decision.stragglers)
        forwards = [move for move in decision.handovers if move.support is None]
        granted = [move for move in decision.handovers if move.support is not None]
        assert list(decision.handovers) == forwards + granted
        for moves, heads in ((forwards, forwards), (granted, granted[::2])):
            staying -= {move.sender for move in moves}
            fresh = sorted((replies[d] for d in staying - books.received), reverse=True)
            used = sorted(replies[d] for d in staying & books.received)
            order = fresh + used
            chosen = [replies[move.recipient] for move in heads]
            assert chosen == [order[number % len(order)] for number in range(len(heads))]
            first_round = [move.recipient for move in heads[: len(order)]]
            assert len(set(first_round)) == len(first_round), "nobody is taken twice before everybody was taken"
            assert set(first_round[: len(fresh)]) <= staying - books.received
            for move in moves:
                books.write(move)


@given(plays(odd_sets=("partner", "two-errors")))
def test_no_more_supports_than_the_policy_allows(play: Play) -> None:
    policy, books = play.policy(), Books(play.devices)
    for _ in range(play.epochs):
        left = play.supports - len(books.numbers)
        may_grant = policy.may_grant
        decision = policy.after_epoch(play.replies(policy.active))
        numbers = [number for move in decision.handovers for number in move.supports]
        for move in decision.handovers:
            books.write(move)
        assert policy.issued == len(books.numbers)
        assert len(set(numbers)) == len(numbers)
        allowed = {"once": left, "reissued": play.supports, "unlimited": math.inf}[play.supply]
        assert len(numbers) <= allowed
        assert may_grant == (allowed >= 2)
        assert policy.supports_left == (allowed - len(numbers) if play.supply == "once" else allowed)
        if play.supply != "unlimited":
            assert all(0 <= number < play.supports for number in numbers)
        if play.supply == "unlimited":
            assert decision.waiting == ()
        if decision.waiting:
            assert allowed - len(numbers) < 2, "nobody waits while there are supports for a pair"
            assert len(numbers) % 2 == 0
    if play.supply != "reissued":
        assert len(set(books.numbers)) == len(books.numbers), "each number once in a run"


@given(plays(odd_sets=("partner", "two-errors")), st.integers(0, 10))
def test_a_fresh_policy_told_what_moved_goes_on_alike(play: Play, stop: int) -> None:
    policy, books = play.policy(), Books(play.devices)
    twin = play.policy()
    twin.resume([])
    for epoch in range(play.epochs):
        if epoch == stop % play.epochs:
            twin = play.policy()
            twin.resume(books.moved)
        assert twin.active == policy.active or epoch < stop % play.epochs
        replies = play.replies(policy.active)
        decision = policy.after_epoch(replies)
        for move in decision.handovers:
            books.write(move)
        if epoch >= stop % play.epochs:
            assert twin.after_epoch(replies) == decision
            assert (twin.active, twin.issued, twin.may_grant) == (policy.active, policy.issued, policy.may_grant)
            held = [(policy.foreign_supports(d), policy.may_forward(d)) for d in policy.active]
            assert [(twin.foreign_supports(d), twin.may_forward(d)) for d in twin.active] == held


@given(plays())
@settings(max_examples=50)
def test_nobody_straggles_if_all_reply_within_delta(play: Play) -> None:
    """Times a + [0, Delta/2] are at most Delta apart, however they are rounded."""
    policy = play.policy()
    spread = 1.0 if math.isinf(play.delta) else play.delta
    times = play.data.draw(st.lists(st.floats(0, spread / 2), min_size=play.devices, max_size=play.devices))
    decision = policy.after_epoch(dict(enumerate(times)))
    assert decision == Decision((), (), ())
    assert str(decision) == "no stragglers"
    assert policy.active == tuple(range(play.devices))


@given(plays(odd_sets=("two-errors",)))
def test_with_two_errors_whoever_received_may_forward(play: Play) -> None:
    """Stragglers only leave; each parcel is covered by a support; the last of an odd set has two and sends alone."""
    policy, books = play.policy(), Books(play.devices)
    for _ in range(play.epochs):
        replies = play.replies(policy.active)
        decision = policy.after_epoch(replies)
        assert partner_of(decision) == []
        granted = [move for move in decision.handovers if move.supports]
        doubled = [move for move in granted if len(move.supports) == 2]
        assert doubled == (granted[-1:] if len(granted) % 2 else [])
        for first, second in zip(granted[::2], granted[1::2], strict=False):
            assert first.recipient == second.recipient
        for move in decision.handovers:
            assert books.foreign[move.sender] + len(move.supports) >= 1, "no data leaves a device in clear"
            books.write(move)
        assert all(count != 1 for count in books.foreign.values())
        assert all(policy.may_forward(device) for device in policy.active if device in books.received)


@given(plays())
def test_every_parcel_is_covered(play: Play) -> None:
    policy, books = play.policy(), Books(play.devices)
    for _ in range(play.epochs):
        for move in policy.after_epoch(play.replies(policy.active)).handovers:
            assert books.foreign[move.sender] + len(move.supports) >= 1
            books.write(move)


@given(plays(odd_sets=("partner", "two-errors")))
def test_an_even_set_does_not_depend_on_the_choice_for_odd_ones(play: Play) -> None:
    one, other = (dataclasses.replace(play, odd_set=choice).policy() for choice in ("partner", "two-errors"))
    replies = play.replies(one.active)
    if len(stragglers(replies, play.delta)) % 2 == 0:
        assert one.after_epoch(replies) == other.after_epoch(replies)
