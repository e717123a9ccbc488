"""The virtual engine with devices that compute nothing: exact timelines, and costs taken from the arrays."""

import dataclasses
from collections.abc import Sequence, Set
from dataclasses import dataclass, field

import numpy as np
import pytest

from codedfl.engines import Answer, VirtualEngine
from codedfl.network import DelayModel
from codedfl.scenario import Fleet, Links
from codedfl.schemes import Device, Message, Round, Stage, Transfer, Work, message_bits


@dataclass
class Stub(Device):
    """Replies with one number a bit of its own, after a product of a given size."""

    numbers: int
    macs: int
    dtype: str = "float32"
    asked: list[int] = field(default_factory=list)

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        self.asked.append(epoch)
        work.product(np.zeros((1, self.macs)), np.zeros((self.macs, 1)))
        return {"answer": np.full(self.numbers, epoch, self.dtype)}


# No chance: no loss, no setup. Overhead 1/2 and rates that are powers of two keep all times exact:
# 32-bit numbers come down at 1.5 * 32 / 32 = 1.5 s each and go up at 1.5 * 32 / 16 = 3 s each.
LINKS = Links(down_rate=32.0, up_rate=16.0, d2d_rate=16.0, overhead=0.5, loss=0.0)


def engine(devices: Sequence[Stub], rates: Sequence[float], now: float = 0.0) -> VirtualEngine:
    fleet = Fleet(
        devices=[{"mac_rate": rate, "setup_ratio": 0.0} for rate in rates],
        server_mac_rate=4.0,
    )
    return VirtualEngine(devices, DelayModel.create(fleet, LINKS), seed=0, draw=0, now=now)


def question(epoch: int, numbers: dict[int, int], dtype: str = "float32") -> Round:
    """A round that asks each device with a message of so many numbers."""
    return Round(epoch, {device: {"model": np.zeros(count, dtype)} for device, count in numbers.items()})


def ask(virtual: VirtualEngine, asked: Round, quorum: int, *, offline: bool = False, least: int = 0) -> Answer:
    """Await so many replies."""
    return virtual.ask(dataclasses.replace(asked, quorum=quorum, least=least), offline=offline)


def test_two_epochs_by_hand() -> None:
    """Epoch 1 is offline: only the uploads take time.

    device 0: 1 number up = 3 s; device 1: 2 numbers up = 6 s; device 2: 3 numbers up = 9 s; all are awaited -> 9.
    The server computes 2 MAC at 4 MAC/s = 0.5 s                                                           -> 9.5.

    Epoch 2: down 2 numbers = 3 s each, then work, then up.
    device 0: 3 + 8/1 + 3 = 14; device 1: 3 + 8/4 + 6 = 11; device 2: 3 + 8/8 + 9 = 13; two are awaited:
    device 1 at 9.5 + 11 = 20.5, device 2 at 9.5 + 13 = 22.5                                               -> 22.5.
    The server computes 6 MAC = 1.5 s                                                                      -> 24.
    """
    devices = [Stub(1, 8), Stub(2, 8), Stub(3, 8)]
    virtual = engine(devices, [1.0, 4.0, 8.0])
    asked = {0: 2, 1: 2, 2: 2}

    first = ask(virtual, question(1, asked), 3, offline=True)
    assert [(reply.device, reply.seconds) for reply in first.replies] == [(0, 3.0), (1, 6.0), (2, 9.0)]
    assert virtual.now == 9.0
    virtual.charge_server(2)
    assert virtual.now == 9.5

    second = ask(virtual, question(2, asked), 2)
    assert [(reply.device, reply.seconds) for reply in second.replies] == [(1, 11.0), (2, 13.0)]
    assert virtual.now == 22.5
    virtual.charge_server(6)
    assert virtual.now == 24.0


