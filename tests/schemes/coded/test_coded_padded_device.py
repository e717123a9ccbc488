"""Padded data of one device, and what the scheme says of itself: messages, work, refusals, sizes and words."""

from typing import Any

import numpy as np
import pytest

from codedfl.cipher.seals import FIELD_48, FIELD_61
from codedfl.errors import CipherError, DataError, ScenarioError
from codedfl.network import DelayModel
from codedfl.scenario import Fleet, Links
from codedfl.schemes import Public, Transfer, Work
from codedfl.schemes.coded.coded_padded import CodedPadded, CodedPaddedOptions, split
from codedfl.schemes.coded.worker_choice import choose_alpha
from codedfl.schemes.messages import Deferred
from codedfl.task import Shard
from schemes.coded.test_worker_choice_by_hand import uneven
from schemes.residues import carry
from tiny import is_one_sentence, problem

N, D, C = 5, 4, 2
SIZE = D * (D + 1) // 2 + D * C


def scheme(alpha: int | None, devices: int = N, **options: Any) -> CodedPadded:
    public = Public((3,) * devices, D, C, np.dtype("float64"), largest_feature=10.0)
    given: dict[str, Any] = {"ring": FIELD_61.name, **options}
    return CodedPadded(public, CodedPaddedOptions(alpha=alpha, **given))


def made(alpha: int, **options: Any) -> tuple[Any, list[Any], list[Transfer]]:
    found, shards = scheme(alpha, **options), problem([3] * N, features=D, outputs=C).shards
    fleet = [found.device(index, shard) for index, shard in enumerate(shards)]
    server = found.server()
    return server, fleet, [transfer for stage in server.set_up() for transfer in stage.transfers]


def refused(words: str, call: Any, *given: Any) -> None:
    work = Work()
    with pytest.raises(CipherError, match=words) as error:
        call(*given, work)
    assert is_one_sentence(str(error.value))
    assert work.macs == 0


def numbers(*shape: int) -> np.ndarray:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.uint64).reshape(shape)


def test_a_vector_is_a_triangle_and_a_right_hand_side() -> None:
    triangle, moments = split(np.arange(SIZE, dtype=np.uint64), D, C)
    assert triangle.tolist() == list(range(10))
    assert moments.tolist() == [[10, 11], [12, 13], [14, 15], [16, 17]]


@pytest.mark.parametrize("sharing", ["relay", "direct"])
def test_who_sends_to_whom(sharing: str) -> None:
    """To the nearest before it first; only the first grant of a device has a seed."""
    _, _, transfers = made(3, sharing=sharing)
    assert [(each.sender, each.recipient) for each in transfers] == [
        *((0, 4), (1, 0), (2, 1), (3, 2), (4, 3)),
        *((0, 3), (1, 4), (2, 0), (3, 1), (4, 2)),
    ]
    assert [set(each.grant) for each in transfers] == [{"seed", "export"}] * N + [set()] * N
    assert {each.relayed for each in transfers} == {sharing == "relay"}
    assert {int(each.grant["export"]) for each in transfers[:N]} == {0}
    assert made(1)[2] == []


def test_nothing_is_sent_that_is_not_padded_and_nothing_twice() -> None:
    _, fleet, transfers = made(3)
    refused("has padded no data: it sends nothing", fleet[2].export, {})
    first, work = transfers[2], Work()
    sent = fleet[2].export(first.grant, work)
    assert work.macs == 2 * SIZE, "the pad, and the multiple that it keeps"
    assert (set(sent), int(sent["owner"]), sent["words"].shape) == ({"owner", "words"}, 2, (SIZE,))
    refused("has padded its data before", fleet[2].export, first.grant)
    work = Work()
    assert np.array_equal(fleet[2].export({}, work)["words"], sent["words"])
    assert work.macs == 0
    refused("has sent its data to all that hold them", fleet[2].export, {})
    refused("has padded its data before", fleet[2].export, first.grant)


def test_data_that_are_not_sent_need_no_pad() -> None:
    """With alpha = 1; they are added up when the device is first asked."""
    server, fleet, _ = made(1)
    refused("has sent its data to all that hold them", fleet[0].export, {})
    refused("data of device 1 are none that device 0 combines", fleet[0].absorb_from, 1, {"words": numbers(SIZE)})
    works = [Work() for _ in range(3)]
    moments = fleet[0].reply(1, {}, works[0])["moments"]
    assert moments.shape == (D, C)
    assert np.array_equal(fleet[0].reply(1, {}, works[1])["moments"], moments)
    assert fleet[0].reply(2, {"model": numbers(C, D)}, works[2])["product"].shape == (C, D)
    assert [work.macs for work in works] == [SIZE, 0, C * D * D]
    assert set(server.keep() or {}) == set()


