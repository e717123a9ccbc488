"""The server of sharing schemes with a codec in clear: what it asks, adds up, hands over, keeps and repeats."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from codedfl.cipher.seals import Z_32, Z_64
from codedfl.errors import ScenarioError
from codedfl.scenario import SchemeOptions
from codedfl.schemes import Message, Public, Round, Stage, Transfer, Work
from codedfl.schemes.sealing import Formats, PointedProducts, ring_setting
from codedfl.schemes.sharing.policy import SharingPolicy
from codedfl.schemes.sharing.server import (
    Codec,
    SharingScheme,
    SharingServer,
    count_first_gradient,
    delta_setting,
    detect_from_setting,
    parallel_setting,
)

PUBLIC = Public((4, 2, 2, 2), 3, 2, np.dtype("float64"))
ONES = np.ones((3, 2))


class Clear(Codec):
    """Sends models as they are; the first replies are gradients, all others products."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.granted: list[tuple[int, tuple[int, ...]]] = []

    def set_up(self) -> Sequence[Stage]:
        return [Stage([Transfer(1, 0, {})])]

    def first_round(self, model: np.ndarray, active: Sequence[int], *, everyone: bool) -> Round:
        self.asked.append((tuple(active), everyone))
        return Round.same(1, active, {"first": model})

    def decode_first(self, replies: Mapping[int, Message], work: Work) -> np.ndarray:
        return np.asarray(sum(reply["first"] for reply in replies.values()))

    def encode(self, model: np.ndarray) -> Any:
        return {"model": model}, {"product": (np.dtype("float64"), (3, 2))}, 2 * model

    def decode(self, replies: Mapping[int, Message], work: Work) -> np.ndarray:
        return np.asarray(sum(reply["product"] for reply in replies.values()))

    def grant(self, sender: int, supports: Sequence[int]) -> Message:
        self.granted.append((sender, tuple(supports)))
        return {"sender": np.array(sender), "supports": np.array(supports)}


class Chosen(SchemeOptions):
    ring: str = ring_setting((Z_32, Z_64))
    delta: float = delta_setting(1.5)
    detect_from: int = detect_from_setting()
    parallel_reception: bool = parallel_setting()


class Shared(SharingScheme[Chosen]):
    name = "shared"
    options_type = Chosen
    exact = True
    verdict = verdict_reason = "unknown"

    def codec(self) -> Codec:
        return Clear()

    def device(self, index: int, shard: Any) -> Any: ...

    def leakage(self) -> Any: ...


def server(*, detect_from: int = 2, odd_set: Any = "partner", parallel: bool = False, public: Public = PUBLIC) -> Any:
    policy = SharingPolicy(devices=4, supports=9, delta=1.0, supply="once", odd_set=odd_set, detect_from=detect_from)
    codec = Clear()
    return SharingServer(public, policy, codec, parallel=parallel), codec


class TestOptions:
    def test_defaults(self) -> None:
        found = Chosen()
        assert (found.ring, found.delta, found.detect_from, found.parallel_reception) == ("auto", 1.5, 2, False)

    @pytest.mark.parametrize(
        "allowed", [{"delta": 0.0}, {"detect_from": 1}, {"ring": "Z_2^32"}, {"ring": "Z_2^64"}], ids=str
    )
    def test_allowed(self, allowed: dict[str, Any]) -> None:
        assert Chosen(**allowed).to_table().items() >= allowed.items()

    @pytest.mark.parametrize(
        "refused",
        [{"delta": -0.5}, {"detect_from": 0}, {"detect_from": 3}, {"ring": "GF(2^31-1)"}],
        ids=str,
    )
    def test_refused(self, refused: dict[str, Any]) -> None:
        with pytest.raises(ScenarioError, match=next(iter(refused))):
            Chosen(**refused)

    def test_schemes_take_them_for_the_policy(self) -> None:
        made = Shared(PUBLIC, Chosen(delta=0.25, detect_from=1, parallel_reception=True))
        policy = made.sharing.policy()
        assert (policy.delta, policy.active, policy.detects(1)) == (0.25, (0, 1, 2, 3), True)
        assert (policy.supports_left, policy.may_double, made.sharing.parallel) == (np.inf, False, True)
        assert (made.supports, made.odd_set, made.chosen_by_delays) == ((0, "unlimited"), "partner", ())
        assert made.sharing.policy() is not policy
        asked = made.server()
        asked.ask(1, 0 * ONES)
        stage = asked.after_epoch(1, {0: 1.0, 1: 1.1, 2: 9.0, 3: 8.0}, ())
        assert stage is not None
        assert (stage.parallel, stage.retires, len(stage.transfers)) == (True, True, 2)

    @pytest.mark.parametrize(("dtype", "entry"), [("float32", 12), ("float64", 16)])
    def test_memory_is_a_gram_matrix_and_one_of_words(self, dtype: str, entry: int) -> None:
        public = Public((4, 2, 2, 2), 3, 2, np.dtype(dtype))
        assert Shared(public, Chosen()).memory == 4 * 9 * entry


def test_a_first_gradient_is_counted_where_it_is_asked_for() -> None:
    """3 * 3 * 2 operations of three features and two outputs."""
    work = Work()
    count_first_gradient({}, work)
    assert work.macs == 0
    count_first_gradient({"model": ONES}, work)
    assert work.macs == 18


class TestCodecs:
    def test_by_default_nothing_is_needed_beforehand(self) -> None:
        found = Clear()
        assert Codec.set_up(found) == ()
        assert Codec.grant(found, 1, (2,)) == {}
        assert found.products is None

    def test_the_set_up_is_that_of_the_codec(self) -> None:
        found, codec = server()
        assert found.set_up() == codec.set_up()


