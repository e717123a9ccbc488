"""Rounds of a server, and what servers, devices and schemes do that say nothing else."""

from typing import Any

import numpy as np
import pytest

from codedfl.errors import EngineError, ScenarioError
from codedfl.network import RoundCosts
from codedfl.scenario import SchemeOptions
from codedfl.schemes import Device, Leakage, Public, Restored, Round, Scheme, Server, Work
from codedfl.schemes.contract import check_at_most
from codedfl.schemes.facts import known_delays
from codedfl.schemes.rounds import Sharing
from codedfl.task import Shard
from codedfl.task.problem import Problem
from tiny import problem, scenario

REQUEST = {"model": np.zeros((2, 1))}
LAYOUT = {"gradient": (np.dtype("float64"), (2, 1))}


class TestRounds:
    def test_all_replies_are_awaited_unless_told(self) -> None:
        asked = Round.same(3, [4, 7], REQUEST)
        assert (asked.epoch, asked.quorum, asked.least, asked.expected) == (3, 2, 2, None)
        assert asked.requests == {4: REQUEST, 7: REQUEST}

    @pytest.mark.parametrize(
        ("given", "counts"), [({"quorum": 0}, (0, 0)), ({"least": 0}, (3, 0)), ({"quorum": 1}, (1, 1))]
    )
    def test_none_may_be_needed(self, given: dict[str, int], counts: tuple[int, int]) -> None:
        asked = Round.same(1, [0, 1, 2], REQUEST, **given)
        assert (asked.quorum, asked.least) == counts

    def test_replies_of_all_devices_have_one_layout(self) -> None:
        assert Round.same(1, [4, 7], REQUEST, LAYOUT).expected == {4: LAYOUT, 7: LAYOUT}

    def test_sharing_takes_one_round_an_epoch(self) -> None:
        each = np.arange(2)
        alone = RoundCosts(each, each, each, each, quorum=2, server_macs=0)
        assert Sharing(policy=lambda: None).rounds(2, alone, REQUEST) == (alone,)  # type: ignore[arg-type,return-value]


class Silent(Device):
    def reply(self, epoch: int, request: Any, work: Work) -> Any:
        return {}


class Still(Server):
    def ask(self, epoch: int, model: Any) -> Round:
        return Round(epoch, {})

    def combine(self, epoch: int, replies: Any, work: Work) -> Any:
        return np.zeros((2, 1))


class Modest(Scheme[SchemeOptions]):
    """States only what it must."""

    name = "modest"
    options_type = SchemeOptions
    exact = False
    verdict = verdict_reason = "unknown"

    def device(self, index: int, shard: Shard) -> Device:
        made = Silent()
        vars(made).update(index=index, shard=shard)
        return made

    def server(self) -> Server:
        return Still()

    def leakage(self) -> Leakage:
        return Leakage("all", "all", "all")


class TestDefaults:
    """A class that says nothing promises nothing, keeps nothing and sends nothing."""

    def test_of_a_device(self) -> None:
        made = Silent()
        assert made.opens(REQUEST) is None
        assert made.keep() is None
        assert made.owners(REQUEST) == made.covers(1) == frozenset()
        for refused in (
            lambda: made.export(REQUEST, Work()),
            lambda: made.absorb(REQUEST, Work()),
            lambda: made.absorb_from(0, REQUEST, Work()),
            lambda: made.recall(REQUEST),
        ):
            with pytest.raises(EngineError, match=r"Silent .*; choose another scheme"):
                refused()

    def test_a_parcel_of_a_known_sender_is_absorbed(self) -> None:
        made, taken = Silent(), []
        vars(made)["absorb"] = lambda parcel, work: taken.append((parcel, work))
        work = Work()
        made.absorb_from(3, REQUEST, work, frozenset({3}))
        assert taken == [(REQUEST, work)]

    def test_of_a_server(self) -> None:
        made = Still()
        assert made.follow_up(1, {}, Work()) is None
        assert made.after_epoch(1, {0: 1.0}, []) is None
        assert made.resume({}, {}, [], set()) is None
        assert made.totals() is None
        assert made.defer(Round(1, {}), {}) is None
        assert made.audit(1) is None
        assert made.set_up() == made.check(Round(1, {}), {}) == made.audited({}) == ()
        assert made.state() == made.keep() == {}
        assert made.restore({}) == Restored()
        with pytest.raises(EngineError, match="takes no parcels"):
            made.receive(0, REQUEST)
        with pytest.raises(EngineError, match="cannot go back"):
            made.rewind({})

    @pytest.mark.parametrize(("lost", "left"), [(set(), 2), ({5}, 1), ({5, 1}, 0), ({5, 1, 0}, 0)])
    def test_every_lost_device_leaves_one_loss_less(self, lost: set[int], left: int) -> None:
        assert Still().losses_left(2, lost) == left

    def test_of_a_scheme(self) -> None:
        made = Modest(Public((3, 4), 2, 1, np.dtype("float64")), SchemeOptions())
        made.check()
        given: Problem = problem([3, 4], features=2, outputs=1)
        devices = made.simulated(given, 5)
        assert [(vars(each)["index"], vars(each)["shard"]) for each in devices] == list(enumerate(given.shards))
        assert (made.announcement(), made.announcement_layout) == ({}, {})
        assert (made.survives_losses, made.decode_failures, made.memory, made.parcels_at_once) == (0, 0, 0, 1)
        unknown = (made.parcels(0), made.counted([], 1), made.rounding, made.reply_sum, made.sharing, made.solver)
        assert (*unknown, made.chosen_by_delays, made.unfit_for_sites) == (None,) * 8
        no = (made.follows_timing, made.sums, made.adds_up, made.averages, made.uploads)
        assert (*no, made.opens_sums, made.repeats_epochs, made.uses_rows) == (False,) * 8
        assert "sees more than sums over all devices" in (made.refuses_noise(scenario().privacy) or "")
        assert {cell.verdict for cell in made.secrecy()} == {"not examined"}
        assert "not said" in made.allowed_if

    def test_choices_may_depend_on_all_delays(self) -> None:
        delays = known_delays(scenario())
        made = Modest(Public((3, 4), 2, 1, np.dtype("float64"), delays=delays), SchemeOptions())
        assert made.chosen_by_delays == delays.key()

    def test_a_wrapper_adds_up_what_is_inside(self) -> None:
        class Failing(Modest):
            decode_failures = 3
            memory = 5

        public = Public((3, 4), 2, 1, np.dtype("float64"))
        outer = Modest(public, SchemeOptions(), Failing(public, SchemeOptions()), Failing(public, SchemeOptions()))
        assert (outer.decode_failures, outer.memory) == (6, 10)
        other = Public((1,), 2, 1, np.dtype("float64"))
        moved = outer.with_public(other)
        assert type(moved) is Modest
        assert [each.public for each in (moved, *moved.wrapped)] == [other] * 3
        assert [type(each) for each in moved.wrapped] == [Failing, Failing]


def test_as_many_as_there_are_devices_is_not_too_much() -> None:
    check_at_most(4, "wait_for", 4)
    check_at_most(4, "wait_for", None)
    with pytest.raises(ScenarioError, match="wait_for = 5 must be at most 4"):
        check_at_most(4, "wait_for", 5)