def test_a_late_reply_is_dropped_and_its_device_starts_afresh() -> None:
    """Device 0 needs 100 s and device 1 takes 1.5 + 1 + 3 = 5.5 s; nobody waits for device 0.

    Epoch 2 begins at 5.5 with both; now both are awaited: device 1 at 5.5 s, device 0 at 1.5 + 100 + 3 = 104.5 s
    after the second broadcast: 5.5 + 104.5 = 110. No reply of epoch 1 turns up in epoch 2.
    """
    virtual = engine([Stub(1, 100), Stub(1, 1)], [1.0, 1.0])
    first = ask(virtual, question(1, {0: 1, 1: 1}), 1)
    assert [reply.device for reply in first.replies] == [1]
    assert virtual.now == 5.5
    second = ask(virtual, question(2, {0: 1, 1: 1}), 2)
    assert [reply.device for reply in second.replies] == [1, 0]
    assert [reply.message["answer"].tolist() for reply in second.replies] == [[2.0], [2.0]]
    assert virtual.now == 110.0


def test_equal_times_arrive_in_the_order_of_asking() -> None:
    virtual = engine([Stub(1, 4) for _ in range(4)], [1.0] * 4)
    answer = ask(virtual, question(1, {2: 1, 0: 1, 3: 1, 1: 1}), 3)
    assert [reply.device for reply in answer.replies] == [2, 0, 3]


def test_only_the_asked_are_asked() -> None:
    devices = [Stub(1, 1), Stub(1, 1), Stub(1, 1)]
    virtual = engine(devices, [1.0, 2.0, 4.0])
    answer = ask(virtual, question(7, {2: 1, 0: 1}), 2)
    assert [reply.device for reply in answer.replies] == [2, 0]
    assert [device.asked for device in devices] == [[7], [], [7]]
    assert answer.costs.asked.tolist() == [2, 0]


def test_too_few_replies_are_handed_over_as_they_are() -> None:
    """Both arrive (the later at 1.5 + 4 + 3 = 8.5 s), and more will not come."""
    virtual = engine([Stub(1, 1), Stub(1, 4)], [1.0, 1.0])
    answer = ask(virtual, question(1, {0: 1, 1: 1}), 3)
    assert [reply.device for reply in answer.replies] == [0, 1]
    assert virtual.now == 8.5


def test_a_run_may_begin_later() -> None:
    """1.5 + 1 + 3 = 5.5 s after 1000."""
    virtual = engine([Stub(1, 1)], [1.0], now=1000.0)
    assert virtual.now == 1000.0
    answer = ask(virtual, question(1, {0: 1}), 1)
    assert (answer.replies[0].seconds, virtual.now) == (5.5, 1005.5)


@pytest.mark.parametrize(("dtype", "width"), [("float32", 32), ("float64", 64)])
def test_bits_and_macs_come_from_the_arrays(dtype: str, width: int) -> None:
    """Bits are numbers times their width: half the width, half the bits."""
    virtual = engine([Stub(3, 5, dtype), Stub(4, 7, dtype)], [1.0, 1.0])
    costs = ask(virtual, question(1, {0: 10, 1: 20}, dtype), 2).costs
    assert costs.down_bits.tolist() == [10 * width, 20 * width]
    assert costs.up_bits.tolist() == [3 * width, 4 * width]
    assert costs.macs.tolist() == [5, 7]


def test_offline_work_is_done_but_costs_the_upload_only() -> None:
    device = Stub(3, 5)
    costs = engine([device], [1.0]).ask(question(1, {0: 10}), offline=True).costs
    assert (costs.down_bits.tolist(), costs.macs.tolist(), costs.up_bits.tolist()) == ([0], [0], [96])
    assert device.asked == [1]


def test_the_payload_of_a_message_is_that_of_all_its_arrays() -> None:
    """2 * 3 doubles and 5 bytes: 6 * 64 + 5 * 8 = 424 bits."""
    assert message_bits({"a": np.zeros((2, 3)), "b": np.zeros(5, np.uint8)}) == 424
    assert message_bits({}) == 0


def test_work_counts_rows_times_inner_times_columns() -> None:
    work = Work()
    product = work.product(np.full((2, 3), 2.0), np.ones((3, 5)))
    assert np.array_equal(product, np.full((2, 5), 6.0))
    work.product(np.ones((1, 7)), np.ones((7, 1)))
    assert work.macs == 2 * 3 * 5 + 7


