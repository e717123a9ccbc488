"""Devices that come back, and runs that are resumed without some: what workers have kept, and what is left to lose."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from codedfl.deploy.protocol.keeping import KEPT, SECRET
from codedfl.deploy.protocol.wire import decode
from codedfl.deploy.server import sessions
from codedfl.deploy.server.board import Board
from codedfl.deploy.server.channel import Channel
from codedfl.deploy.site.host import DeviceHost
from codedfl.errors import LostDevicesError, ReturnedDevicesError
from codedfl.runs import Run
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from contracts.test_engines import EPOCHS, chosen, given
from fleets import InProcessFleet, fleet
from tiny import is_one_sentence

CODED = {"schemes.sealed-coded.workers": 4, "schemes.sealed-coded.threshold": 2}


@pytest.fixture(autouse=True)
def _every_epoch_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(sessions, "_LOOK_SECONDS", 0.0)


def coded(**changes: object) -> Scenario:
    return chosen("sealed-coded", **CODED | changes)


def model(run: Run) -> np.ndarray:
    return np.load(run.path / "model.npz")["theta"]


def virtual(scenario: Scenario, folder: Path) -> np.ndarray:
    return model(runs.execute(scenario, folder / "virtual", problem=given))


@contextmanager
def struck(sites: InProcessFleet, happens: dict[int, Callable[[], None]]) -> Iterator[None]:
    """Let something happen when the first question of an epoch goes out."""
    left = dict(happens)

    def note(site: str, tag: int, payload: bytes) -> bytes | None:
        frame = decode(payload)
        if frame.kind == "reply" and (now := left.pop(frame.fields["epoch"], None)) is not None:
            now()
        return None if site in sites.faults.silent | sites.faults.unreachable else payload

    sites.faults.question = note
    yield
    sites.faults.question = lambda site, tag, payload: payload


def restart(sites: InProcessFleet, *names: str) -> None:
    """Let another process take the place of sites; files stay."""
    for name in names:
        sites.carrier.attach(name, DeviceHost(sites.owned[name], sites.carrier.peers(name)))
        sites.faults.unreachable.discard(name)


def stop(path: Path, sites: InProcessFleet, scenario: Scenario) -> None:
    """Let the server die in epoch 4."""

    class Dead(BaseException):
        pass

    wait, dead = sites.carrier.next, []

    def next_one(timeout: float | None) -> object:
        if dead:
            raise Dead
        return wait(timeout)

    sites.carrier.next = next_one  # type: ignore[method-assign]
    with struck(sites, {4: lambda: dead.append(True)}), pytest.raises(Dead):
        sites.deploy(scenario, path)
    sites.carrier.next = wait  # type: ignore[method-assign]
    while sites.carrier.next(None) is not None:
        pass


def test_a_dead_server_goes_on_with_any_workers_that_are_enough(tmp_path: Path) -> None:
    """Two of four workers have their blocks, the others and all processes are gone: nothing is sealed again."""
    wanted, path = coded(), tmp_path / "run"
    with fleet(given(), folder=tmp_path / "sites") as sites:
        stop(path, sites, wanted)
        kept = sorted(file.parents[2].name for file in (tmp_path / "sites").rglob(KEPT))
        assert len(kept) == 4
        assert (path / SECRET).stat().st_mode & 0o077 == 0
        sites.restart()
        sites.faults.unreachable |= {*sites.sites} - {*kept[:2]}
        sites.recording.relayed.clear()
        run = sites.deploy(wanted, path)
        assert not sites.recording.relayed
        assert np.array_equal(model(run), virtual(wanted, tmp_path))
        assert set(run.summary["deployment"]["lost"]) == {*sites.sites} - {*kept[:2]}
        assert (run.summary["survives_losses"], run.summary["survives_losses_left"]) == (2, 0)
        assert not (path / SECRET).exists()
        assert sorted(file.parents[2].name for file in (tmp_path / "sites").rglob(KEPT)) == kept[2:], "of the absent"


def test_fewer_workers_than_are_needed_stop_in_words_until_all_are_back(tmp_path: Path) -> None:
    wanted, path = coded(), tmp_path / "run"
    with fleet(given(), folder=tmp_path / "sites") as sites:
        stop(path, sites, wanted)
        kept = sorted(file.parents[2].name for file in (tmp_path / "sites").rglob(KEPT))
        sites.faults.unreachable |= {*kept[1:]}
        with pytest.raises(LostDevicesError, match="cannot be reached, and a resumed run needs their parcels") as error:
            sites.deploy(wanted, path)
        assert is_one_sentence(str(error.value))
        sites.faults.unreachable.clear()
        for file in (tmp_path / "sites").rglob(KEPT):
            file.write_bytes(file.read_bytes()[:-1] + b"?")
        assert np.array_equal(model(sites.deploy(wanted, path)), virtual(wanted, tmp_path))


def test_a_worker_that_comes_back_is_refilled_from_the_code(tmp_path: Path) -> None:
    """All six are workers; two are killed in epoch 2 and started again, without their files, in epoch 4."""
    wanted = coded(**{"schemes.sealed-coded.workers": 6, "schemes.sealed-coded.threshold": 3})
    with fleet(given(), folder=tmp_path / "sites") as sites:
        sites.faults.returns = True
        two = sites.sites[:2]

        def back() -> None:
            for site in two:
                for file in (tmp_path / "sites" / site).rglob(KEPT):
                    file.unlink()
            restart(sites, *two)

        with struck(sites, {2: lambda: sites.faults.unreachable.update(two), 4: back}):
            run = sites.deploy(wanted, tmp_path / "run")
    assert np.array_equal(model(run), virtual(wanted, tmp_path))
    assert run.summary["deployment"]["lost"] == {}
    left = run.epochs["losses_left"].tolist()
    assert (left[0], left[-1]) == (3, 3)


@pytest.mark.parametrize("name", ["conventional", "minibatch", "secagg", "sealed"])
def test_a_device_that_comes_back_in_time_computes_from_its_own_data(name: str, tmp_path: Path) -> None:
    wanted = chosen(name)
    with fleet(given(), folder=tmp_path / "sites") as sites:
        sites.faults.returns = True
        one = sites.sites[1]

        def die() -> None:
            sites.faults.unreachable.add(one)
            restart(sites, one)
            sites.faults.unreachable.add(one)

        present = sites.carrier.present

        def start(names: object, timeout: float) -> object:
            sites.faults.unreachable.clear()
            return present(names, timeout)  # type: ignore[arg-type]

        sites.carrier.present = start  # type: ignore[method-assign,assignment]
        with struck(sites, {3: die}):
            run = sites.deploy(wanted, tmp_path / "run")
    assert run.summary["deployment"]["lost"] == {}
    if name != "secagg":
        assert np.array_equal(model(run), virtual(wanted, tmp_path))
    assert run.summary["epochs"] == EPOCHS


def test_a_site_that_comes_and_goes_is_let_in_a_few_times_only() -> None:
    with fleet(given()) as sites:
        sites.faults.returns = True
        channel = Channel(sites.carrier, sites.sites, clock=sites.clock)
        returns = sessions.Returns(channel, sites.carrier, Board(sites.sites), 0.0)
        let_in = []
        for _ in range(8):
            channel.mark_lost(1, "it cannot be reached", silent=True)
            let_in.append(returns.awaited(ReturnedDevicesError("it is back")))
        channel.mark_lost(2, "its reply is unreadable")
        assert let_in == [True] * 5 + [False] * 3
        assert returns.seen() == [], "one that has sent nonsense stays out"
