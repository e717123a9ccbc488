"""Deployments that are stopped at the worst moments, and directories that are not theirs to go on with."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.deploy.protocol.wire import decode
from codedfl.deploy.server.deployment import DeploymentOptions, deploy
from codedfl.deploy.site.host import DeviceHost
from codedfl.deploy.site.session import LocalData, Site
from codedfl.errors import LostDevicesError, RunDirectoryError, TrainingError, UsageError
from codedfl.runs import Run
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES
from codedfl.task import Problem, Shard
from codedfl.testing.in_process import any_terms
from contracts.test_engines import EPOCHS, RIDGE, SIZES, chosen, given
from contracts.test_schemes import UNLESS
from deploy.server.test_deployment import devices
from fleets import InProcessFleet, fleet
from rundirs import files, tree
from tiny import is_one_sentence, known, problem, promised_gradient, spied


@pytest.fixture(autouse=True)
def _every_epoch_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)


def model(run: Run) -> np.ndarray:
    return np.load(run.path / "model.npz")["theta"]


def saved_epochs(path: Path) -> int:
    with np.load(path / "checkpoint.npz") as arrays:
        return len(arrays["round_of_epoch"])


class Interrupted:
    """Presses Ctrl-C while the server waits for the answers to a question of some kind, the ``count``-th of it."""

    def __init__(self, sites: InProcessFleet, kind: str, count: int) -> None:
        self._sites, self._kind, self._left, self._lock = sites, kind, count, threading.Lock()
        self._wait = sites.carrier.next
        sites.faults.question = self._note
        sites.carrier.next = self._next  # type: ignore[method-assign]

    def _note(self, site: str, tag: int, payload: bytes) -> bytes:
        with self._lock:
            self._left -= decode(payload).kind == self._kind
        return payload

    def _next(self, timeout: float | None) -> Any:
        delivered = self._wait(timeout)
        if self._left <= 0:
            self._sites.carrier.next = self._wait  # type: ignore[method-assign]
            raise KeyboardInterrupt
        return delivered


def straggling(name: str = "sealed") -> Any:
    """Everybody hands over as soon as it can."""
    return chosen(name, **{f"schemes.{name}.delta": 0.0})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    run = runs.execute(chosen("sealed"), tmp_path_factory.mktemp("virtual") / "run", problem=given)
    return model(run)


@pytest.mark.parametrize(
    ("kind", "count"),
    [("describe", 3), ("prepare", 3), ("export", 2), ("absorb", 1), ("reply", 2), ("export", 6), ("absorb", 2)],
    ids=["describe", "prepare", "set-up", "set-up taken in", "epoch", "hand-over", "hand-over taken in"],
)
def test_a_server_that_is_interrupted_goes_on_to_the_same_model(
    kind: str, count: int, tmp_path: Path, undisturbed: np.ndarray
) -> None:
    """Five send and one takes in the set-up; the sixth export and the second absorb are those of a hand-over."""
    with fleet(given()) as sites:
        Interrupted(sites, kind, count)
        with pytest.raises(KeyboardInterrupt):
            sites.deploy(straggling(), tmp_path / "run")
        while sites.carrier.next(None) is not None:
            pass  # a question that were still on its way would come to sites of the next run
        in_training = (tmp_path / "run/checkpoint.npz").exists()
        assert in_training == ((kind, count) in (("reply", 2), ("export", 6), ("absorb", 2)))
        run = sites.deploy(straggling(), tmp_path / "run")
    assert np.array_equal(model(run), undisturbed), "sharing changes the time, not the model"
    assert run.epochs["epoch"].tolist() == list(range(1, EPOCHS + 1))
    assert run.summary["deployment"]["lost"] == {}


@pytest.mark.parametrize("kind", ["export", "absorb"])
def test_a_device_that_dies_in_a_hand_over_stops_the_run_which_goes_on_when_it_is_back(
    kind: str, tmp_path: Path, undisturbed: np.ndarray
) -> None:
    """The epoch before is saved without the hand-over that was not finished."""
    gone: list[str] = []
    with fleet(given()) as sites:

        def die(site: str, tag: int, payload: bytes) -> bytes | None:
            frame = decode(payload)
            if frame.kind == kind and frame.fields["stage"] > 1 and not gone:
                gone.append(site)
            return None if site in gone else payload

        sites.faults.question = die
        with pytest.raises(LostDevicesError, match=r"hand-over|absorbed their parcels") as error:
            sites.deploy(straggling(), tmp_path / "run")
        assert is_one_sentence(str(error.value))
        assert gone[0] in str(error.value)
        assert saved_epochs(tmp_path / "run") == 2
        sites.faults.question = lambda site, tag, payload: payload
        run = sites.deploy(straggling(), tmp_path / "run")
    assert np.array_equal(model(run), undisturbed)


def test_a_resumed_run_that_diverges_keeps_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    diverging = chosen("conventional", **{"training.learning_rate": 30.0, "training.epochs": 30})
    with fleet(given()) as sites:
        Interrupted(sites, "reply", 3 * 6)
        with pytest.raises(KeyboardInterrupt):
            sites.deploy(diverging, tmp_path / "run", check=False)
        while sites.carrier.next(None) is not None:
            pass
        before = tree(tmp_path / "run")
        assert files(tmp_path / "run") == {"scenario.toml", "checkpoint.npz", "deployment.json"}
        monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", 1e9)
        with pytest.raises(TrainingError, match="diverged"):
            sites.deploy(diverging, tmp_path / "run", check=False)
    assert tree(tmp_path / "run") == before


class Killed(BaseException):
    """The server is gone."""


CHECKED = ("coded-padded", "sealed-coded")
"""Spare replies check epochs of these; the last ones, whose late replies are still awaited, are not saved."""


def killed(sites: InProcessFleet, scenario: Scenario, path: Path, *, after: int, **options: Any) -> None:
    """Run until the server dies when so many epochs are behind it and, where nothing can show them wrong, saved."""

    def kill(stage: str, done: int, total: int) -> None:
        if stage.startswith("training") and done == after + 1:
            raise Killed

    conditions = DeploymentOptions(test=False, clock=sites.clock, **options)
    with pytest.raises(Killed):
        deploy(scenario, sites.carrier, sites.sites, path, options=conditions, check=sites.given, progress=kill)
    with np.load(path / "checkpoint.npz") as arrays:
        saved = len(arrays["round_of_epoch"])
    assert saved == after or (scenario.scheme in CHECKED and saved < after)


REPEATABLE = [
    pytest.param(name, marks=UNLESS) if name == "he" else name
    for name, scheme in SCHEMES.items()
    if not scheme.follows_timing
]


@pytest.mark.parametrize("name", REPEATABLE)
@pytest.mark.parametrize("stop", [1, 4])
def test_a_killed_server_goes_on_and_ends_with_the_same_model(name: str, stop: int, tmp_path: Path) -> None:
    """To the last bit; stragglers may have handed over before, as soon as there are reply times to judge by."""
    scenario, made = chosen(name), given()
    with fleet(made) as sites:
        whole = sites.deploy(scenario, tmp_path / "whole", seeded_keys=True)
        killed(sites, scenario, tmp_path / "run", after=stop, seeded_keys=True)
        run = sites.deploy(scenario, tmp_path / "run", seeded_keys=True)
    assert np.array_equal(model(run), model(whole))
    for column in ("epoch", "accuracy", "loss", "gradient_norm", "gradient_error", "up_bits", "d2d_bits"):
        assert np.array_equal(run.epochs[column], whole.epochs[column], equal_nan=True), column
    assert (np.diff(run.epochs["time"]) >= 0).all()
    table = devices(run.path)
    rows = list(zip(table["epoch"], table["question"], table["device"], strict=True))
    assert len(set(rows)) == len(rows), "an epoch that was asked again stands there once"
    assert set(table["epoch"]) == ({1} if known(name).sums else set(range(1, EPOCHS + 1)))


@pytest.mark.parametrize("name", [name for name, scheme in SCHEMES.items() if scheme.follows_timing])
def test_a_killed_server_goes_on_where_models_follow_the_timing(name: str, tmp_path: Path) -> None:
    """With the same epochs behind it, open questions put again, and every epoch once."""
    with fleet(given()) as sites:
        killed(sites, chosen(name), tmp_path / "run", after=3)
        with np.load(tmp_path / "run/checkpoint.npz") as arrays:
            before = arrays["column_gradient_norm"].tolist()
        run = sites.deploy(chosen(name), tmp_path / "run")
    assert run.epochs["epoch"].tolist() == list(range(1, EPOCHS + 1))
    assert run.epochs["gradient_norm"][: len(before)].tolist() == before
    assert run.summary["deployment"]["lost"] == {}


@pytest.mark.parametrize("name", ["sealed", "code-based"])
def test_hand_overs_are_done_again_when_a_run_goes_on(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody hands over as soon as it can; then the server dies, and sites are prepared anew.

    Gradients are as exact as the scheme promises, before and after, and the model follows them to the last bit.
    """
    scenario, made = chosen(name, **{f"schemes.{name}.delta": 0.0}), given()
    still = runs.execute(chosen(name), tmp_path / "virtual", problem=lambda: made)
    seen = spied(monkeypatch, scenario)
    with fleet(made) as sites:
        killed(sites, scenario, tmp_path / "run", after=3)
        del seen[3:]  # what was done after the last save is done again
        with np.load(tmp_path / "run/checkpoint.npz") as arrays:
            assert len(arrays["transfers"]) > 0
        run = sites.deploy(scenario, tmp_path / "run")
    assert [epoch.epoch for epoch in seen] == list(range(1, EPOCHS + 1))
    scheme, theta = schemes.create(scenario, made), np.zeros(made.shape)
    for epoch in seen:
        expected, bound = promised_gradient(scheme, made.shards, seen[: epoch.epoch])
        assert np.all(abs(epoch.gradient - expected) <= bound)
        theta = theta - scenario.training.learning_rate * (epoch.gradient + made.ridge * theta)
    assert np.array_equal(model(run), theta)
    if name == "sealed":
        assert np.array_equal(model(run), model(still)), "sharing changes the time, not the model"
        assert np.array_equal(run.epochs["gradient_error"], still.epochs["gradient_error"])


