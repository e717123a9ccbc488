"""Stages in time, by hand: a device sends one parcel at a time and takes one at a time."""

import dataclasses
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.network import DelayModel, Draws, OverlappingStage, Step, TransferCosts, clock
from codedfl.scenario import Fleet, Links

# Powers of two keep every number exact: no loss, no setup, and a bit takes 1.5/16 s between devices.
LINKS = Links(down_rate=64.0, up_rate=32.0, d2d_rate=16.0, overhead=0.5, loss=0.0)
FLEET = Fleet(
    devices=[
        {"count": 3, "mac_rate": 8.0, "setup_ratio": 0.0},
        {"count": 1, "mac_rate": 4.0, "setup_ratio": 0.0, "d2d_rate": 8.0},
    ]
)


def model(**changes: float) -> DelayModel:
    return DelayModel.create(FLEET, Links(**({**LINKS.to_table(), **changes})))


def parcel(sender: int, recipient: int, **costs: int) -> TransferCosts:
    plain = {"grant_bits": 0, "export_macs": 0, "parcel_bits": 32, "absorb_macs": 0}
    return TransferCosts(sender, recipient, **(plain | costs))


def stage_seconds(
    delays: DelayModel, stage: int, transfers: list[TransferCosts], *, seed: int, first: int, draws: int
) -> np.ndarray:
    return Draws(delays, seed=seed, first=first, count=draws).stage(stage, transfers).seconds


def sends(delays: DelayModel, transfers: list[TransferCosts], *, seed: int, draw: int) -> list[Step]:
    steps = Draws(delays, seed=seed, first=draw).stage(0, transfers).steps(transfers)
    return [step for step in steps if step.activity == "send"]


def begins(transfers: list[TransferCosts]) -> list[tuple[float, float]]:
    steps = sends(model(), transfers, seed=0, draw=0)
    assert [(step.device, step.peer, step.bits) for step in steps] == [
        (costs.sender, costs.recipient, costs.parcel_bits) for costs in transfers
    ]
    return [(step.begin, step.end) for step in steps]


def lasts(transfers: list[TransferCosts]) -> float:
    return float(stage_seconds(model(), 0, transfers, seed=0, first=0, draws=1)[0])


def test_different_pairs_send_side_by_side() -> None:
    """32 * 1.5/16 = 3 s each."""
    assert begins([parcel(0, 1), parcel(2, 0)]) == [(0.0, 3.0), (0.0, 3.0)]


def test_a_sender_sends_one_after_the_other() -> None:
    assert begins([parcel(0, 1), parcel(0, 2)]) == [(0.0, 3.0), (3.0, 6.0)]


def test_a_recipient_takes_one_after_the_other() -> None:
    assert begins([parcel(0, 2), parcel(1, 2)]) == [(0.0, 3.0), (3.0, 6.0)]


def test_a_parcel_waits_for_both_its_ends() -> None:
    """0 is busy sending till 3, 3 is busy taking till 6 (its link has half the rate): 0 -> 3 lasts from 6 to 12."""
    assert begins([parcel(0, 1), parcel(2, 3), parcel(0, 3)]) == [(0.0, 3.0), (0.0, 6.0), (6.0, 12.0)]


def test_preparing_comes_before_and_absorbing_after() -> None:
    """Grant 64 * 1.5/64 = 1.5; two parcels of 8/8 = 1 s of work; send from 3.5 to 6.5 and 9.5; 16/8 = 2 s to add."""
    first = parcel(0, 1, grant_bits=64, export_macs=8)
    second = parcel(0, 2, export_macs=8, absorb_macs=16)
    assert begins([first, second]) == [(3.5, 6.5), (6.5, 9.5)]
    assert lasts([first, second]) == 11.5


def test_a_single_stage_has_nothing_to_overlap_with() -> None:
    """Its parcels keep their order: device 2 waits for device 1 before it sends to device 0."""
    stage = [parcel(0, 1), parcel(2, 1), parcel(2, 0)]
    found = Draws(model(), seed=0).stages([OverlappingStage(0, stage)])
    assert (found.begin.tolist(), found.seconds.tolist()) == ([[0.0, 3.0, 6.0]], [9.0])


def test_grants_take_as_many_tries_as_are_expected() -> None:
    """64 * 1.5/64 = 1.5 s become 3 s where every second message is lost."""
    times = Draws(model(loss=0.5, d2d_loss=0.0), seed=0, count=2).stage(0, [parcel(0, 1, grant_bits=64)])
    assert (times.begin.tolist(), times.end.tolist()) == ([[3.0]] * 2, [[6.0]] * 2)


