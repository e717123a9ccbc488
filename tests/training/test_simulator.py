"""Times of trainings against processes of SimPy: ends of epochs and every step, for one scheme of each kind."""

from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.network import DelayModel
from codedfl.scenario import Scenario
from codedfl.training.timeline import timeline
from codedfl.training.timing import Variant, epoch_ends
from contracts.test_schemes import wanted
from simulator import Simulator, Steps
from tiny import gamma, problem, trained

FLEET = [
    {"count": 2, "mac_rate": 2e4},
    {"count": 2, "mac_rate": 5e3, "setup_seconds": 0.01},
    {"count": 2, "mac_rate": 1e3, "d2d_rate": 2e5, "loss": 0.5},
]
GIVEN = problem([9, 7, 8, 3, 9, 8], features=12, outputs=3, ridge=0.01)
LINKS = {"down_rate": 1e6, "up_rate": 5e5, "d2d_rate": 5e5, "loss": 0.3}

SHARED = {"links.d2d_channel": "shared", "links.d2d_loss": 0.6, "fleet.devices.1.d2d_loss": 0.2}
"""One channel for all direct parcels, which has losses of its own."""

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "everyone is awaited": ("conventional", {}),
    "a quorum": ("drop-slowest", {}),
    "a deadline": ("deadline", {"schemes.deadline.share": 0.4}),
    "a deadline before the first reply": ("deadline", {"schemes.deadline.seconds": 1e-3}),
    "open questions": ("asynchronous", {"schemes.asynchronous.buffer": 2}),
    "several questions": ("secagg", {}),
    "hand-overs, one after the other": ("code-based", {}),
    "hand-overs to two devices": ("code-based", {"schemes.code-based.delta": 0.1}),
    "sealed hand-overs": ("sealed", {"schemes.sealed.delta": 0.1, "fleet.server_mac_rate": 1e300}),
    "hand-overs at once": ("code-based", {"schemes.code-based.parallel_reception": True}),
    "hand-overs after the first epoch": (
        "code-based",
        {"schemes.code-based.detect_from": 1, "schemes.code-based.odd_set": "two-errors"},
    ),
    "hand-overs after a first epoch that takes time": (
        "code-based",
        {"schemes.code-based.detect_from": 1, "training.first_epoch_offline": False},
    ),
    "stages": ("sealed-coded", {}),
    "stages with all work in time": ("sealed-coded", {"training.first_epoch_offline": False}),
    "stages of two chunks": ("sealed-coded", {"schemes.sealed-coded": {"workers": 3, "threshold": 1}}),
    "relayed parcels": ("coded-padded", {"schemes.coded-padded.sharing": "relay"}),
    "parcels from device to device": ("coded-padded", {"schemes.coded-padded.sharing": "direct"}),
    "a single round": ("one-shot", {"training.solver": "closed-form"}),
    "uploads and a deadline": ("parity", {}),
}
ON_A_SHARED_CHANNEL = (
    "hand-overs to two devices",
    "hand-overs at once",
    "sealed hand-overs",
    "stages",
    "stages of two chunks",
    "relayed parcels",
    "parcels from device to device",
    "uploads and a deadline",
)
KINDS |= {f"{kind}, shared": (KINDS[kind][0], KINDS[kind][1] | SHARED) for kind in ON_A_SHARED_CHANNEL}
LOSSES = {key: value for key, value in SHARED.items() if key.endswith("loss")}
KINDS["hand-overs with losses of their own"] = "code-based", LOSSES
KINDS["parcels with losses of their own"] = "sealed-coded", LOSSES


def chosen(kind: str, draw: int) -> Scenario:
    name, changes = KINDS[kind]
    plain = {"fleet.devices": FLEET, "fleet.server_mac_rate": 1e4, "training.epochs": 8, "task.precision": "float64"}
    links = {f"links.{key}": value for key, value in LINKS.items()}
    return wanted(name).with_settings({**plain, **links, "timing.draw": draw, "timing.seed": 7, **changes})


def sorted_steps(steps: Steps) -> tuple[list[tuple[int, int, str]], np.ndarray]:
    """Names and times; steps of one device and kind in an epoch, in the order of time."""
    listed = sorted(steps)
    return [step[:3] for step in listed], np.array([step[3:] for step in listed])


@pytest.mark.parametrize("draw", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_every_step_happens_when_events_say(kind: str, draw: int) -> None:
    """A time is a sum of at most as many numbers as delays have passed, each a product of a few.

    Both sides round each sum and product: twice gamma of that count, of the time, bounds the difference.
    """
    setting = chosen(kind, draw)
    scheme = schemes.create(setting, GIVEN)
    history = trained(GIVEN, setting).history
    delays, timing = DelayModel.create(setting.fleet, setting.links), setting.timing
    parallel = "at once" in kind
    simulator = Simulator(delays, seed=timing.seed, draw=draw, parallel=parallel)
    simulator.run(history)
    bound = 2 * gamma(6 * simulator.events, float) * simulator.ends[-1]
    assert bound < 1e-9 * simulator.ends[-1], "the test would say little"
    assert np.all(abs(np.array(simulator.ends) - history.columns["time"]) <= bound)

    offline = setting.training.first_epoch_offline
    course = Variant.create(scheme, GIVEN, history, first_offline=offline) or history
    (ends,) = epoch_ends([course], delays, epochs=len(history), seed=timing.seed, draws=draw + 1)
    assert np.all(abs(np.array(simulator.ends) - ends[draw]) <= bound)

    rows = timeline(history, delays, seed=timing.seed, draw=draw, parallel=parallel)
    columns = (rows[name] for name in ("epoch", "device", "activity", "begin", "end"))
    laid_out = [step for step in zip(*columns, strict=True) if step[4] > step[3]]
    (names, times), (expected_names, expected) = sorted_steps(laid_out), sorted_steps(simulator.steps)
    assert names == expected_names
    assert np.all(abs(times - expected) <= bound)
    assert [len(replied) for replied in simulator.replied][-1] == history.columns["replies"][-1]


@pytest.mark.parametrize(
    ("kind", "activities"),
    [
        ("hand-overs, one after the other", {"grant", "encrypt", "send", "absorb"}),
        ("stages", {"send"}),
        ("relayed parcels", {"send"}),
        ("uploads and a deadline", {"send"}),
    ],
)
def test_the_kinds_have_the_steps_they_are_for(kind: str, activities: set[str]) -> None:
    """Else they would say little."""
    setting = chosen(kind, 0)
    history = trained(GIVEN, setting).history
    delays = DelayModel.create(setting.fleet, setting.links)
    rows = timeline(history, delays, seed=7, draw=0, parallel=False)
    assert activities <= set(rows["activity"])
    transfers = [costs for stage in history.stages for costs in stage.costs]
    assert any(costs.relayed for costs in transfers) == (kind == "relayed parcels")
    assert any(costs.uploaded for costs in transfers) == (kind == "uploads and a deadline")


@pytest.mark.parametrize("kind", ["hand-overs to two devices", "sealed hand-overs", "stages"])
def test_a_shared_channel_takes_longer(kind: str) -> None:
    """Else several parcels never wanted it at once, and the comparison with events would say little."""
    apart, shared = (
        trained(GIVEN, chosen(kind, 0).with_settings({"links.d2d_channel": channel})).history.columns["time"]
        for channel in ("parallel", "shared")
    )
    assert shared[-1] > apart[-1]