# directories


def stopped(sites: InProcessFleet, path: Path) -> None:
    Interrupted(sites, "reply", 3 * 6)
    with pytest.raises(KeyboardInterrupt):
        sites.deploy(chosen("conventional"), path)
    assert saved_epochs(path) == 2


def refused(action: Callable[[], object], words: str) -> None:
    with pytest.raises(RunDirectoryError, match=words) as error:
        action()
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize("finished", [True, False])
def test_a_directory_of_virtual_time_is_none_for_sites(finished: bool, tmp_path: Path) -> None:
    if finished:
        runs.execute(chosen("conventional"), tmp_path / "run", problem=given)
    else:

        def kill(stage: str, done: int, total: int) -> None:
            if stage.startswith("training") and done == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            runs.execute(chosen("conventional"), tmp_path / "run", problem=given, progress=kill)
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.name != ".lock"}
    with fleet(given()) as sites:
        refused(lambda: sites.deploy(chosen("conventional"), tmp_path / "run"), "holds a run of virtual time")
        assert sites.recording.sent == [], "nobody was asked"
    assert {path: path.read_bytes() for path in before} == before
    runs.execute(chosen("conventional"), tmp_path / "run", problem=given)


@pytest.mark.parametrize("finished", [True, False])
def test_a_directory_of_sites_is_none_for_virtual_time(finished: bool, tmp_path: Path) -> None:
    with fleet(given()) as sites:
        if finished:
            sites.deploy(chosen("conventional"), tmp_path / "run")
        else:
            stopped(sites, tmp_path / "run")
        words = "holds a run of a deployment on sites"
        refused(lambda: runs.execute(chosen("conventional"), tmp_path / "run", problem=given), words)
        refused(lambda: runs.finished(chosen("conventional"), tmp_path / "run"), words)
        run = sites.deploy(chosen("conventional"), tmp_path / "run")
    assert runs.finished(chosen("conventional"), tmp_path / "run", on_sites=True)
    assert runs.load(run.path).scenario == chosen("conventional"), "it can be read like any other"