def test_nothing_takes_no_time() -> None:
    assert lasts([]) == 0.0
    assert sends(model(), [], seed=0, draw=0) == []


def test_a_draw_is_the_same_alone_as_among_others() -> None:
    transfers = [parcel(a, b, export_macs=3, absorb_macs=2) for a in range(4) for b in range(4) if a != b]
    delays = model(loss=0.3)
    together = stage_seconds(delays, 1, transfers, seed=5, first=0, draws=20)
    alone = [stage_seconds(delays, 1, transfers, seed=5, first=n, draws=1)[0] for n in range(20)]
    assert np.array_equal(together, alone)
    assert len(set(together.tolist())) > 10
    assert not np.array_equal(together, stage_seconds(delays, 2, transfers, seed=5, first=0, draws=20))


@pytest.mark.parametrize("channel", ["parallel", "shared"])
def test_many_parcels_are_timed_as_few(channel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploads, relayed and direct parcels have the same times to the last bit in compiled code."""
    pairs = [(a, b) for a in range(4) for b in range(-1, 4) if a != b]
    costs = [parcel(a, b, relayed=place % 3 == 0 and b >= 0, export_macs=3) for place, (a, b) in enumerate(2 * pairs)]
    draws = Draws(model(loss=0.3, d2d_channel=channel), seed=5, count=7)  # type: ignore[arg-type]
    few = draws.stage(1, costs)
    monkeypatch.setattr(clock, "_LEAST_COMPILED_PARCELS", 0)
    many = draws.stage(1, costs)
    for name, expected in vars(few).items():
        assert np.array_equal(getattr(many, name), expected), name


parcels = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 64)).filter(lambda pair: pair[0] != pair[1]),
    min_size=1,
    max_size=12,
)


@given(parcels, st.integers(0, 5))
def test_nobody_sends_or_takes_two_parcels_at_once(listed: list[tuple[int, int, int]], seed: int) -> None:
    transfers = [parcel(sender, recipient, parcel_bits=bits) for sender, recipient, bits in listed]
    delays = model(loss=0.5)
    steps = sends(delays, transfers, seed=seed, draw=3)
    for end in ("device", "peer"):
        for device in range(4):
            own = sorted((s for s in steps if getattr(s, end) == device), key=lambda step: step.begin)
            assert all(one.end <= other.begin for one, other in itertools.pairwise(own))
    last = max(step.end for step in steps)
    assert stage_seconds(delays, 0, transfers, seed=seed, first=3, draws=1)[0] == pytest.approx(last, rel=1e-12)


def test_tries_are_geometric_with_the_senders_loss() -> None:
    """A single parcel of 3 s: the mean is 3 / (1 - p), within four deviations of the mean of 4000 draws."""
    seconds = stage_seconds(model(loss=0.4), 0, [parcel(0, 1)], seed=1, first=0, draws=4000)
    tries = seconds / 3
    deviation = np.sqrt(0.4) / 0.6
    assert abs(tries.mean() - 1 / 0.6) <= 4 * deviation / np.sqrt(4000)
    assert np.allclose(tries, np.round(tries))


def test_steps_are_steps() -> None:
    transfers = [parcel(0, 1, grant_bits=64, export_macs=8, absorb_macs=16)]
    assert Draws(model(), seed=0).stage(0, transfers).steps(transfers) == [
        Step(0, "grant", None, 0.0, 1.5, 64),
        Step(0, "encrypt", None, 1.5, 2.5, 0),
        Step(0, "send", 1, 2.5, 5.5, 32),
        Step(1, "absorb", None, 5.5, 7.5, 0),
    ]


# --- links of the server: up at 1.5/32 s a bit, down at 1.5/64 s a bit ---


def relayed(sender: int, recipient: int, **costs: int) -> TransferCosts:
    return dataclasses.replace(parcel(sender, recipient, **costs), relayed=True)


def test_uploads_go_side_by_side() -> None:
    """32 * 1.5/32 = 1.5 s each; one sender sends one after the other, the server takes all at once."""
    assert begins([parcel(0, -1), parcel(1, -1), parcel(0, -1)]) == [(0.0, 1.5), (0.0, 1.5), (1.5, 3.0)]
    assert lasts([parcel(0, -1), parcel(1, -1), parcel(0, -1)]) == 3.0


def test_an_upload_keeps_no_device_from_receiving() -> None:
    """Not even the last one, nor does what the server does with it take time of a device."""
    assert begins([parcel(0, -1), parcel(1, 3), parcel(0, -1)]) == [(0.0, 1.5), (0.0, 6.0), (1.5, 3.0)]
    assert begins([parcel(0, -1), relayed(1, 3)]) == [(0.0, 1.5), (0.0, 2.25)]
    times = Draws(model(), seed=0).stage(0, [parcel(0, -1, absorb_macs=16)])
    assert (times.taken.tolist(), times.seconds.tolist()) == ([[0.0] * 4], [1.5])


def test_what_is_relayed_goes_up_and_then_down() -> None:
    """1.5 s up, 0.75 s down. The second goes up from 1.5 to 3; the third is up at 1.5 and waits for its recipient."""
    assert begins([relayed(0, 1), relayed(0, 2), relayed(3, 1)]) == [(0.0, 2.25), (1.5, 3.75), (0.0, 3.0)]


def test_a_recipient_of_relayed_parcels_works_when_the_last_is_there() -> None:
    """Down till 2.25, then 16/8 = 2 s."""
    assert lasts([relayed(0, 1, absorb_macs=16)]) == 4.25


@given(st.booleans(), st.sampled_from([-1, 2]), st.integers(0, 100), st.integers(0, 100))
def test_every_bit_goes_over_one_link_or_up_and_down(via: bool, recipient: int, grant: int, bits: int) -> None:
    costs = parcel(0, recipient, grant_bits=grant, parcel_bits=bits)
    costs = dataclasses.replace(costs, relayed=via and recipient >= 0)
    found = costs.bits()
    if costs.relayed:
        assert found == {"down": grant + bits, "up": bits, "d2d": 0}
    else:
        assert found == {"down": grant, "up": bits if recipient < 0 else 0, "d2d": 0 if recipient < 0 else bits}


@pytest.mark.parametrize("others", [[], [parcel(2, 3), parcel(1, -1)]], ids=["alone", "beside others"])
def test_the_way_up_and_the_way_down_have_tries_of_their_own(others: list[TransferCosts]) -> None:
    """With the loss p, 1.5 / (1 - p) s up and 0.75 / (1 - p) s down on average; the two are not correlated."""
    seconds = Draws(model(loss=0.4), seed=1, count=4000).stage(0, [relayed(0, 1), *others]).end[:, 0]
    variance = 0.4 / 0.6**2
    deviation = np.sqrt(variance * (1.5**2 + 0.75**2))
    assert abs(seconds.mean() - 2.25 / 0.6) <= 4 * deviation / np.sqrt(4000)
    # were the tries the same, the variance would be that of 2.25 times one of them: 1.8 times as large
    assert seconds.var() < 1.4 * deviation**2


NEARLY_ALL = 1 - 1e-6
"""A loss at which a number of tries tells the uniform number behind it."""


def behind(chance: object) -> dict[str, np.ndarray]:
    """-log(1 - u) of each uniform number u: a setup; 1 + floor(-log(1 - u) / -log(loss)) tries tell it to 1e-6."""
    scale = -np.log(NEARLY_ALL)
    return {name: scale * (drawn - 1) if "tries" in name else drawn for name, drawn in vars(chance).items()}


def _without_relay(chance: Any) -> SimpleNamespace:
    """A hand-over never goes over the server, so it has no stream of its own for that."""
    over_server = ("up_tries", "relay_tries")
    return SimpleNamespace(**{name: value for name, value in vars(chance).items() if name not in over_server})


def test_no_two_of_all_that_happens_share_random_numbers() -> None:
    """Questions and hand-overs of two epochs, and stages: were two streams the same, all their numbers would agree."""
    delays, everyone = model(loss=NEARLY_ALL), np.arange(4)
    where = {"seed": 3, "first": 5, "draws": 2}
    chances: dict[str, object] = {}
    for epoch, question in itertools.product((1, 2), range(8)):
        chances[f"question {question} of {epoch}"] = delays.chance(epoch=epoch, question=question, **where)
        chances[f"hand-overs after {epoch}"] = _without_relay(delays.handover_chance(epoch=epoch, **where))
    for stage in range(8):
        found = delays.stage_chance(stage=stage, senders=everyone, relayed_to=everyone, **where)
        parts = {name: getattr(found, name) for name in ("export_setup", "parcel_tries", "absorb_setup")}
        chances[f"stage {stage}"] = SimpleNamespace(**parts)
        chances[f"relay in stage {stage}"] = SimpleNamespace(tries=found.relay_tries)
    parts = {(what, name): numbers for what, chance in chances.items() for name, numbers in behind(chance).items()}
    assert len(parts) == 2 * (8 * 3 + 4) + 8 * (3 + 1)
    for (one, left), (other, right) in itertools.combinations(parts.items(), 2):
        assert np.all(np.abs(left - right).max(axis=1) > 2e-6), (one, other)
