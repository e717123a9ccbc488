"""An emulated run takes as long as virtual time says, epoch by epoch: a law of its sleeps, with no clock to wait on."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from codedfl.deploy.protocol.wire import decode
from codedfl.deploy.site.emulation import Emulation
from codedfl.errors import LostDevicesError
from codedfl.runs import Run
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.task import Problem
from codedfl.testing.small import problem
from contracts.test_engines import NAMES, RIDGE, SIZES, chosen, given
from deploy.server.faults.test_parcels import flipped
from fleets import InProcessFleet, fleet
from sleeping import sleeping_clock
from tiny import gamma, is_one_sentence, shares

SCALE = 0.25
UNLIKE = [
    {"count": 2, "mac_rate": 25e6, "down_rate": 4e6, "up_rate": 3e6, "d2d_rate": 8e6, "loss": 0.2},
    {"count": 2, "mac_rate": 5e6, "setup_seconds": 1e-4, "d2d_rate": 3e6, "loss": 0.5},
    {"count": 2, "mac_rate": 1.25e6, "setup_ratio": 2.0, "up_rate": 1e6, "d2d_rate": 2e6, "loss": 0.0},
]
"""Every number that a device has differs from class to class, so that none can stand for another."""
ENDLESS = {"patience": 1e9, "longest": 1e9}


def emulated(scenario: Scenario, path: Path, monkeypatch: pytest.MonkeyPatch, data: Problem) -> Run:
    """Run a scenario on sites that sleep; the server's own computing takes no time here."""
    with sleepers(monkeypatch, data) as sites:
        return sites.deploy(scenario, path, time_scale=SCALE, seeded_keys=True, **ENDLESS)


def sleepers(monkeypatch: pytest.MonkeyPatch, data: Problem | None = None) -> Any:
    def slow(wanted: Scenario, device: int) -> Emulation:
        return Emulation.of_scenario(wanted, device, time_scale=SCALE)

    return fleet(data or given(), slow=slow, clock=sleeping_clock(monkeypatch))


def unlike(name: str, **changes: Any) -> Scenario:
    """Six devices in three classes, some of whom hand over; a server that computes in no time."""
    common: dict[str, Any] = {"fleet.devices": UNLIKE, "fleet.server_mac_rate": 1e300}
    common |= {"timing.seed": 3, "timing.draw": 5, "timing.draws": 2, "timing.repeats": 1}
    if shares(name):
        common[f"schemes.{name}.delta"] = 5e-4
    return chosen(name, **(common | changes))


def roundings(run: Run, chunks: int) -> int:
    """No path to the last time has more additions than eight for every question and every parcel there was."""
    asked = pyarrow.parquet.read_table(run.path / "devices.parquet").num_rows
    pairs = chunks * run.scenario.fleet.size**2
    return 8 * (asked + 3 * pairs + run.summary.get("handovers", 0))


VARIANTS: list[Any] = [(name, {}) for name in NAMES if isinstance(name, str)]
VARIANTS += [pytest.param("he", {}, marks=mark.marks) for mark in NAMES if not isinstance(mark, str)]
VARIANTS += [
    ("sealed", {"schemes.sealed.parallel_reception": True}),
    ("code-based", {"schemes.code-based.parallel_reception": True}),
    ("coded-padded", {"schemes.coded-padded.sharing": "direct", "schemes.coded-padded.alpha": 3}),
    ("sealed-coded", {"schemes.sealed-coded.workers": 5, "schemes.sealed-coded.threshold": 3}),
    ("sealed-coded", {"schemes.sealed-coded.overlap": False}),
    ("sealed-coded", {"schemes.sealed-coded.masks": False}),
    ("sealed-coded", {"training.first_epoch_offline": False}),
    ("conventional", {"training.first_epoch_offline": False}),
    ("code-based", {"schemes.code-based.detect_from": 1, "schemes.code-based.odd_set": "two-errors"}),
    ("sealed", {"schemes.sealed.detect_from": 1, "training.first_epoch_offline": False}),
    ("sealed", {"schemes.sealed.detect_from": 1}),
]
SHARED = {"links.d2d_channel": "shared", "links.d2d_loss": 0.4, "fleet.devices.0.d2d_loss": 0.1}
ON_A_SHARED_CHANNEL: list[Any] = [
    ("code-based", {}),
    ("code-based", {"schemes.code-based.parallel_reception": True}),
    ("sealed", {}),
    ("coded-padded", {"schemes.coded-padded.sharing": "direct", "schemes.coded-padded.alpha": 3}),
    ("coded-padded", {"schemes.coded-padded.sharing": "relay", "schemes.coded-padded.alpha": 3}),
    ("sealed-coded", {"schemes.sealed-coded.workers": 5, "schemes.sealed-coded.threshold": 3}),
    ("parity", {}),
]
VARIANTS += [(name, changes | SHARED) for name, changes in ON_A_SHARED_CHANNEL]


