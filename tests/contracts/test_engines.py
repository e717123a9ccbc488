"""What engines owe each other: the same run in virtual time and on sites behind bytes, for every scheme."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.deploy.server.remote import RemoteEngine
from codedfl.engines.virtual import VirtualEngine
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES, Round, layout
from codedfl.task import Problem
from contracts.test_schemes import UNLESS, wanted
from fleets import fleet
from tiny import problem, promised_gradient, shares, spied

SIZES = [9, 7, 8, 3, 9, 8]
DEVICES = [{"count": 2, "mac_rate": 25e6}, {"count": 2, "mac_rate": 5e6}, {"count": 2, "mac_rate": 1.25e6}]
EPOCHS = 6
RIDGE = 0.01
NAMES = [pytest.param(name, marks=UNLESS) if name == "he" else name for name in SCHEMES]


def chosen(name: str, **changes: Any) -> Scenario:
    """The scheme's small options on six devices; nobody straggles, so that nothing follows from who is quick."""
    settings: dict[str, Any] = {"fleet.devices": DEVICES, "training.epochs": EPOCHS}
    settings |= {"task.precision": "float64", "task.ridge": RIDGE}
    if shares(name):
        settings[f"schemes.{name}.delta"] = 1e9
    return wanted(name).with_settings(settings | changes)


def given() -> Problem:
    return problem(SIZES, features=12, outputs=3, ridge=RIDGE)


@pytest.fixture
def everyone_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every question wait for all who are asked, so that a model cannot follow the timing."""
    for engine in (VirtualEngine, RemoteEngine):
        ask = engine.ask

        def patient(self: Any, question: Round, *, offline: bool, ask: Any = ask) -> Any:
            everyone = dataclasses.replace(question, deadline=None, quorum=len(question.requests))
            return ask(self, everyone, offline=offline)

        monkeypatch.setattr(engine, "ask", patient)


@pytest.mark.usefixtures("everyone_replies")
@pytest.mark.parametrize("name", NAMES)
def test_sites_behind_bytes_train_the_model_of_virtual_time(name: str, tmp_path: Path) -> None:
    """To the last bit: rings are exact, floats are added in the order of the devices, and keys have the same seed."""
    made = given()
    virtual = runs.execute(chosen(name), tmp_path / "virtual", problem=lambda: made)
    with fleet(made) as sites:
        real = sites.deploy(chosen(name), tmp_path / "real", seeded_keys=True)
    assert np.array_equal(*(np.load(run.path / "model.npz")["theta"] for run in (virtual, real)))
    for column in ("accuracy", "loss", "gradient_norm", "gradient_error", "replies", "d2d_bits"):
        assert np.array_equal(virtual.epochs[column], real.epochs[column], equal_nan=True), column
    later = slice(1, None)  # the first epoch is computed beforehand in virtual time only
    for column in ("down_bits", "up_bits", "device_macs", "server_macs"):
        assert np.array_equal(virtual.epochs[column][later], real.epochs[column][later]), column
    assert real.summary["deployment"]["lost"] == {}
    assert real.summary["deployment"]["refusals"] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_run_on_sites_keeps_its_promises_whoever_is_quick(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads reply in any order, and stragglers hand over; gradients are exact where that is promised."""
    made = given()
    scenario = chosen(name, **({f"schemes.{name}.delta": 0.0} if shares(name) else {}))
    seen = spied(monkeypatch, scenario)
    with fleet(made) as sites:
        run = sites.deploy(scenario, tmp_path / "run")
    assert run.summary["epochs"] == len(seen) == EPOCHS
    if scenario.training.solver == "gradient-descent":
        model = np.zeros(made.shape)
        for epoch in seen:
            model = model - 0.1 * (epoch.gradient + made.ridge * model)
        assert np.array_equal(np.load(run.path / "model.npz")["theta"], model)
    if schemes.nominal(scenario).exact:
        scheme = schemes.create(scenario, made)
        for epoch in seen:
            expected, bound = promised_gradient(scheme, made.shards, seen[: epoch.epoch])
            assert np.all(abs(epoch.gradient - expected) <= bound)
    if shares(name):
        assert run.summary["handovers"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_replies_look_as_the_server_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that trusts nobody can refuse what does not fit only if the scheme says what does."""
    asked: list[Round] = []
    ask = RemoteEngine.ask

    def noted(self: RemoteEngine, question: Round, *more: Any, **others: Any) -> Any:
        answer = ask(self, question, *more, **others)
        asked.append(question)
        for reply in answer.replies:
            if not question.standing:
                assert question.expected is not None
                assert layout(reply.message) == question.expected[reply.device]
        return answer

    monkeypatch.setattr(RemoteEngine, "ask", noted)
    with fleet(given()) as sites:
        sites.deploy(chosen(name), tmp_path / "run", check=False)
    assert len(asked) >= EPOCHS
