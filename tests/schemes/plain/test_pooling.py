"""Replies of a simulation that are summed together: the sum, the costs and the single replies are those of devices."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl import schemes
from codedfl.engines import VirtualEngine
from codedfl.network import DelayModel
from codedfl.scenario import Scenario
from codedfl.schemes import Device, Message, Public, Scheme, Work
from codedfl.schemes.messages import Deferred, layout, payloads
from codedfl.schemes.plain import pooling
from codedfl.schemes.plain.pooling import pooled_total
from codedfl.task import Problem
from codedfl.task.shard import Sums, batch_rows
from codedfl.testing.small import PAPER_FLEET, gamma
from codedfl.training import State, train
from tiny import problem, scenario

SIZES = [10] * 15 + [11] * 8 + [2, 5]
"""Two shards are smaller than others, one too small for a Gram matrix of 12 features."""
NAMES = ("conventional", "minibatch", "drop-slowest", "deadline", "parity", "asynchronous")
SUMMED = NAMES[:-2]
PARTS = 2


@pytest.fixture(scope="module", autouse=True)
def sums_of_small_data() -> Iterator[None]:
    """Let replies about small data be summed, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pooling, "LEAST_MACS", 0)
        yield


def wanted(name: str, epochs: int = 10) -> Scenario:
    settings: dict[str, Any] = {"scheme": name, "training.epochs": epochs, "training.learning_rate": 0.1}
    return scenario(
        {
            **settings,
            "fleet.devices": list(PAPER_FLEET),
            "schemes.minibatch.parts": PARTS,
            "schemes.parity.parts": PARTS,
        }
    )


def data(dtype: str = "float32") -> Problem:
    return problem(SIZES, features=12, outputs=3, dtype=dtype)


def replied(scheme: Scheme[Any], devices: Any, epoch: int, model: np.ndarray) -> tuple[dict[int, Message], list[int]]:
    """Return every device's reply and what it counts."""
    question, found, macs = scheme.server().ask(epoch, model), {}, []
    for device, request in question.requests.items():
        work = Work()
        found[device] = devices[device].reply(epoch, request, work)
        macs.append(work.macs)
    return found, macs


def size_of_sum(name: str, given_data: Problem, epoch: int, model: np.ndarray) -> np.ndarray:
    """Return the sum of all gradients with absolute values in place of numbers."""
    total = np.zeros(given_data.shape)
    for shard in given_data.shards:
        rows = batch_rows(shard.samples, PARTS, epoch) if name == "minibatch" else slice(None)
        x, y = abs(shard.x[rows].astype(float)), abs(shard.y[rows].astype(float))
        total += x.T @ (x @ abs(model) + y)
    return total