@pytest.mark.parametrize(("name", "changes"), VARIANTS)
def test_sleeps_add_up_to_virtual_time(
    name: str, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every epoch ends when virtual time says it does: sums of the same numbers, rounded in another order."""
    check_times(name, changes, given(), tmp_path, monkeypatch)


FOUR_CHUNKS = {"schemes.sealed-coded.workers": 5, "schemes.sealed-coded.threshold": 2}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"timing.seed": 8},
        {"schemes.sealed-coded.masks": False},
        {"schemes.sealed-coded.neighbours": 2},
        {"training.first_epoch_offline": False},
        SHARED,
    ],
)
def test_stages_of_several_chunks_overlap_as_in_virtual_time(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = problem(SIZES, features=60, outputs=3, ridge=RIDGE)
    check_times("sealed-coded", FOUR_CHUNKS | changes, wide, tmp_path, monkeypatch, chunks=4)


def check_times(
    name: str, changes: dict[str, Any], given: Problem, path: Path, monkeypatch: pytest.MonkeyPatch, chunks: int = 1
) -> None:
    """Hold a run on sites that sleep against virtual time."""
    scenario = unlike(name, **changes)
    virtual = runs.execute(scenario, path / "virtual", problem=lambda: given)
    with monkeypatch.context() as patch:
        real = emulated(scenario, path / "emulated", patch, given)
    bound = gamma(roundings(real, chunks), np.float64)
    assert virtual.epochs["time"][-1] > 0
    assert np.all(abs(real.epochs["time"] - virtual.epochs["time"]) <= bound * virtual.epochs["time"])
    assert np.array_equal(*(np.load(run.path / "model.npz")["theta"] for run in (virtual, real)))
    for column in ("replies", "d2d_bits"):
        assert np.array_equal(virtual.epochs[column], real.epochs[column]), column
    if shares(name):
        assert virtual.summary["handovers"] == real.summary["handovers"] > 0


def test_a_shared_channel_counts_on_emulated_links_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one site does not emulate its links, no site tells another that a channel is free."""
    wanted = unlike("sealed-coded", **SHARED)
    sent: dict[bool, int] = {}
    for everyone in (True, False):

        def slow(scenario: Scenario, device: int, everyone: bool = everyone) -> Emulation:
            return Emulation.of_scenario(scenario, device, time_scale=SCALE, links=everyone or device > 0)

        with monkeypatch.context() as patch, fleet(given(), slow=slow, clock=sleeping_clock(patch)) as sites:
            sent[everyone] = 0

            def count(sender: str, recipient: str, payload: bytes, everyone: bool = everyone) -> bytes:
                sent[everyone] += 1
                return payload

            sites.faults.parcel = count
            sites.deploy(wanted, tmp_path / str(everyone), time_scale=SCALE, **ENDLESS)
    assert sent[True] > sent[False] > 0


@pytest.mark.parametrize("channel", ["parallel", "shared"])
@pytest.mark.parametrize("kind", ["altered", "lost"])
def test_nobody_sleeps_for_a_parcel_that_never_comes(
    kind: str, channel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others to the same recipient wait for their turn behind it; they must not wait for ever."""
    with sleepers(monkeypatch) as sites:

        def alter(sender: str, recipient: str, payload: bytes) -> bytes | None:
            if (sender, recipient) != ("device-2", "device-3"):
                return payload
            return flipped(payload) if kind == "altered" else None

        sites.faults.parcel = alter
        with pytest.raises(LostDevicesError, match="before the set-up was over") as error:
            sites.deploy(unlike("sealed-coded", **{"links.d2d_channel": channel}), tmp_path / "run", **ENDLESS)
    assert is_one_sentence(str(error.value))
    assert "device-2 (it could not send to device-3" in str(error.value)
    assert str(error.value).count("could not send") == 1


@pytest.mark.parametrize("channel", ["parallel", "shared"])
def test_nobody_sleeps_for_a_sender_that_is_gone(channel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server notices while the others wait for their turn."""
    with sleepers(monkeypatch) as sites:
        vanish_before_export(sites, "device-2")
        with pytest.raises(LostDevicesError, match=r"device-2 \(no sign of life") as error:
            wanted = unlike("sealed-coded", **{"links.d2d_channel": channel})
            sites.deploy(wanted, tmp_path / "run", patience=30.0, longest=1e9)
    assert is_one_sentence(str(error.value))


def vanish_before_export(sites: InProcessFleet, site: str) -> None:
    def ask(asked: str, tag: int, payload: bytes) -> bytes:
        if asked == site and decode(payload).kind == "carry":
            sites.faults.silent.add(site)
        return payload

    sites.faults.question = ask