def test_what_a_device_takes_and_when_it_replies() -> None:
    """With alpha = 3 device 1 combines the data of devices 1, 2 and 3."""
    _, fleet, transfers = made(3)
    refused("lacks the padded data of device 1,", fleet[1].reply, 1, {})
    parcels = {each.sender: fleet[each.sender].export(each.grant, Work()) for each in transfers[:N]}
    refused("lacks the padded data of device 2,", fleet[1].reply, 1, {})
    for sender in (0, 1, 4):
        words = f"data of device {sender} are none that device 1 combines now"
        refused(words, fleet[1].absorb_from, sender, parcels[sender])
    refused("A parcel of device 3 is refused: 'words' has the shape", fleet[1].absorb_from, 3, {"words": numbers(3)})
    refused("A parcel of device 3 is refused: it has no array", fleet[1].absorb_from, 3, {})
    for sender in (3, 2):
        work = Work()
        fleet[1].absorb_from(sender, parcels[sender], work)
        assert work.macs == SIZE
        refused("are none that device 1 combines now", fleet[1].absorb_from, sender, parcels[sender])
        if sender == 3:
            refused("lacks the padded data of device 2,", fleet[1].reply, 2, {"model": numbers(C, D)})
    work = Work()
    fleet[1].reply(1, {}, work)
    assert work.macs == 0
    fleet[1].reply(2, {"model": numbers(C, D)}, work)
    assert work.macs == C * D * D
    refused("The model for device 1 is refused: 'model' has the shape", fleet[1].reply, 2, {"model": numbers(D, C)})


def test_what_the_server_asks() -> None:
    """Right-hand sides of everyone first, for no model; then products, any K = 3 of which suffice."""
    server, fleet, transfers = made(3)
    carry(fleet, transfers)
    model = np.random.default_rng(1).standard_normal((D, C))
    first = server.ask(1, model)
    assert (set(first.requests), first.quorum, first.least, first.needed) == (set(range(N)), 3, 3, 3)
    assert all(request == {} for request in first.requests.values())
    assert first.expected[0] == {"moments": (np.dtype("uint64"), (D, C))}
    assert not first.point.any()
    server.combine(1, {device: fleet[device].reply(1, {}, Work()) for device in (4, 1, 3)}, Work())
    server.after_epoch(1, {}, [0, 3])
    later = server.ask(2, model)
    assert (set(later.requests), later.quorum, later.least, later.needed) == ({1, 2, 4}, 3, 3, 3)
    assert later.requests[1]["model"].shape == (C, D)
    assert later.expected[4] == {"product": (np.dtype("uint64"), (C, D))}
    np.testing.assert_allclose(later.point, model, atol=1e-4)
    server.after_epoch(2, {}, [])
    assert set(server.ask(3, model).requests) == {1, 2, 4}


@pytest.mark.parametrize(("x", "y", "what"), [(10.5, 0.5, "feature"), (0.5, 10.5, "target")])
def test_a_device_refuses_data_beyond_the_agreed_bounds(x: float, y: float, what: str) -> None:
    with pytest.raises(DataError, match=f"a {what} of size 10.5 exceeds the bound"):
        scheme(2).device(0, Shard(np.full((3, D), x), np.full((3, C), y)))


@pytest.mark.parametrize(
    ("alpha", "devices", "words"), [(6, 5, "alpha = 6 must be at most 5"), (None, 1, "at least 2 devices")]
)
def test_fleets_that_do_not_fit(alpha: int | None, devices: int, words: str) -> None:
    scheme(5, 5).check()
    scheme(None, 2).check()
    with pytest.raises(ScenarioError, match=words) as error:
        scheme(alpha, devices).check()
    assert is_one_sentence(str(error.value))


def test_data_that_the_field_cannot_hold() -> None:
    public = Public((3,) * N, D, C, np.dtype("float64"), largest_feature=1e101)
    with pytest.raises(ScenarioError, match="cannot be sealed"):
        CodedPadded(public, CodedPaddedOptions(alpha=2)).check()


def test_numbers_that_follow_from_alpha() -> None:
    found = scheme(3)
    assert (found.code.N, found.code.K, found.code.alpha, found.code.prime) == (N, 3, 3, FIELD_61.modulus)
    assert (found.chosen_by_delays, found.survives_losses, found.memory) == (3, 2, 12 * D * D * N)
    assert found.repeats_epochs
    layout = {"owner": (np.dtype("int32"), ()), "words": (np.dtype("uint64"), (SIZE,))}
    assert found.parcels(0) == (layout,)


@pytest.mark.parametrize("sharing", ["relay", "direct"])
@pytest.mark.parametrize("epochs", [5, 100, 5000])
def test_alpha_is_chosen_for_the_way_of_sharing_and_the_epochs(sharing: str, epochs: int) -> None:
    public = uneven(0)
    options = CodedPaddedOptions(sharing=sharing, expected_epochs=epochs, ring=FIELD_48.name)
    chosen = choose_alpha(public, 48, relayed=sharing == "relay", expected_epochs=epochs)
    assert CodedPadded(public, options).code.alpha == chosen
    assert options.relayed == (sharing == "relay")


