"""Sealed and coded: every shape of fleet and data, what a run leaves behind when too many are lost, and its costs."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.cipher.seals import RINGS
from codedfl.errors import CipherError, LostDevicesError, ScenarioError, TrainingError
from codedfl.runs import directory as runs
from codedfl.scenario import Fleet, Privacy
from codedfl.schemes import Stage, Work
from codedfl.schemes.coded.sealed_coded_server import SealedCodedServer
from codedfl.training import State
from rundirs import files, small
from schemes.residues import carry, decoded, is_exact, set_up, wanted
from tiny import is_one_sentence, problem, trained


@pytest.mark.parametrize(
    ("devices", "features", "workers", "threshold"),
    [
        *((2, 2, 2, 1), (2, 5, 2, 2), (7, 3, 7, 5), (3, 7, 3, 2), (5, 4, 3, 2), (6, 13, 4, 3)),
        *((2, 29, 2, 2), (3, 41, 3, 3), (4, 37, 2, 1), (64, 9, 5, 3), (128, 3, 4, 2)),
    ],
    ids=[
        *("the least", "all needed", "more blocks than columns", "odd", "adders that do not work", "uneven bands"),
        *("four chunks", "four chunks of three units", "chunks of single rows", "two groups", "two levels of groups"),
    ],
)
@pytest.mark.parametrize("ring", [name for name in RINGS if name.startswith("GF")])
def test_every_shape_is_exact(
    devices: int, features: int, workers: int, threshold: int, ring: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer or more features than devices, bands of uneven height, blocks that are filled up with zeros."""
    given = problem([4] * devices, features=features, outputs=2)
    options = {"workers": workers, "threshold": threshold, "ring": ring, "neighbours": 6}
    chosen = wanted("sealed-coded", {"schemes.sealed-coded": options}, rates=(1e6,) * devices)
    products = decoded(monkeypatch)
    assert trained(given, chosen).epoch == 5
    scheme: Any = schemes.create(chosen, given)
    assert scheme.formats.ring.name == ring
    assert len(products) == 4
    assert all(is_exact(*entry, scheme, given.shards) for entry in products)


