"""Faults on real processes: devices and the server are killed, paused, and answer nonsense, in the middle of a run.

All faults one by one: benchmarks/faults.py.
"""

import signal
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="a deployment needs NVIDIA FLARE, of the extra 'flare'")

from benchmarks.lab import HELD, PATIENCE, Lab

from codedfl.deploy.flare.kits import write_site
from codedfl.deploy.flare.sites import read_site
from codedfl.deploy.protocol.keeping import KEPT
from codedfl.deploy.site.privacy import SEED
from codedfl.engines.contract import LATE_ROUNDS
from codedfl.errors import CodedflError, LostDevicesError
from codedfl.runs import load
from codedfl.scenario import Scenario
from tiny import is_one_sentence

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""FLARE's session leaves sockets to the garbage collector."""


def times_saved(run: Path) -> list[float]:
    """When the epochs ended that the checkpoint holds."""
    with np.load(run / "checkpoint.npz") as arrays:
        times: list[float] = arrays["column_time"].tolist()
        return times


def test_sealed_coded_goes_on_without_two_of_four_and_after_its_server_was_killed(lab: Lab, scenario: Scenario) -> None:
    """Epoch 5: one job process is killed, one site answers garbage, one is paused for a second; epoch 8: the server.

    The process that was killed is started again, and rejoins the training; who answers garbage stays out.
    """
    lab.put_right()
    lab.tell({site: {"kind": "garbage", "epoch": 5} if site == "device-2" else HELD for site in lab.kits.sites})
    lab.go(4)
    run = lab.new_run()
    training = lab.train(scenario, run, revive=True)
    training.until_epoch(4)
    lab.signal(signal.SIGKILL, ["device-1"], parent=False)
    lab.signal(signal.SIGSTOP, ["device-3"], parent=True)
    time.sleep(1.0)
    lab.signal(signal.SIGCONT, ["device-3"], parent=True)
    training.until_lost(["device-1", "device-2"])
    training.until(lambda _: bool(lab.processes("device-1", parent=False)))
    lab.go(7)
    training.until_epoch(7)
    assert "device-2" in training.lost()
    assert list(lab.kits.device("device-3").rglob(KEPT)), "workers keep their blocks until the run is over"
    saved = times_saved(run)
    enough = "epoch 5 took long enough for a checkpoint after it, of epochs that late replies cannot disprove"
    assert len(saved) >= 5 - LATE_ROUNDS, enough
    lab.signal(signal.SIGKILL, ["server"], parent=True)
    lab.go()
    summary = training.result()
    assert training.jobs == 2
    assert (summary["epochs"], list(summary["deployment"]["lost"])) == (12, ["device-2"])
    assert (summary["survives_losses"], summary["survives_losses_left"]) == (2, 1)
    assert not [file for site in lab.kits.sites if site != "device-2" for file in lab.kits.device(site).rglob(KEPT)]
    assert load(run).epochs["time"][: len(saved)].tolist() == saved, "the second job went on where the first was"
    assert lab.is_exact(scenario, run)


def test_conventional_stops_in_words_and_goes_on_when_everyone_is_back(lab: Lab, scenario: Scenario) -> None:
    """Epoch 5: a site answers NaN, and a whole device is killed; it is started again, and the owner mends the site."""
    lab.put_right()
    plain, run = scenario.with_settings({"scheme": "conventional"}), lab.new_run()
    lab.tell({"device-1": {"kind": "nan", "epoch": 5}, "device-3": HELD})
    lab.go(4)
    training = lab.train(plain, run, revive=True, tries=1)
    training.until_epoch(4)
    lab.signal(signal.SIGKILL, ["device-3"], parent=True)
    with pytest.raises(LostDevicesError, match="epoch 5 got 2 of the 4 replies") as error:
        training.result()
    reason = "array 'gradient' of its answer holds numbers that are not finite"
    # FLARE may report the killed device as unreachable, or leave pings unanswered until the patience is over
    reasons = (f"device-3 ({why})" for why in ("it cannot be reached", f"no sign of life for {PATIENCE:g} s"))
    assert any(f"lost: device-1 ({reason}), {other}" in str(error.value) for other in reasons)
    assert is_one_sentence(str(error.value))
    saved = times_saved(run)
    assert (len(saved), (run / "summary.json").exists()) == (4, False)
    lab.tell({})
    summary = lab.train(plain, run, revive=False, tries=1).result()
    assert (summary["epochs"], summary["deployment"]["lost"]) == (12, {})
    assert load(run).epochs["time"][:4].tolist() == saved
    assert lab.is_exact(plain, run)


def private(scenario: Scenario, scheme: str) -> Scenario:
    """The same with noise on columns as they are."""
    solver = {"training.solver": "closed-form"} if scheme == "one-shot" else {}
    as_they_are = {"features.scale": "none", "features.intercept": False}
    return scenario.with_settings({"scheme": scheme, "privacy.epsilon": 2.0, **as_they_are, **solver})


@pytest.mark.parametrize("scheme", ["one-shot", "sealed-coded"])
def test_noise_is_released_once_although_server_and_a_device_are_killed(
    scheme: str, lab: Lab, scenario: Scenario
) -> None:
    """In the first epoch, when every device has entered its release."""
    lab.put_right()
    lab.tell(dict.fromkeys(lab.kits.sites, HELD))
    lab.go(0)
    before = lab.ledgers()
    training = lab.train(private(scenario, scheme), lab.new_run(), revive=True)
    training.until(lambda _: all(len(runs) == len(before[site]) + 1 for site, runs in lab.ledgers().items()))
    seeds = {site: next(lab.kits.device(site).rglob(SEED)).read_bytes() for site in lab.kits.sites}
    entered = lab.ledgers()
    lab.signal(signal.SIGKILL, ["device-1", "server"], parent=True)
    training.until(lambda _: training.jobs == 2)
    assert all(next(lab.kits.device(site).rglob(SEED)).read_bytes() == seed for site, seed in seeds.items())
    lab.go()
    summary = training.result()
    assert (training.jobs, summary["deployment"]["lost"]) == (2, {})
    assert lab.ledgers() == entered, "the resumed run has released the same sums, and nothing else"
    assert {runs[-1] for runs in entered.values()} == {summary["deployment"]["run"]}
    assert not [seed for site in lab.kits.sites for seed in lab.kits.device(site).rglob(SEED)]
    assert summary["deployment"]["records"]["verified"] == len(lab.kits.sites)


def test_a_budget_that_is_used_up_refuses_in_both_logs(lab: Lab, scenario: Scenario) -> None:
    lab.put_right()
    kit, wanted = lab.kits.device("device-2"), private(scenario, "one-shot")
    settings = {name: value for name, value in read_site(kit).items() if name != "folder"}
    write_site(kit, settings | {"privacy": {"budget_epsilon": 2.5, "ledger": "of its own"}})
    before = lab.ledgers()
    lab.train(wanted, lab.new_run(), revive=False, tries=1).result()
    entered = lab.ledgers()
    assert [len(runs) for runs in entered.values()] == [len(runs) + 1 for runs in before.values()]
    with pytest.raises(CodedflError, match=r"device-2 has used epsilon 2\.00 of its budget of 2\.5") as error:
        lab.train(wanted, lab.new_run(), revive=False, tries=1).result()
    assert is_one_sentence(str(error.value))
    sentence = str(error.value)[str(error.value).index("device-2 has used epsilon") :].partition(";")[0]
    for logs in (kit.rglob("log.txt"), [lab.kits.server / "console.txt"]):
        assert any(sentence in log.read_text(errors="replace") for log in logs)
    assert lab.ledgers() == entered