class TestEpochs:
    @pytest.mark.parametrize(
        ("detect_from", "offline", "everyone"), [(1, True, True), (1, False, True), (2, False, True), (2, True, False)]
    )
    def test_in_the_first_everybody_is_asked_where_times_count(
        self, detect_from: int, offline: bool, everyone: bool
    ) -> None:
        public = Public(PUBLIC.samples, 3, 2, PUBLIC.dtype, first_offline=offline)
        found, codec = server(detect_from=detect_from, public=public)
        asked = found.ask(1, 0 * ONES)
        assert codec.asked == [((0, 1, 2, 3), everyone)]
        assert set(asked.requests[0]) == {"first"}

    def test_gradients_are_means_over_all_data_points(self) -> None:
        """Ten of them: first -(4 + 3 + 2 + 1) / 10, then with products of 5 + 6 from the two that were heard."""
        found, codec = server()
        replies = {device: {"first": (device - 4.0) * ONES} for device in range(4)}
        assert np.array_equal(found.combine(1, replies, Work()), -1.0 * ONES)
        asked = found.ask(2, ONES)
        assert len(codec.asked) == 0
        assert (asked.epoch, set(asked.requests), asked.quorum) == (2, {0, 1, 2, 3}, 4)
        assert np.array_equal(asked.point, 2 * ONES)
        assert asked.expected is not None
        assert asked.expected[3] == {"product": (np.dtype("float64"), (3, 2))}
        products = {0: {"product": 5.0 * ONES}, 1: {"product": 6.0 * ONES}}
        assert np.array_equal(found.combine(2, products, Work()), (5 + 6 - 10) / 10 * ONES)


TIMES = {0: 1.0, 1: 1.1, 2: 9.0, 3: 8.0}


class TestHandOvers:
    def test_stragglers_are_granted_supports_and_retire(self) -> None:
        found, codec = server(parallel=True)
        stage = found.after_epoch(2, TIMES, ())
        assert [(each.sender, each.recipient) for each in stage.transfers] == [(2, 1), (3, 1)]
        assert [int(each.grant["sender"]) for each in stage.transfers] == [2, 3]
        assert codec.granted == [(2, (0,)), (3, (1,))]
        assert (stage.retires, stage.parallel) == (True, True)
        assert set(found.ask(3, ONES).requests) == {0, 1}

    def test_nothing_is_decided_without_reply_times_or_too_early_or_without_stragglers(self) -> None:
        found, codec = server()
        assert found.after_epoch(2, {}, ()) is None
        assert found.after_epoch(1, TIMES, ()) is None
        assert found.after_epoch(2, dict.fromkeys(range(4), 1.0), ()) is None
        assert codec.granted == []
        assert found.state()["moved"].shape == (0, 4)
        assert found.after_epoch(2, TIMES, ()) is not None
        early, _ = server(detect_from=1)
        assert early.after_epoch(1, TIMES, ()) is not None

    def test_they_are_kept_and_repeated(self) -> None:
        """Epoch 2: the pair 2 and 3 to 1; epoch 5: 1 forwards to 0, without a support."""
        found, _ = server()
        found.combine(1, {0: {"first": 3 * ONES}}, Work())
        found.after_epoch(2, TIMES, ())
        found.after_epoch(5, {0: 1.0, 1: 7.0}, ())
        state = found.state()
        assert set(state) == {"first", "moved"}
        assert state["moved"].tolist() == [[2, 2, 1, 0], [2, 3, 1, 1], [5, 1, 0, -1]]
        again, codec = server()
        restored = again.restore(state)
        moves = [[(each.sender, each.recipient) for each in stage.transfers] for stage in restored.stages]
        assert moves == [[(2, 1), (3, 1)], [(1, 0)]]
        assert codec.granted == [(2, (0,)), (3, (1,)), (1, ())]
        assert all(stage.retires for stage in restored.stages)
        assert np.array_equal(again.state()["moved"], state["moved"])
        assert np.array_equal(again.state()["first"], 3 * ONES)
        assert set(again.ask(6, ONES).requests) == {0}

    def test_two_supports_of_one_sender_are_granted_together(self) -> None:
        found, codec = server(odd_set="two-errors")
        found.after_epoch(2, {0: 1.0, 1: 1.1, 2: 1.2, 3: 8.0}, ())
        assert codec.granted == [(3, (0, 1))]
        assert found.state()["moved"].tolist() == [[2, 3, 2, 0], [2, 3, 2, 1]]
        again, codec = server(odd_set="two-errors")
        (stage,) = again.restore(found.state()).stages
        assert codec.granted == [(3, (0, 1))]
        assert len(stage.transfers) == 1
        assert again.after_epoch(3, {0: 9.0, 1: 1.0, 2: 1.0}, ()) is not None
        assert codec.granted[1:] == [(0, (2, 3))]

    def test_products_that_the_codec_keeps_are_part_of_the_state(self) -> None:
        states = []
        for given in ({}, {"first": ONES, "point": 2 * ONES, "product": 3 * ONES}):
            found, codec = server()
            codec.products = PointedProducts(Formats.choose(Z_64, PUBLIC).gram, PUBLIC)
            found.restore({"moved": np.zeros((0, 4), np.int64), **given})
            states.append(found.state())
        assert set(states[0]) == {"first", "moved", "point", "product"}
        assert not any(array.any() for array in states[0].values())
        assert [states[1][name][0, 0] for name in ("first", "point", "product")] == [1, 2, 3]
