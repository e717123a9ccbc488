"""Linear growth in the number of devices, held by counting: devices made, key agreements, messages and bytes."""

import tracemalloc
from typing import Any

import pytest

from codedfl import schemes
from codedfl.cipher.masks.graph import COMPLETE
from codedfl.cipher.masks.pairwise import AgreementKey
from codedfl.errors import ScenarioError
from codedfl.scenario import Scenario
from codedfl.studies.plan import Costs, Shapes, plan, predict, probe
from codedfl.studies.plan import costs as plan_costs
from rundirs import small
from tiny import problem, trained

OPTIONS: dict[str, dict[str, Any]] = {
    "code-based": {"n": 60, "degree": 3, "t_tot": 12, "t": 6, "M": 4, "beta": 2},
    "he": {"backend": "costs"},
}
COUNTED = ("conventional", "minibatch", "drop-slowest", "deadline", "asynchronous", "sealed", "code-based", "he")
COUNTED += ("secagg", "one-shot")


def many(name: str, devices: int, changes: dict[str, Any] | None = None) -> Scenario:
    own = {"scheme": name, f"schemes.{name}": OPTIONS.get(name, {}), "training.solver": "gradient-descent"}
    return small({**own, **(changes or {})}).with_devices(devices)


def shapes(devices: int) -> Shapes:
    return Shapes((6,) * (devices // 2) + (7,) * (devices - devices // 2), features=30, outputs=3)


def probed(name: str, devices: int) -> Costs:
    wanted = many(name, devices)
    return probe(wanted, shapes(devices).hollow(wanted))


class _Calls:
    """Counts calls of a method."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.count, original = 0, getattr(owner, name)

        def called(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            return original(*arguments, **options)

        patch.setattr(owner, name, called)


@pytest.mark.parametrize("name", COUNTED)
def test_a_plan_makes_as_many_devices_for_any_fleet(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of two kinds here, and a few that hand over; a cohort that opens sums makes none at all."""
    made = _Calls(monkeypatch, schemes.SCHEMES[name], "device")
    counts = []
    for devices in (300, 600):
        made.count = 0
        probed(name, devices)
        counts.append(made.count)
    assert counts[0] == counts[1] <= 10


@pytest.mark.parametrize("name", COUNTED)
def test_memory_of_a_plan_grows_with_the_fleet_at_most(name: str) -> None:
    """Twice the devices take at most twice the bytes, and what does not grow."""

    def peak(devices: int) -> int:
        wanted = many(name, devices)
        tracemalloc.start()
        predict(probe(wanted, shapes(devices).hollow(wanted)), wanted, epochs=6, draws=2)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(300)  # what is loaded and cached on first use
    small_fleet, large_fleet = peak(600), peak(1200)
    assert large_fleet < 2.2 * small_fleet


@pytest.mark.parametrize("name", ["secagg", "one-shot"])
def test_a_device_agrees_on_as_many_keys_in_any_fleet(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two agreements with each of eight neighbours in a sum, for envelopes and for masks."""
    agreed = _Calls(monkeypatch, AgreementKey, "agree")
    for devices in (20, 40):
        agreed.count = 0
        changes = {f"schemes.{name}.neighbours": 8, "training.epochs": 1}
        trained(problem((3,) * devices, features=4, outputs=2), many(name, devices, changes))
        assert agreed.count == devices * 2 * 8


@pytest.mark.parametrize("name", ["secagg", "one-shot"])
def test_a_fleet_with_circles_costs_what_is_planned(name: str) -> None:
    devices = 40
    wanted = many(
        name, devices, {f"schemes.{name}.neighbours": 8, "training.epochs": 3, "training.learning_rate": 1e-3}
    )
    real = trained(problem((6,) * devices, features=30, outputs=3, dtype="float32"), wanted).history
    given = Shapes((6,) * devices, features=30, outputs=3)
    found = probe(wanted, given.hollow(wanted)).history(3)
    assert found.round_of_epoch == real.round_of_epoch
    assert [costs.key() for costs in found.rounds] == [costs.key() for costs in real.rounds]


def test_large_fleets_have_circles_unless_told_otherwise() -> None:
    large = many("secagg", COMPLETE + 1)
    scheme = schemes.create(large, shapes(COMPLETE + 1).hollow(large))
    words = scheme.allowed_if
    assert "at most 21 devices collude with it, at most 10 if it deviates" in words
    assert scheme.survives_losses == 65 - 44


def test_what_would_not_fit_is_refused_before_work_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_costs, "_LARGEST_RUN", 1000)
    with pytest.raises(ScenarioError, match="planned by running its set-up on all 25 devices"):
        probed("parity", 25)
    found = plan(many("parity", 25), shapes(25), names=["parity"], draws=2).to_table()
    assert found["schemes"][0]["refused"] is not None
    assert found["schemes"][0]["secrecy"], "what a scheme reveals does not depend on what can be counted"