def test_the_times_are_those_of_the_draw() -> None:
    """With chance in play the engine lives in the draw it was given: the model's numbers for it, one by one."""
    fleet = Fleet(devices=[{"count": 3, "mac_rate": 2.0}])
    delays = DelayModel.create(fleet, Links(down_rate=32.0, up_rate=16.0, overhead=0.5, loss=0.5))
    virtual = VirtualEngine([Stub(1, 8)] * 3, delays, seed=5, draw=11)
    answer = ask(virtual, question(4, {0: 1, 1: 1, 2: 1}), 3)
    luck = delays.chance(5, 4, 11, 1)
    # down 1.5 s a try, 8/2 = 4 s of work, a setup of mean 2 s, up 3 s a try
    expected = luck.down_tries[0] * 1.5 + 4 + luck.setup[0] * 2 + luck.up_tries[0] * 3
    by_device = {reply.device: reply.seconds for reply in answer.replies}
    # four roundings on the way to a time
    assert np.allclose([by_device[i] for i in range(3)], expected, rtol=4 * np.finfo(float).eps, atol=0)
    assert [reply.device for reply in answer.replies] == np.argsort(expected).tolist()


@dataclass
class Carrier(Stub):
    """Sends a number of numbers that the grant says, and writes down the order of everything."""

    log: list[tuple[str, int, int]] = field(default_factory=list)
    number: int = 0

    def export(self, grant: Message, work: Work) -> Message:
        work.add(int(grant["size"]))
        self.log.append(("sends", self.number, int(grant["size"])))
        return {"parcel": np.zeros(int(grant["size"]), np.float32)}

    def absorb_from(self, sender: int, parcel: Message, work: Work, owners: Set[int] = frozenset()) -> None:
        self.log.append(("takes", self.number, len(parcel["parcel"])))


def stage(parcels: Sequence[tuple[int, int, int]], after: tuple[int, ...] | None) -> Stage:
    """Parcels of so many numbers from a sender to a recipient."""
    moves = [Transfer(sender, recipient, {"size": np.array(size)}) for sender, recipient, size in parcels]
    return Stage(moves, after=after)


def test_stages_that_wait_for_none_of_each_other_are_moved_sender_by_sender() -> None:
    """So a device that has made all its parcels at once is rid of them before the next one makes its own."""
    log: list[tuple[str, int, int]] = []
    stages = [
        stage([(0, 1, 1), (1, 0, 2)], None),
        stage([(1, 0, 3), (0, 1, 4)], (0,)),
        stage([(1, 0, 7)], (0, 1)),
        stage([(0, 1, 5), (1, 0, 6)], (0,)),
    ]
    virtual = engine([Carrier(1, 1, log=log, number=number) for number in range(2)], [1.0, 1.0])
    outcomes = virtual.carry_overlapping(stages, 0, lambda *_: None)
    assert [size for what, _, size in log if what == "sends"] == [1, 2, 4, 5, 3, 6, 7]
    assert [what for what, *_ in log] == ["sends", "takes"] * 7
    for each, outcome in zip(stages, outcomes, strict=True):  # in the order of the stage, whatever that of the work
        sizes = [int(transfer.grant["size"]) for transfer in each.transfers]
        assert [costs.parcel_bits for costs in outcome.costs] == [32 * size for size in sizes]
        assert [costs.export_macs for costs in outcome.costs] == sizes
        assert [costs.sender for costs in outcome.costs] == [transfer.sender for transfer in each.transfers]


def test_a_stage_of_its_own_is_moved_in_its_own_order() -> None:
    """Also the only one of its wave: those who take numbers of several senders add them in this order."""
    log: list[tuple[str, int, int]] = []
    virtual = engine([Carrier(1, 1, log=log, number=number) for number in range(2)], [1.0, 1.0])
    virtual.carry(stage([(1, 0, 3), (0, 1, 4), (1, 0, 1)], None), 0, lambda *_: None)
    assert [size for what, _, size in log if what == "sends"] == [3, 4, 1]
