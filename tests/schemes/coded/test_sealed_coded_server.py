"""The server of sealed and coded sums alone: who replaces whom, who helps, and what goes on in another session."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.cipher.seals import FIELD_61
from codedfl.schemes import Stage, Work
from schemes.residues import carry, wanted
from tiny import plain_gradient, problem

N, D, C = 7, 6, 2


def made(workers: int = 4, threshold: int = 2, **options: Any) -> tuple[Any, Any]:
    """Seven devices, each faster than the next; the first four work, and two replies make an epoch."""
    given = problem([4] * N, features=D, outputs=C)
    table = {"workers": workers, "threshold": threshold, "ring": FIELD_61.name, "masks": False, **options}
    rates = tuple(1e6 / (1 + device) for device in range(N))
    scheme: Any = schemes.create(wanted("sealed-coded", {"schemes.sealed-coded": table}, rates=rates), given)
    assert scheme.workers.order == tuple(range(N))
    return scheme, scheme.server()


def pairs(stage: Stage | None) -> list[tuple[int, int]] | None:
    return None if stage is None else [(each.sender, each.recipient) for each in stage.transfers]


def asked(server: Any) -> list[int]:
    return sorted(server.ask(2, np.zeros((D, C))).requests)


def test_who_is_asked_for_what() -> None:
    """Six bands of one row on six of seven devices; then the workers, any two of which suffice."""
    _, server = made()
    first, later = server.ask(1, np.ones((D, C))), server.ask(2, np.ones((D, C)))
    assert {device: dict(request) for device, request in first.requests.items()} == {device: {} for device in range(6)}
    assert first.expected == {device: {"moments": (np.dtype("uint64"), (1, C))} for device in range(6)}
    assert (first.epoch, first.quorum, first.least, first.needed) == (1, 6, 6, None)
    assert not first.point.any()
    assert sorted(later.requests) == [0, 1, 2, 3]
    assert later.expected[0] == {"product": (np.dtype("uint64"), (C, 3))}
    assert (later.epoch, later.quorum, later.least, later.needed) == (2, 2, 2, 2)
    np.testing.assert_allclose(later.point, np.ones((D, C)), atol=1e-4)


def test_lost_workers_are_replaced_one_after_the_other() -> None:
    """By the fastest that are left; helpers are the first two that work."""
    _, server = made()
    assert server.after_epoch(1, {}, []) is None
    assert pairs(server.after_epoch(2, {}, [1, 2])) == [(0, 4), (3, 4)]
    assert asked(server) == [0, 3]
    assert pairs(server.after_epoch(2, {}, [])) == [(0, 5), (3, 5)]
    assert asked(server) == [0, 3, 4]
    assert server.after_epoch(2, {}, []) is None
    assert asked(server) == [0, 3, 4, 5]
    assert server.state()["gone"].tolist() == [1, 2]
    assert server.state()["workers"].tolist() == [0, 3, 4, 5]
    assert pairs(server.after_epoch(5, {}, [0])) == [(3, 6), (4, 6)]
    assert server.after_epoch(5, {}, []) is None
    assert asked(server) == [3, 4, 5, 6]
    assert server.after_epoch(6, {}, [3]) is None, "nobody is left to replace it"
    assert asked(server) == [4, 5, 6]


def test_a_replacement_that_is_lost_is_replaced() -> None:
    _, server = made()
    assert pairs(server.after_epoch(2, {}, [3])) == [(0, 4), (1, 4)]
    assert pairs(server.after_epoch(2, {}, [4])) == [(0, 5), (1, 5)]
    assert asked(server) == [0, 1, 2]
    assert pairs(server.after_epoch(2, {}, [0])) == [(1, 5), (2, 5)], "a helper is lost"
    assert pairs(server.after_epoch(2, {}, [])) == [(1, 6), (2, 6)]
    assert asked(server) == [1, 2, 5]


def test_other_losses_need_no_replacement() -> None:
    _, server = made()
    assert server.after_epoch(2, {}, [5]) is None
    assert asked(server) == [0, 1, 2, 3]
    assert server.state()["gone"].tolist() == [5]
    assert pairs(server.after_epoch(3, {}, [0])) == [(1, 4), (2, 4)]
    server.after_epoch(3, {}, [])
    assert pairs(server.after_epoch(4, {}, [1])) == [(2, 6), (3, 6)]


@pytest.mark.parametrize(("lost", "replaced"), [([0, 1], True), ([0, 1, 2], False)])
def test_as_many_workers_as_replies_can_rebuild_a_block(lost: Sequence[int], replaced: bool) -> None:
    _, server = made()
    assert (server.after_epoch(2, {}, lost) is not None) == replaced


@pytest.mark.parametrize("helpers", [(0, 1), (2, 3), (3, 0)])
def test_the_multiples_of_helpers_add_up_to_the_coded_block(helpers: tuple[int, int]) -> None:
    """sum_h factor_h g_h is the row of the replacement, in whole numbers."""
    scheme, server = made()
    gone = [device for device in range(4) if device not in helpers]
    stage = server.after_epoch(2, {}, gone)
    rows, prime = scheme.layout.code.generator.astype(object), scheme.layout.code.prime
    total = sum(int(each.grant["factor"]) * rows[each.sender] for each in stage.transfers)
    assert (total % prime).tolist() == rows[4].tolist()


def test_restored_replacements_get_their_blocks_again() -> None:
    """From the first workers, of which those that are present come first."""
    _, server = made()
    server.after_epoch(2, {}, [0, 1])
    server.after_epoch(2, {}, [])
    server.after_epoch(2, {}, [])
    _, again = made()
    restored = again.restore(server.state())
    assert [pairs(stage) for stage in restored.stages] == [[(2, 4), (3, 4)], [(2, 5), (3, 5)]]
    assert asked(again) == [2, 3, 4, 5]
    server.after_epoch(3, {}, [2])
    server.after_epoch(3, {}, [])
    _, again = made()
    restored = again.restore(server.state())
    assert [pairs(stage) for stage in restored.stages] == [[(3, device), (0, device)] for device in (4, 5, 6)]
    assert not made()[1].restore(made()[1].state()).stages


class TestResume:
    """Another session, in which some devices kept their coded blocks."""

    def resumed(self, holders: Sequence[int], present: set[int]) -> tuple[Any, Any]:
        """Return another server and what is to be replayed before it goes on."""
        _, server = made()
        server.set_up()
        _, again = made()
        return again, again.resume(server.state(), server.keep(), holders, present)

    def test_all_who_worked_hold_their_blocks(self) -> None:
        again, restored = self.resumed([3, 2, 1, 0], set(range(N)))
        assert restored.stages == []
        assert asked(again) == [0, 1, 2, 3]
        assert again.state()["gone"].tolist() == []

    def test_others_get_theirs(self) -> None:
        """The fastest that are present; two holders help. Those that are not present are lost."""
        again, restored = self.resumed([2, 5], {0, 2, 4, 5, 6})
        assert [pairs(stage) for stage in restored.stages] == [[(2, 0), (5, 0)], [(2, 4), (5, 4)]]
        assert asked(again) == [0, 2, 4, 5]
        assert again.state()["gone"].tolist() == [1, 3]

    def test_no_more_than_the_workers_and_those_of_the_state_first(self) -> None:
        again, restored = self.resumed([6, 5, 4, 3, 2], set(range(N)))
        assert restored.stages == []
        assert asked(again) == [2, 3, 5, 6], "the two that worked, and the first of the others"

    def test_nobody_is_there_to_get_one(self) -> None:
        again, restored = self.resumed([0, 1], {0, 1})
        assert restored.stages == []
        assert asked(again) == [0, 1]

    @pytest.mark.parametrize("holders", [[], [0]])
    def test_too_few_hold_blocks(self, holders: list[int]) -> None:
        _, restored = self.resumed(holders, set(range(N)))
        assert restored is None

    def test_the_server_has_lost_its_pads(self) -> None:
        _, server = made()
        assert server.keep() == {}
        assert server.resume(server.state(), {}, [0, 1, 2, 3], set(range(N))) is None
        server.set_up()
        assert set(server.keep()) == {"pads"}

    def test_products_are_opened_with_the_kept_pads(self) -> None:
        """Devices that recall their blocks reply as before; the gradient is that of the data."""
        scheme, server = made()
        given = problem([4] * N, features=D, outputs=C)
        fleet = [scheme.device(index, shard) for index, shard in enumerate(given.shards)]
        for stage in server.set_up():
            carry(fleet, stage.transfers)
        question = server.ask(1, np.zeros((D, C)))
        server.combine(1, {device: fleet[device].reply(1, {}, Work()) for device in question.requests}, Work())
        _, again = made()
        again.resume(server.state(), server.keep(), [0, 1, 2, 3], set(range(N)))
        question = again.ask(2, np.random.default_rng(0).standard_normal((D, C)))
        replies = {}
        for device in (1, 3):
            fresh = scheme.device(device, given.shards[device])
            fresh.recall(fleet[device].keep())
            replies[device] = fresh.reply(2, question.requests[device], Work())
        expected, _ = plain_gradient(given.shards, question.point)
        np.testing.assert_allclose(again.combine(2, replies, Work()), expected, atol=1e-6)