@pytest.mark.parametrize(("ring", "bits"), [("GF(2^31-1)", 32), ("GF(2^48-59)", 48), ("GF(2^61-1)", 64)])
def test_the_set_up_sends_each_word_of_a_triangle_once(ring: str, bits: int) -> None:
    """Keys; N (N - 1) pieces, the own one stays, of d (d + 1)/2 + d c words together; then blocks and parts."""
    given = problem([4] * 6, features=12, outputs=2)
    chosen = wanted("sealed-coded", {"schemes.sealed-coded": {"workers": 4, "threshold": 3, "ring": ring}})
    keys, *stages = (stage.costs for stage in trained(given, chosen).history.stages)
    assert [len(stage) for stage in stages] == [6 * 5, 6 * 5 // 2, 4 * 5]
    assert sorted((cost.sender, cost.recipient) for cost in keys) == [
        (a, b) for a in range(6) for b in range(6) if a != b
    ]
    assert {cost.parcel_bits for cost in keys} == {8 + 256}, "the kind of parcel, and a point of X25519"
    names = 8 + 32  # bits that say the kind of a parcel and the band it belongs to
    words = [(sum(cost.parcel_bits for cost in stage) - len(stage) * names) // bits for stage in stages]
    assert words[0] == 5 * (12 * 13 // 2 + 12 * 2), "all but the own piece: five of six, summed over owners"
    assert words[1] == 15 * 2 * 2, "a block of 2 x 2 for each pair of bands"
    assert words[2] == 4 * 5 * 2 * 4, "two rows of four columns from each of five others to each of four workers"


@pytest.mark.parametrize("offline", [True, False])
def test_what_every_stage_multiplies(offline: bool) -> None:
    """Six bands of two rows; K = 5 coded columns of width 3, so that zeros fill the last: no work, as they are known.

    Keys: one X25519 for the own key and one for each other, of 255 (5 + 4 + 1) + 265 products of 8 x 8 words. Masks:
    five for every word. Both are done in advance where the first epoch is. Pieces: an owner pads d (d + 1)/2 + d c
    words once, an adder adds each piece. Blocks are copied. Parts: every entry of a band, two rows of d, takes one
    multiplication a worker; a worker computes its own band's part itself.
    """
    d, c = 12, 2
    given = problem([4] * 6, features=d, outputs=c)
    options = {"schemes.sealed-coded": {"workers": 5, "threshold": 5}}
    chosen = wanted("sealed-coded", {**options, "training.first_epoch_offline": offline})
    scheme: Any = schemes.create(chosen, given)
    state, agreement, words = trained(given, chosen), 2815 * 64, d * (d + 1) // 2 + d * c
    keys, first, second, third = (stage.costs for stage in state.history.stages)
    in_time = 0 if offline else 1
    for device in range(6):
        made = [(cost.export_macs, cost.export_beforehand) for cost in keys if cost.sender == device]
        assert sorted(made) == [(0, 0)] * 4 + [(in_time * agreement, (1 - in_time) * agreement)]
        sealed = [(cost.export_macs, cost.export_beforehand) for cost in first if cost.sender == device]
        assert np.sum(sealed, axis=0).tolist() == [words * (1 + 5 * in_time), 5 * words * (1 - in_time)]
    assert {(cost.absorb_macs, cost.absorb_beforehand) for cost in keys} == {
        (in_time * agreement, (1 - in_time) * agreement)
    }
    assert {cost.absorb_beforehand for cost in (*first, *second, *third)} == {0}
    unmasked = trained(given, chosen.with_settings({"schemes.sealed-coded.masks": False})).history
    more = state.history.columns["device_macs"][0] - unmasked.columns["device_macs"][0]
    assert more == 6 * (6 * agreement + 5 * words), "counted, whenever it is done"
    assert all(cost.absorb_macs == (cost.parcel_bits - 40) // 64 for cost in first), "float64: words of 64 bits"
    assert {(cost.export_macs, cost.absorb_macs) for cost in second} == {(0, 0)}
    assert {cost.export_macs for cost in third} == {2 * d}
    for worker in scheme.workers.chosen:
        taken = [cost.absorb_macs for cost in third if cost.recipient == worker]
        assert sorted(taken) == [0, 0, 0, 0, 2 * d]


@pytest.fixture
def leaving() -> dict[str, Any]:
    """Five devices of which two leave after epoch 4, where K = 4 of W = 5 must reply."""
    groups = [{"count": 3, "mac_rate": 25e6}, {"count": 2, "mac_rate": 2.5e6, "last_epoch": 4}]
    options = {"workers": 5, "threshold": 4}
    return {
        "scheme": "sealed-coded",
        "fleet.devices": groups,
        "schemes.sealed-coded": options,
        "training.epochs": 9,
        "training.targets": [0.5],
    }


@pytest.mark.parametrize("solver", ["gradient-descent", "conjugate-gradients"])
def test_a_run_that_lost_too_many_keeps_its_state_and_goes_on_when_they_are_back(
    leaving: dict[str, Any], solver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, path = small(leaving | {"training.solver": solver}), tmp_path / "run"
    for _ in range(2):  # the same command again finds the same losses
        with pytest.raises(LostDevicesError, match="epoch 5 got 3 of the 4 replies") as error:
            runs.execute(chosen, path)
        assert is_one_sentence(str(error.value))
        assert files(path) == {"scenario.toml", "checkpoint.npz"}
        with np.load(path / "checkpoint.npz", allow_pickle=False) as arrays:
            state = State.from_arrays(arrays)
        assert state.epoch == 4
        assert np.isfinite(state.model).all()
    monkeypatch.setattr(Fleet, "last_epochs", property(lambda self: {}))
    back = runs.execute(chosen, path)
    whole = runs.execute(chosen, tmp_path / "whole")
    with np.load(back.path / "model.npz") as one, np.load(whole.path / "model.npz") as other:
        assert one["theta"].tobytes() == other["theta"].tobytes()
    assert back.epochs["accuracy"].tobytes() == whole.epochs["accuracy"].tobytes()


def test_nothing_is_kept_of_a_run_whose_options_are_wrong(leaving: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="at least 2 features"):
        runs.execute(small(leaving | {"features.dimension": 1}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_repair_that_asks_for_a_lost_device_again_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that keeps choosing the device that is gone makes no progress; the epochs before are kept."""
    given = problem([4] * 6)
    chosen = wanted("sealed-coded", {"schemes.sealed-coded": {"workers": 4, "threshold": 3}})
    order = schemes.create(chosen, given).workers.order  # type: ignore[attr-defined]
    told: list[list[int]] = []

    def stubborn(self: SealedCodedServer, epoch: int, seconds: Any, lost: Sequence[int]) -> Stage | None:
        told.append(list(lost))
        assert len(told) < 8, "it would go on for ever"
        return self._rebuild(order[4], order[1:4]) if epoch == 3 else None

    monkeypatch.setattr(SealedCodedServer, "after_epoch", stubborn)
    state = State.fresh(given)
    with pytest.raises(
        LostDevicesError, match=f"after epoch 3 asks again for device {order[4]}, which is lost"
    ) as error:
        trained(given, chosen, state, last_epochs={order[0]: 2, order[4]: 1})
    assert is_one_sentence(str(error.value))
    assert told == [[], [], [order[0]], [order[4]]]
    assert state.epoch == 3


def test_the_fastest_device_that_is_left_replaces_a_lost_worker() -> None:
    """Of three spare ones; K helpers' blocks times their factors sum to its own, and it is asked from then on."""
    given = problem([4] * 6)
    chosen = wanted("sealed-coded", {"schemes.sealed-coded": {"workers": 3, "threshold": 2}})
    scheme: Any = schemes.create(chosen, given)
    server, generator, order = scheme.server(), scheme.layout.code.generator, scheme.workers.order
    server.set_up()
    stage = server.after_epoch(2, {}, [order[0]])
    assert [(each.sender, each.recipient) for each in stage.transfers] == [(order[1], order[3]), (order[2], order[3])]
    assert {int(each.grant["target"]) for each in stage.transfers} == {order[3]}
    sums = sum(int(each.grant["factor"]) * generator[each.sender].astype(object) for each in stage.transfers)
    assert (sums % (2**61 - 1)).tolist() == generator[order[3]].tolist()
    assert set(server.ask(3, np.zeros(given.shape)).requests) == {order[1], order[2]}, "the blocks are on their way"
    assert server.after_epoch(2, {}, []) is None
    assert set(server.ask(3, np.zeros(given.shape)).requests) == {order[1], order[2], order[3]}
    assert server.after_epoch(3, {}, []) is None, "nobody is lost, and nobody arrives twice"
    assert set(server.ask(4, np.zeros(given.shape)).requests) == {order[1], order[2], order[3]}


def test_repairs_without_an_end_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem([4] * 6)
    chosen = wanted("sealed-coded", {"schemes.sealed-coded": {"workers": 4, "threshold": 3}})
    monkeypatch.setattr(SealedCodedServer, "after_epoch", lambda *_: Stage([]))
    with pytest.raises(TrainingError, match="stage after stage sent after epoch 1 without an end") as error:
        trained(given, chosen)
    assert is_one_sentence(str(error.value))


def test_a_device_that_is_no_worker_cannot_be_asked_and_none_seals_twice() -> None:
    given = problem([4] * 6)
    options = {"schemes.sealed-coded": {"workers": 3, "threshold": 2}}
    scheme: Any = schemes.create(wanted("sealed-coded", options), given)
    _, devices, transfers, _ = set_up(scheme, given.shards)
    idle = next(device for device in range(6) if device not in scheme.workers.chosen)
    with pytest.raises(CipherError, match="no worker"):
        devices[idle].reply(2, {"model": np.zeros((3, 6), np.uint32)}, Work())
    first = next(transfer for transfer in transfers if "seed" in transfer.grant)
    with pytest.raises(CipherError, match="sealed its data before"):
        devices[first.sender].export(first.grant, Work())


def test_everything_but_the_first_grant_of_a_device_is_free_of_secrets() -> None:
    """Each device gets one seed, in its first grant; no parcel repeats it."""
    given = problem([4] * 6)
    _, _, transfers, parcels = set_up(schemes.create(wanted("sealed-coded"), given), given.shards)
    seeds: dict[int, int] = {}
    for transfer, parcel in zip(transfers, parcels, strict=True):
        seeds[transfer.sender] = seeds.get(transfer.sender, 0) + ("seed" in transfer.grant)
        assert "seed" not in parcel
        assert {array.dtype.kind for array in parcel.values()} <= {"u", "i"}
    assert seeds == dict.fromkeys(range(6), 1)


def test_chunks_send_the_same_words_and_no_part_waits_for_a_later_chunk() -> None:
    """Three devices, 24 features, K = 2: 12 units in chunks of 6, 3 and 3 (one for each adder at least)."""
    given = problem([4] * 3, features=24, outputs=2)
    options = {"schemes.sealed-coded": {"workers": 3, "threshold": 2, "ring": "GF(2^61-1)", "masks": False}}
    history = trained(given, wanted("sealed-coded", options, rates=(1e6,) * 3)).history
    stages = [(stage.costs, stage.after) for stage in history.stages]
    assert [after for _, after in stages] == [None, (0,), (0, 1), (), (3,), (3, 4), (), (6,), (6, 7), (), (9,), (9, 10)]
    words = [sum(cost.parcel_bits - 40 for cost in costs) // 64 for costs, _ in stages]
    assert sum(words[0::3]) == 2 * (24 * 25 // 2 + 24 * 2), "each word of the triangle once, but for the own pieces"
    assert sum(words[2::3]) == 2 * 24 * 12, "each entry of three coded blocks once, but for the own parts"


class Moved:
    """Devices whose parcels take any time: each sends when it has all that a stage comes after, its own included."""

    def __init__(self, stages: Sequence[Stage], devices: Sequence[Any]) -> None:
        self._stages, self._devices = stages, devices
        everyone = [(number, device) for number in range(len(stages)) for device in range(len(devices))]
        self._left = {
            (number, device): [each for each in stages[number].transfers if each.recipient == device]
            for number, device in everyone
        }
        self._unsent = {*everyone}
        self._arrived: dict[tuple[int, int], list[Any]] = {each: [] for each in everyone}
        self.absorbed = {each for each in everyone if not self._left[each]}
        self.works = [[Work() for _ in stage.transfers] for stage in stages]

    def play(self, draws: random.Random) -> None:
        """Let parcels arrive in a random order until all are absorbed."""
        way: list[Any] = []
        while self._unsent or way:
            for number, device in sorted(self._unsent):
                before = {(each, device) for each in self._stages[number].after or ()}
                if before <= self.absorbed and not before & self._unsent:
                    self._unsent.remove((number, device))
                    for place, each in enumerate(self._stages[number].transfers):
                        if each.sender == device:
                            way.append((number, place, self._devices[device].export(each.grant, Work())))
            number, place, parcel = way.pop(draws.randrange(len(way)))
            self._arrive(number, place, parcel)

    def _arrive(self, number: int, place: int, parcel: Any) -> None:
        transfer = self._stages[number].transfers[place]
        here = number, transfer.recipient
        self._arrived[here].append((place, parcel))
        if len(self._arrived[here]) == len(self._left[here]):
            for place, parcel in sorted(self._arrived[here], key=lambda each: each[0]):
                sender = self._stages[number].transfers[place].sender
                self._devices[transfer.recipient].absorb_from(sender, parcel, self.works[number][place])
            self.absorbed.add(here)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("count", "features", "masks"), [(5, 48, True), (5, 48, False), (66, 8, True)])
def test_parcels_may_come_before_those_of_earlier_stages(count: int, features: int, masks: bool, seed: int) -> None:
    """Blocks and parts of a chunk may be quicker than pieces: the same coded blocks, and the same work is counted."""
    given = problem([4] * count, features=features, outputs=2)
    options = {"schemes.sealed-coded": {"workers": 4, "threshold": 2, "masks": masks, "neighbours": 2}}
    scheme: Any = schemes.create(wanted("sealed-coded", options, rates=(1e6,) * count), given)
    stages = scheme.server().set_up()
    groups = [[scheme.device(index, shard) for index, shard in enumerate(given.shards)] for _ in range(2)]
    for stage in stages:
        carry(groups[0], stage.transfers)
    moved = Moved(stages, groups[1])
    moved.play(random.Random(seed))
    model = {"model": scheme.formats.field.to_wire(np.arange(2 * features, dtype=np.uint64).reshape(2, -1))}
    for worker in scheme.workers.chosen:
        replies = [devices[worker].reply(2, model, Work())["product"] for devices in groups]
        assert np.array_equal(*replies)
    for stage, works in zip(stages, moved.works, strict=True):
        assert [each.absorb_macs for each in stage.counted()] == [work.macs for work in works]


def test_a_block_that_comes_early_is_taken_once() -> None:
    given = problem([4] * 3, features=6, outputs=1)
    options = {"schemes.sealed-coded": {"workers": 3, "threshold": 2, "masks": False}}
    scheme: Any = schemes.create(wanted("sealed-coded", options, rates=(1e6,) * 3), given)
    pieces, blocks, *_ = scheme.server().set_up()
    block = blocks.transfers[0]
    devices = [scheme.device(index, shard) for index, shard in enumerate(given.shards)]
    sent = [(each, devices[each.sender].export(each.grant, Work())) for each in pieces.transfers]
    late = [(each, parcel) for each, parcel in sent if each.recipient == block.recipient]
    for each, parcel in sent:
        if each.recipient != block.recipient:
            devices[each.recipient].absorb_from(each.sender, parcel, Work())
    parcel = devices[block.sender].export(block.grant, Work())
    devices[block.recipient].absorb_from(block.sender, parcel, Work())
    for again in range(2):
        with pytest.raises(CipherError, match=f"expects no block of device {block.sender}"):
            devices[block.recipient].absorb_from(block.sender, parcel, Work())
        if not again:
            for each, piece in late:
                devices[each.recipient].absorb_from(each.sender, piece, Work())
            devices[block.recipient].reply(1, {}, Work())


@pytest.mark.parametrize(("devices", "members"), [(70, 35), (129, 33)])
def test_parcels_of_a_device_are_bounded_in_large_fleets(devices: int, members: int) -> None:
    """Keys of four neighbours; 32 pieces out and a group's in, a sum up, two sums in; in group 0 blocks and parts."""
    given = problem([2] * devices, features=34, outputs=1)
    options = {"workers": 4, "threshold": 2, "neighbours": 4}
    chosen = wanted("sealed-coded", {"schemes.sealed-coded": options, "training.epochs": 3}, rates=(1e6,) * devices)
    state = trained(given, chosen)
    table = [(cost.sender, cost.recipient) for stage in state.history.stages for cost in stage.costs]
    sent, taken = (np.bincount([pair[end] for pair in table], minlength=devices) for end in (0, 1))
    rest = np.arange(devices) % (devices // 32) > 0  # not in the first group, which exchanges blocks and sends parts
    assert sent[rest].max() <= 4 + 32 + 1
    assert taken.max() <= 4 + members + 2 + 31 + 32
    assert sent.max() <= 4 + 32 + 31 + 4
    plain = trained(given, chosen.with_settings({"scheme": "conventional"}))
    assert np.allclose(state.model, plain.model, rtol=1e-3, atol=1e-4)


def test_a_device_passes_no_sum_on_that_lacks_a_member_or_a_child() -> None:
    given = problem([2] * 70, features=5, outputs=1)
    options = {"schemes.sealed-coded": {"workers": 4, "threshold": 2, "masks": False}}
    scheme: Any = schemes.create(wanted("sealed-coded", options, rates=(1e6,) * 70), given)
    pieces, sums, *_ = scheme.server().set_up()
    devices = [scheme.device(index, shard) for index, shard in enumerate(given.shards)]
    child = sums.transfers[0]
    parent = child.recipient
    assert (child.sender, parent) == (1, 0)
    late = next(each for each in pieces.transfers if each.recipient == 1)
    early = next(each for each in pieces.transfers if each.recipient == 0)
    carry(devices, [each for each in pieces.transfers if (each.sender, each.recipient) != (late.sender, 1)])
    with pytest.raises(CipherError, match=f"has no sealed piece of device {late.sender}, and sums over fewer"):
        devices[1].export(child.grant, Work())
    with pytest.raises(CipherError, match="has no sealed piece of device 1,"):
        devices[0].reply(1, {}, Work())
    carry(devices, [late, child])
    for sender, words in ((2, "adds sums of its child groups"), (1, "adds one piece")):
        parcel = {"kind": np.array(5, np.int8), "band": np.array(0, np.int32), "piece": np.zeros(1, np.uint32)}
        with pytest.raises(CipherError, match=words):
            devices[0].absorb_from(sender, parcel, Work())
    with pytest.raises(CipherError, match="pieces of the other members of its group, and none of device 1"):
        devices[0].absorb_from(1, {**parcel, "kind": np.array(0, np.int8)}, Work())
    with pytest.raises(CipherError, match="has no sum of band 0 for device 0, or sent it before"):
        devices[1].export(child.grant, Work())
    assert early.sender % 2 == 0, "members of the same group"
    assert len(devices[0].reply(1, {}, Work())["moments"]) == 1


@pytest.mark.parametrize(("devices", "features", "threshold"), [(3, 24, 2), (6, 13, 3), (70, 9, 3)])
@pytest.mark.parametrize("offline", [True, False])
@pytest.mark.parametrize("masks", [True, False])
def test_costs_counted_from_sizes_are_those_of_a_run(
    devices: int, features: int, threshold: int, offline: bool, masks: bool
) -> None:
    given = problem([2] * devices, features=features, outputs=2)
    options = {"workers": threshold + 1, "threshold": threshold, "neighbours": 2, "masks": masks}
    changes = {"schemes.sealed-coded": options, "training.epochs": 3, "training.first_epoch_offline": offline}
    chosen = wanted("sealed-coded", changes, rates=(1e6,) * devices)
    history, scheme = trained(given, chosen).history, schemes.create(chosen, given)
    counted: Any = scheme.counted(given.shards, 3)
    assert [(stage.costs, stage.after) for stage in history.stages] == [
        *zip(counted.stages, counted.after, strict=True)
    ]
    rounds = [[history.rounds[number] for number in numbers] for numbers in history.questions()]
    for epoch, (ran, told) in enumerate(zip(rounds, counted.epochs, strict=True), start=1):
        expected = [costs.uploads if offline and epoch == 1 else costs for costs in told]
        assert [costs.key() for costs in ran] == [costs.key() for costs in expected]


@pytest.mark.parametrize(("neighbours", "harmless"), [(4, 3), (8, 7)])
def test_noise_counts_on_harmless_pools_alone(neighbours: int, harmless: int) -> None:
    """Of nine devices; if eight collude, the sum over the others is the data of one, whatever masks do."""
    options = {"schemes.sealed-coded.neighbours": neighbours}
    scheme = schemes.create(wanted("sealed-coded", options, rates=(1e6,) * 9), problem([2] * 9, features=4, outputs=1))
    refused = {count: scheme.refuses_noise(Privacy(epsilon=1.0, colluding=count)) for count in range(9)}
    assert all(refused[count] is None for count in range(harmless + 1))
    assert all("must be at most 3" in str(refused[count]) for count in range(harmless + 1, 9) if harmless == 3)