@pytest.mark.parametrize("name", SUMMED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(chosen=st.sets(st.integers(0, len(SIZES) - 1), min_size=1), epoch=st.integers(1, 4), seed=st.integers(0, 99))
def test_the_gradient_is_that_of_the_single_replies_whoever_replied(
    name: str, dtype: str, chosen: set[int], epoch: int, seed: int
) -> None:
    """Both sums are within the rounding of all data's sum: missing replies are subtracted from it."""
    given_data = data(dtype)
    scheme = schemes.create(wanted(name), given_data)
    model = np.random.default_rng(seed).standard_normal(given_data.shape)
    pooled, _ = replied(scheme, scheme.simulated(given_data, 10), epoch, model)
    devices = [scheme.device(index, shard) for index, shard in enumerate(given_data.shards)]
    single, _ = replied(scheme, devices, epoch, model)
    found, expected = (
        scheme.server().combine(epoch, {device: each[device] for device in chosen}, Work()) for each in (pooled, single)
    )
    roundings = given_data.samples + given_data.shape[0] + len(SIZES) + 3
    points = [batch_rows(n, PARTS, epoch) if name == "minibatch" else slice(0, n) for n in SIZES]
    count = sum(points[device].stop - points[device].start for device in chosen)
    sent = model.astype(dtype).astype(float)
    bound = 4 * gamma(roundings, dtype) * size_of_sum(name, given_data, epoch, sent) / count
    assert np.all(abs(found - expected) <= bound)


@pytest.mark.parametrize("name", NAMES)
def test_costs_and_single_replies_are_those_of_the_devices(name: str) -> None:
    given_data = data()
    scheme = schemes.create(wanted(name), given_data)
    devices = [scheme.device(index, shard) for index, shard in enumerate(given_data.shards)]
    for epoch in (1, 2, 3):
        model = np.random.default_rng(epoch).standard_normal(given_data.shape)
        pooled, pooled_macs = replied(scheme, scheme.simulated(given_data, 10), epoch, model)
        single, macs = replied(scheme, devices, epoch, model)
        assert pooled_macs == macs
        assert payloads(pooled.values()) == payloads(single.values())
        for device, reply in pooled.items():
            assert isinstance(reply, Deferred)
            assert list(reply) == list(single[device])
            assert np.array_equal(reply["gradient"], single[device]["gradient"])
            assert layout(reply) == reply.promised == layout(single[device])


def test_few_multiplications_are_not_worth_other_bits_than_those_of_a_deployment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_data = data()
    scheme = schemes.create(wanted("conventional"), given_data)
    replies, macs = replied(scheme, scheme.simulated(given_data, 10), 1, np.ones(given_data.shape))
    for least, summed in ((sum(macs), True), (sum(macs) + 1, False)):
        monkeypatch.setattr(pooling, "LEAST_MACS", least)
        assert (pooled_total(replies) is not None) == summed


@pytest.mark.parametrize("name", ["conventional", "minibatch"])
def test_many_replies_are_summed_in_one_product_and_few_are_read_singly(name: str) -> None:
    given_data, model = data(), np.random.default_rng(5).standard_normal((12, 3)).astype(np.float32)
    scheme = schemes.create(wanted(name), given_data)
    replies, _ = replied(scheme, scheme.simulated(given_data, 10), 2, model.astype(float))
    sums = given_data.batch_sums(PARTS, 2) if name == "minibatch" else given_data.sums
    together = scheme.server().combine(2, replies, Work())
    assert np.array_equal(together, sums.gradient(model) / sums.samples)
    single = np.sum([reply["gradient"] for reply in replies.values()], axis=0, dtype=np.float64) / sums.samples
    assert not np.array_equal(together, single), "rounded in another order"
    rows = batch_rows(SIZES[0], PARTS, 2) if name == "minibatch" else slice(0, SIZES[0])
    alone = replies[0]["gradient"].astype(float) / (rows.stop - rows.start)
    assert np.array_equal(scheme.server().combine(2, {0: replies[0]}, Work()), alone)


@pytest.mark.parametrize("name", ["deadline", "drop-slowest"])
def test_replies_of_the_fast_devices_are_summed_in_one_product(name: str) -> None:
    """A reply more is added, and one less subtracted; whoever replied before changes no bit."""
    given_data = problem([10] * 25, features=12, outputs=3, dtype="float32")
    scheme = schemes.create(wanted(name), given_data)
    model = np.random.default_rng(5).standard_normal((12, 3)).astype(np.float32)
    fast, slower, *_ = pooling.speed_groups(scheme.public.delays, [1] * 25)
    assert fast == tuple(range(len(fast))) and slower[0] == len(fast) > 5
    sums = given_data.part_sums(fast)
    for others in ((), fast, (0, 1, 2)):
        replies, _ = replied(scheme, scheme.simulated(given_data, 10), 2, model.astype(float))
        if others:
            scheme.server().combine(2, {device: replies[device] for device in others}, Work())
        for chosen in (set(fast), {*fast, slower[0]}, {*fast} - {0}):
            changed = chosen ^ set(fast)
            expected = sums.gradient(model)
            for device in changed:
                own = scheme.device(device, given_data.shards[device])
                gradient = own.reply(2, {"model": model}, Work())["gradient"]
                expected += gradient if device in chosen else -gradient
            found = scheme.server().combine(2, {device: replies[device] for device in chosen}, Work())
            assert np.array_equal(found, expected / (10 * len(chosen)))


@given(rates=st.lists(st.sampled_from([1e6, 2e6, 5e6, 7e6]) | st.floats(1e5, 1e8), min_size=1, max_size=30))
def test_groups_by_speed_hold_every_device_once_and_are_few(rates: list[float]) -> None:
    chosen = scenario({"fleet.devices": [{"count": 1, "mac_rate": rate} for rate in rates]})
    groups = pooling.speed_groups(DelayModel.create(chosen.fleet, chosen.links), [10] * len(rates))
    assert sorted(device for group in groups for device in group) == list(range(len(rates)))
    assert 1 <= len(groups) <= 8
    for fast, slow in itertools.pairwise(groups):
        assert min(rates[device] for device in fast) > max(rates[device] for device in slow)


def test_replies_to_different_requests_and_replies_of_others_are_not_summed_together() -> None:
    given_data = data()
    scheme = schemes.create(wanted("conventional"), given_data)
    devices = scheme.simulated(given_data, 10)
    first, _ = replied(scheme, devices, 2, np.ones(given_data.shape))
    other, _ = replied(scheme, devices, 2, 2 * np.ones(given_data.shape))
    assert pooled_total(first) is not None
    mixed: dict[int, Message] = {**first, 3: other[3]}
    assert pooled_total(mixed) is None
    lying: Mapping[int, Message] = {**first, 3: {"gradient": np.zeros(given_data.shape)}}
    assert pooled_total(lying) is None
    total = sum(reply["gradient"].astype(float) for reply in mixed.values())
    assert np.allclose(scheme.server().combine(2, mixed, Work()), total / given_data.samples, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_training_is_the_same_up_to_rounding_and_costs_the_same(name: str) -> None:
    given_data, chosen = data("float64"), wanted(name)
    scheme, found = schemes.create(chosen, given_data), []
    alone = [scheme.device(index, shard) for index, shard in enumerate(given_data.shards)]
    for devices in (alone, scheme.simulated(given_data, 10)):
        engine = VirtualEngine(devices, DelayModel.create(chosen.fleet, chosen.links), seed=0, draw=0)
        found.append(train(given_data, chosen, scheme, engine, State.fresh(given_data)))
    single, pooled = found
    for column in ("time", "replies", "up_bits", "down_bits", "device_macs", "server_macs"):
        assert single.history.columns[column] == pooled.history.columns[column]
    assert np.allclose(pooled.model, single.model, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_other_losses_are_computed_singly(name: str) -> None:
    given_data = data()
    vars(given_data).update(loss="softmax")
    scheme = schemes.create(wanted(name), data())
    replies, _ = replied(scheme, scheme.simulated(given_data, 10), 2, np.ones(given_data.shape))
    assert not any(isinstance(reply, Deferred) for reply in replies.values())


def test_batches_are_summed_only_if_that_is_worth_it() -> None:
    given_data = data()
    scheme = schemes.create(wanted("minibatch"), given_data)
    for epochs, summed in ((2, True), (1, False)):  # 4 * 3 * 2 = 24 = 2 * 12
        replies, _ = replied(scheme, scheme.simulated(given_data, epochs), 1, np.ones(given_data.shape))
        assert all(isinstance(reply, Deferred) == summed for reply in replies.values())


@pytest.mark.parametrize(
    ("sizes", "parts", "epochs", "worth"),
    [
        ([13, 13], 2, 2, False),  # 4 * 3 * 2 = 24 < 2 * 13
        ([13, 13], 2, 3, True),
        ([13, 12], 2, 3, False),  # a row less than 2 * 13
        ([13, 12], 1, 2, True),
        ([13, 12], 1, 1, False),
        ([13, 13], 0, 0, True),  # nothing to make
    ],
)
def test_sums_are_made_if_they_pay_and_need_no_more_room_than_the_data(
    sizes: list[int], parts: int, epochs: int, worth: bool
) -> None:
    assert pooling.worth_summing(problem(sizes, features=13, outputs=3), parts, epochs) == worth


def test_the_room_for_sums_by_hand() -> None:
    """In 4 bytes: 2 * 12 rows of 12 features, or as many rows as there are data points."""
    public = Public((10, 30), 12, 3, np.dtype("float32"))
    assert [pooling.batch_memory(public, parts) for parts in (1, 2, 4)] == [4 * 12 * 12, 4 * 12 * 24, 4 * 12 * 40]


def groups_of(rates: dict[float, int]) -> list[int]:
    """How many devices each group has."""
    chosen = scenario({"fleet.devices": [{"count": count, "mac_rate": rate} for rate, count in rates.items()]})
    delays = DelayModel.create(chosen.fleet, chosen.links)
    return [len(group) for group in pooling.speed_groups(delays, [10] * delays.devices)]


def test_speeds_are_told_apart_up_to_eight() -> None:
    assert groups_of({1e6 * (1 + place): 20 if place == 7 else 1 for place in range(8)}) == [20, *[1] * 7]
    assert groups_of({1e6 * (1 + place): 1 for place in range(16)}) == [2] * 8


def test_speeds_that_are_unknown_are_one() -> None:
    assert pooling.speed_groups(None, [5, 7, 5]) == [(0, 1, 2)]


class Fixed(Device):
    """Replies a multiple of ones."""

    def __init__(self, value: float) -> None:
        self._value = value

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        return {"gradient": np.full_like(request["model"], self._value)}


@pytest.mark.parametrize(
    ("macs", "present", "expected"),
    [
        ([3, 1, 1], (0, 1, 2), 100.0),  # 2 * 2 * 1 through the sum, 5 singly
        ([2, 1, 1], (0, 1, 2), None),  # 4 either way
        ([4, 2, 1], (0, 1), 100.0 - 4),  # 4 through the sum and 1 for the third, 6 singly
        ([3, 2, 1], (0, 1), None),  # 5 either way
        ([4, 2, 0], (0, 1), 100.0),  # who computes nothing replies zeros
        ([9, 0, 9], (0, 2), 100.0),
        ([9, 1, 9], (0, 1), 30.0 + 2 - 0),  # the first group and another reply: 4 and 1, and without the third 4 and 9
        ([9, 9, 9], (0, 1), 100.0 - 4),  # as many differ from everyone as from the first group
    ],
)
def test_a_sum_is_taken_where_it_is_less_work(
    macs: list[int], present: tuple[int, ...], expected: float | None
) -> None:
    """Replies are 1, 2 and 4; the sum of everyone is 100 and that of the first group, device 0, is 30."""
    sums = [Sums(np.zeros((2, 2)), np.full((2, 1), -value), 1) for value in (100.0, 30.0)]
    devices = [Fixed(value) for value in (1.0, 2.0, 4.0)]
    groups = [([0], lambda: sums[1]), ([1, 2], lambda: sums[1])]
    pool = pooling.ReplyPool(devices, lambda epoch: macs, lambda epoch: sums[0], groups)
    found = pool.total(2, {"model": np.ones((2, 1))}, present)
    assert found is None if expected is None else found is not None and found.tolist() == [[expected]] * 2


def test_sums_of_groups_are_added_up() -> None:
    """Two of three groups replied: the sum of their Gram matrices 1 and 2, less that of their moments."""
    made = [Sums(np.full((1, 1), value), np.full((1, 1), 10 * value), 1) for value in (1.0, 2.0, 4.0)]
    groups = [([place], lambda place=place: made[place]) for place in range(3)]
    never = Sums(np.full((1, 1), np.nan), np.zeros((1, 1)), 3)
    pool = pooling.ReplyPool([Fixed(0.0)] * 3, lambda epoch: [9] * 3, lambda epoch: never, groups)
    for _ in range(2):
        found = pool.total(2, {"model": np.full((1, 1), 5.0)}, (0, 1))
        assert found is not None
        assert found.tolist() == [[(1 + 2) * 5.0 - (10 + 20)]]


def test_devices_of_a_pool_export_for_themselves() -> None:
    class Exporting(Fixed):
        def export(self, grant: Message, work: Work) -> Message:
            work.add(7)
            return {"grant": grant["grant"] + 1}

    (device,), work = pooling.ReplyPool([Exporting(1.0)], lambda epoch: [9]).pooled(), Work()
    assert device.export({"grant": np.array([4])}, work)["grant"].tolist() == [5]
    assert work.macs == 7


def test_replies_that_are_not_summed_have_no_sum() -> None:
    pool = pooling.ReplyPool([Fixed(1.0)] * 9, lambda epoch: [9] * 9)
    assert pool.total(2, {"model": np.ones((1, 1))}, range(9)) is None


def test_multiplications_of_an_epoch_are_counted_once() -> None:
    counted: list[int] = []

    def macs(epoch: int) -> list[int]:
        counted.append(epoch)
        return [epoch]

    pool = pooling.ReplyPool([Fixed(1.0)], macs)
    assert [pool.macs(epoch) for epoch in (1, 1, 2, 2, 1)] == [[1], [1], [2], [2], [1]]
    assert counted == [1, 2, 1]