def replaced(sites: InProcessFleet, data: Problem) -> None:
    """Let every site hold other data from now on."""
    for site, shard in zip(sites.sites, data.shards, strict=True):
        local_data = LocalData(shard, "classification", ("a", "b", "c"))
        own = Site(site, lambda scenario, local_data=local_data: local_data, agreement=any_terms(sites.sites))
        sites.carrier.attach(site, DeviceHost(own, sites.carrier.peers(site)))


@pytest.mark.parametrize("change", ["order", "samples", "bounds", "time scale"])
def test_a_run_goes_on_with_the_same_sites_and_data_only(change: str, tmp_path: Path) -> None:
    conditions: dict[str, Any] = {}
    with fleet(given()) as sites:
        stopped(sites, tmp_path / "run")
        before, kept = sites.sites, given()
        if change == "order":
            sites.sites = (*before[1:], before[0])
            replaced(sites, kept)  # owners have agreed to the new order, too
        elif change == "samples":
            replaced(sites, problem([8, *SIZES[1:]], features=12, outputs=3, ridge=RIDGE))
        elif change == "bounds":
            first = Shard(8 * kept.shards[0].x, kept.shards[0].y)
            replaced(sites, Problem((first, *kept.shards[1:]), kept.x_test, kept.y_test, kept.kind, kept.ridge))
        else:
            conditions["time_scale"] = 0.5
        refused(
            lambda: sites.deploy(chosen("conventional"), tmp_path / "run", check=False, **conditions),
            "other sites, with other data or another time_scale",
        )
        sites.sites = before
        replaced(sites, kept)
        run = sites.deploy(chosen("conventional"), tmp_path / "run", check=False)
        assert np.array_equal(model(run), model(sites.deploy(chosen("conventional"), tmp_path / "whole")))


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    with fleet(given()) as sites:
        stopped(sites, tmp_path / "run")
        with np.load(tmp_path / "run/checkpoint.npz") as arrays:
            left = {name: arrays[name] for name in arrays if name != "kept_macs"}
        np.savez(tmp_path / "run/checkpoint.npz", **left)
        refused(lambda: sites.deploy(chosen("conventional"), tmp_path / "run"), "damaged")


# what must not begin


def test_encryption_that_is_only_modelled_is_refused(tmp_path: Path) -> None:
    """It computes in clear, in messages of the same sizes: what it is for is virtual time."""
    scenario = chosen("he", **{"schemes.he.backend": "costs"})
    with fleet(given()) as sites:
        with pytest.raises(UsageError, match=r"encrypt nothing; set schemes.he.backend = 'ckks'") as error:
            sites.deploy(scenario, tmp_path / "run")
        assert {decode(payload).kind for _, payload in sites.recording.sent} == {"describe"}
        assert sites.recording.relayed == []
    assert is_one_sentence(str(error.value))
    assert not (tmp_path / "run").exists()
    runs.execute(scenario, tmp_path / "virtual", problem=given)


@pytest.mark.parametrize(
    "terms",
    [{"patience": 0.0}, {"patience": 10.0, "longest": 5.0}, {"time_scale": -1.0}, {"ready_seconds": np.inf}],
    ids=str,
)
def test_conditions_that_cannot_be_are_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as error:
        DeploymentOptions(**terms)
    assert is_one_sentence(str(error.value))
