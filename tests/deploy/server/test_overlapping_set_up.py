"""Sites whose set-up overlaps: the model of virtual time whatever is late, and one sentence whatever is lost."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.deploy.server import sessions
from codedfl.deploy.server.deployment import DeploymentOptions, deploy
from codedfl.deploy.server.remote import SET_UP
from codedfl.errors import LostDevicesError
from codedfl.runs import Run
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.task import Problem
from codedfl.testing.small import problem
from contracts.test_engines import DEVICES, RIDGE
from contracts.test_schemes import wanted
from deploy.server.faults.test_parcels import flipped
from fleets import InProcessFleet, fleet
from tiny import is_one_sentence

CHUNKS = 4
SENT = 5 + CHUNKS * (5 + 4)
"""A device sends five keys, and in each chunk five pieces and at least four parts."""


def given() -> Problem:
    return problem([4, 5, 6, 4, 5, 6], features=60, outputs=3, ridge=RIDGE)


def chosen(**changes: Any) -> Scenario:
    own = {"schemes.sealed-coded.workers": 5, "schemes.sealed-coded.threshold": 2, "fleet.devices": DEVICES}
    task = {"training.epochs": 3, "task.precision": "float64", "task.ridge": RIDGE}
    return wanted("sealed-coded").with_settings(own | task | changes)


def model(run: Run) -> np.ndarray:
    return np.load(run.path / "model.npz")["theta"]


@pytest.fixture(scope="module")
def virtual(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return runs.execute(chosen(), tmp_path_factory.mktemp("virtual") / "run", problem=given)


def check(run: Run, virtual: Run) -> None:
    assert np.array_equal(model(run), model(virtual))
    assert run.summary["deployment"]["lost"] == {}
    assert run.epochs["d2d_bits"].tolist() == virtual.epochs["d2d_bits"].tolist()


def asked(sites: InProcessFleet) -> Counter[str]:
    return Counter(decode(payload).kind for _, payload in sites.recording.sent)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_late_the_model_and_the_costs_are_those_of_virtual_time(
    seed: int, tmp_path: Path, virtual: Run
) -> None:
    """Every request, parcel and receipt of every site takes a random time, some of them long beside the others."""
    draws, one_at_a_time = random.Random(seed), threading.Lock()
    slow = draws.choice([f"device-{number}" for number in range(1, 7)])

    def late(site: str) -> None:
        with one_at_a_time:
            seconds = draws.expovariate(1 / 0.002) * (10 if site == slow else 1)
        time.sleep(min(seconds, 0.1))

    def parcel(sender: str, recipient: str, payload: bytes) -> bytes:
        late(draws.choice([sender, recipient]))
        return payload

    def question(site: str, tag: int, payload: bytes) -> bytes:
        late(site)
        return payload

    with fleet(given()) as sites:
        sites.faults.parcel, sites.faults.question = parcel, question
        check(sites.deploy(chosen(), tmp_path / "run"), virtual)
        kinds = asked(sites)
    assert (kinds["carry"], kinds["export"], kinds["absorb"]) == (6, 0, 0)


def test_parcels_that_come_before_the_request_of_the_server_wait_for_it(tmp_path: Path, virtual: Run) -> None:
    """The others send the last site all that they can, keys and with masks nothing more, before it hears of it."""
    arrived = threading.Semaphore(0)

    def parcel(sender: str, recipient: str, payload: bytes) -> bytes:
        if recipient == "device-6":
            arrived.release()
        return payload

    def question(site: str, tag: int, payload: bytes) -> bytes:
        if site == "device-6" and decode(payload).kind == "carry":
            for _ in range(5):
                assert arrived.acquire(timeout=60)
        return payload

    with fleet(given()) as sites:
        sites.faults.parcel, sites.faults.question = parcel, question
        check(sites.deploy(chosen(), tmp_path / "run"), virtual)


def test_the_board_shows_the_set_up_while_parcels_are_on_their_way(tmp_path: Path) -> None:
    """Whether stages overlap or follow each other."""
    shown: list[str] = []
    apart = chosen(**{"schemes.sealed-coded.overlap": False})
    with fleet(given()) as sites:
        for scenario, place in ((chosen(), "run"), (apart, "apart")):
            shown.clear()
            deploy(
                scenario,
                sites.carrier,
                sites.sites,
                tmp_path / place,
                options=DeploymentOptions(test=False, clock=sites.clock),
                show=lambda board: shown.append(board["stage"]),
            )
            stages = [stage for stage, _ in groupby(shown)]
            assert stages[stages.index("preparing sites") + 1 :][:2] == [SET_UP, "training sealed-coded"]


def test_without_masks_a_site_may_have_to_hold_the_pieces_of_all_chunks(tmp_path: Path) -> None:
    arrived = threading.Semaphore(0)

    def parcel(sender: str, recipient: str, payload: bytes) -> bytes:
        if recipient == "device-6":
            arrived.release()
        return payload

    def question(site: str, tag: int, payload: bytes) -> bytes:
        if site == "device-6" and decode(payload).kind == "carry":
            for _ in range(CHUNKS * 5):
                assert arrived.acquire(timeout=60)
        return payload

    unmasked = chosen(**{"schemes.sealed-coded.masks": False})
    with fleet(given()) as sites:
        sites.faults.parcel, sites.faults.question = parcel, question
        check(
            sites.deploy(unmasked, tmp_path / "run"),
            runs.execute(unmasked, tmp_path / "virtual", problem=given),
        )


def struck(sites: InProcessFleet, number: int, strike: Callable[[bytes], bytes | None]) -> Callable[[], None]:
    """Let something happen to the parcels of a site from that number on; return what ends it."""
    counted, one_at_a_time = [0], threading.Lock()

    def parcel(sender: str, recipient: str, payload: bytes) -> bytes | None:
        if sender != "device-3":
            return payload
        with one_at_a_time:
            counted[0] += 1
            return payload if counted[0] <= number else strike(payload)

    def end() -> None:
        sites.faults.silent.clear()
        sites.faults.parcel = lambda sender, recipient, payload: payload

    sites.faults.parcel = parcel
    return end


PLACES = [0, 3, 5, 7, 11, 16, 20, 25, 30, 35, SENT - 1]
"""Parcels of all kinds and chunks are among those from there on."""


@pytest.mark.parametrize("number", PLACES)
def test_a_site_that_dies_anywhere_in_the_set_up_is_named_and_all_begin_again_with_fresh_keys(
    number: int, tmp_path: Path, virtual: Run
) -> None:
    with fleet(given()) as sites:

        def die(payload: bytes) -> None:
            sites.faults.silent.add("device-3")

        end = struck(sites, number, die)
        with pytest.raises(LostDevicesError, match="were gone before the set-up was over") as error:
            sites.deploy(chosen(), tmp_path / "run")
        assert is_one_sentence(str(error.value))
        assert "lost: device-3 (no sign of life" in str(error.value)
        assert str(error.value).count("(") == 2, "nobody else is lost"
        first = {payload for _, _, payload in sites.recording.relayed}
        end()
        check(sites.deploy(chosen(), tmp_path / "run"), virtual)
        again = [payload for _, _, payload in sites.recording.relayed][len(first) :]
        assert not first & {*again}


@pytest.mark.parametrize("number", PLACES)
@pytest.mark.parametrize("kind", ["altered", "lost"])
def test_a_link_that_fails_anywhere_in_the_set_up_is_named(
    kind: str, number: int, tmp_path: Path, virtual: Run
) -> None:
    with fleet(given()) as sites:
        end = struck(sites, number, lambda payload: flipped(payload) if kind == "altered" else None)
        with pytest.raises(LostDevicesError, match="were gone before the set-up was over") as error:
            sites.deploy(chosen(), tmp_path / "run")
        assert is_one_sentence(str(error.value))
        assert "lost: device-3 (it could not send to device-" in str(error.value)
        assert str(error.value).count("could not send") == 1
        end()
        check(sites.deploy(chosen(), tmp_path / "run"), virtual)


@pytest.mark.parametrize("number", PLACES[::3])
def test_parcels_brought_again_are_refused_and_change_nothing(number: int, tmp_path: Path, virtual: Run) -> None:
    """The relay brings an old parcel of the same sender to the same recipient once, so the right one is sent again."""
    seen: dict[tuple[str, str], bytes] = {}
    counted, one_at_a_time, swapped = [0], threading.Lock(), []

    def parcel(sender: str, recipient: str, payload: bytes) -> bytes:
        with one_at_a_time:
            counted[0] += 1
            old = seen.setdefault((sender, recipient), payload)
            if counted[0] > number and old is not payload and not swapped:
                swapped.append(sender)
                return old
            return payload

    with fleet(given()) as sites:
        sites.faults.parcel = parcel
        check(sites.deploy(chosen(), tmp_path / "run"), virtual)
    assert swapped


def test_a_site_that_comes_back_in_time_lets_the_set_up_begin_again_by_itself(
    tmp_path: Path, virtual: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_LOOK_SECONDS", 0.0)
    with fleet(given()) as sites:
        sites.faults.returns = True
        ends: list[Callable[[], None]] = []

        def die(payload: bytes) -> None:
            sites.faults.silent.add("device-3")

        ends.append(struck(sites, 20, die))
        present = sites.carrier.returned

        def returned(names: Any) -> Any:
            ends[0]()
            return present(names)

        sites.carrier.returned = returned  # type: ignore[method-assign]
        run = sites.deploy(chosen(), tmp_path / "run", return_seconds=60.0)
        assert asked(sites)["carry"] == 12
    assert np.array_equal(model(run), model(virtual))


@pytest.mark.parametrize("name", ["macs", "bits", "absorb_macs", "absorb_beforehand", "working_seconds"])
def test_costs_that_are_not_those_of_all_parcels_are_refused(name: str, tmp_path: Path) -> None:
    def reply(site: str, tag: int, payload: bytes) -> list[bytes]:
        frame = decode(payload)
        if site != "device-4" or "absorb_macs" not in frame.fields:
            return [payload]
        wrong = None if name == "working_seconds" else frame.fields[name][:-1]
        return [encode(Frame(frame.kind, {**frame.fields, name: wrong}))]

    with fleet(given()) as sites:
        sites.faults.reply = reply
        with pytest.raises(LostDevicesError, match=r"lost: device-4 \(its reply lacks valid costs\)"):
            sites.deploy(chosen(), tmp_path / "run")


def test_parcels_that_are_long_on_their_way_have_not_vanished(tmp_path: Path, virtual: Run) -> None:
    """The server asks several times who misses what, and everyone goes on waiting."""
    looked, counted = threading.Semaphore(0), [0]

    def question(site: str, tag: int, payload: bytes) -> bytes:
        if decode(payload).kind == "progress":
            looked.release()
        return payload

    with fleet(given()) as sites:

        def parcel(sender: str, recipient: str, payload: bytes) -> bytes:
            counted[0] += sender == "device-3"
            if sender == "device-3" and counted[0] in PLACES[1::3]:
                with sites.carrier.at_rest():  # the clock of the server goes on
                    for _ in range(3):
                        assert looked.acquire(timeout=60)
            return payload

        sites.faults.parcel, sites.faults.question = parcel, question
        check(sites.deploy(chosen(), tmp_path / "run", patience=30.0, longest=1e9), virtual)