def test_alpha_depends_on_both() -> None:
    delays = DelayModel.create(
        Fleet(devices=[{"count": 1, "mac_rate": rate} for rate in (1e3, 2e3, 4e3, 8e3)]),
        Links(up_rate=1e3, down_rate=1e3, d2d_rate=1e6),
    )
    public = Public((5,) * 4, 30, 4, np.dtype("float32"), delays=delays)
    found = {
        (sharing, epochs): CodedPadded(public, CodedPaddedOptions(sharing=sharing, expected_epochs=epochs)).code.alpha
        for sharing in ("relay", "direct")
        for epochs in (1, 10, 100, 1000)
    }
    assert any(found["relay", epochs] != found["direct", epochs] for epochs in (1, 10, 100, 1000))
    assert found["relay", 1] < found["relay", 1000]


@pytest.mark.parametrize(("alpha", "sharing"), [(1, "relay"), (3, "relay"), (2, "direct")])
def test_costs_counted_by_hand(alpha: int, sharing: str) -> None:
    """Words of 64 bits, an owner of 32; a seed and its number of 256 + 64. Devices pad and add their own data once."""
    found, K = scheme(alpha, sharing=sharing).counted((), 4), N - alpha + 1
    (opening,), *later = found.epochs
    assert len(later) == 3
    assert opening.asked.tolist() == list(range(N))
    assert not opening.down_bits.any()
    assert opening.macs.tolist() == [SIZE if alpha == 1 else 0] * N
    assert opening.up_bits.tolist() == [D * C * 64] * N
    assert (opening.quorum, opening.least, opening.server_macs) == (K, K, K * D * C)
    for (costs,) in later:
        assert costs.asked.tolist() == list(range(N))
        assert costs.down_bits.tolist() == costs.up_bits.tolist() == [D * C * 64] * N
        assert costs.macs.tolist() == [D * D * C] * N
        pads = 0 if alpha == 1 else D * D * C
        assert (costs.quorum, costs.least, costs.server_macs) == (K, K, K * D * C + pads)
    for costs in (opening, later[0][0]):
        assert {array.dtype.kind for array in (costs.down_bits, costs.macs, costs.up_bits)} == {"i"}
    if alpha == 1:
        assert not found.stages
        return
    (stage,) = found.stages
    assert [(each.sender, each.recipient) for each in stage] == [
        (sender, (sender - step) % N) for step in range(1, alpha) for sender in range(N)
    ]
    more = N * (alpha - 2)
    assert stage.column("grant_bits").tolist() == [320] * N + [0] * more
    assert stage.column("export_macs").tolist() == [2 * SIZE] * N + [0] * more
    assert set(stage.column("parcel_bits").tolist()) == {32 + 64 * SIZE}
    assert set(stage.column("absorb_macs").tolist()) == {SIZE}
    assert {each.relayed for each in stage} == {sharing == "relay"}


def test_replies_of_a_simulation_are_promised() -> None:
    """Products with the work and the layout of the real ones, which are computed when they are read."""
    given = problem([3] * N, features=D, outputs=C)
    found = scheme(2)
    server, fleet = found.server(), found.simulated(given, 7)
    carry(fleet, server.set_up()[0].transfers)
    assert len(fleet) == N
    work = Work()
    reply = fleet[0].reply(2, {"model": numbers(C, D)}, work)
    assert isinstance(reply, Deferred)
    assert (work.macs, reply.promised) == (C * D * D, {"product": (np.dtype("uint64"), (C, D))})
    assert reply["product"].shape == (C, D)
    assert fleet[0].reply(1, {}, Work())["moments"].shape == (D, C)


def test_verdicts() -> None:
    """Combinations of products; with a device the server opens its neighbours' data; with alpha = 1 all of them."""
    cells = {(cell.adversary, cell.asset): cell for cell in scheme(3).secrecy()}
    for who in ("server", "deviating server"):
        assert cells[who, "gradient"].verdict == "leaks"
        assert "it reads 3 combinations of the products of 5 devices" in cells[who, "gradient"].reason
    assert cells["server and devices", "gram"].verdict == "falls"
    assert "a device holds the padded data of 2 others" in cells["server and devices", "gram"].reason
    assert cells["eavesdropper", "gram"].verdict == cells["device", "gram"].verdict == "proven"
    alone = {(cell.adversary, cell.asset): cell for cell in scheme(1).secrecy()}
    assert "with alpha = 1 it reads the gradient of every device" in alone["server", "gradient"].reason
    assert alone["server", "gradient"].verdict == "not protected"
    assert "nothing between devices" in scheme(1).leakage().eavesdropper
    assert "sums over all devices" in scheme(1).leakage().devices
