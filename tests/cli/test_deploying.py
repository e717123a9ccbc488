"""``codedfl deploy`` with real processes: from nothing to a trained model, and nothing left behind."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="a deployment needs NVIDIA FLARE, of the extra 'flare'")

import psutil

from cli.conftest import Command, Outcome
from cli.test_plugins import EXAMPLE, write_plugin
from codedfl.cli.deploy import commands as deploying
from codedfl.cli.deploy.board import board, read_board
from codedfl.deploy.flare.jobs import Admin
from codedfl.deploy.server.board import Board
from codedfl.deploy.server.deployment import STATUS
from codedfl.deploy.server.fleet import fleet_folder, make_fleet
from codedfl.errors import LostDevicesError
from codedfl.runs import directory as runs
from codedfl.scenario import load
from rundirs import environment, strict_json

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
"""FLARE's session leaves sockets to the garbage collector."""

QUICK = ("--set", "training.epochs=4", "--set", "task.precision=float64")


def processes_that_name(folder: Path) -> list[int]:
    return [one.pid for one in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(one.info["cmdline"] or [])]


def test_local_trains_the_model_of_virtual_time_with_a_plug_in_and_leaves_nothing_running(
    codedfl: Command, folder: Path
) -> None:
    """Server and sites load the file of the scheme; virtual time rounds replies as the sites do."""
    write_plugin(folder / "mine.py")

    def local() -> Outcome:
        """In a process of its own, because plug-ins stay registered."""
        words = ("deploy", "local", "small.toml", "--devices", "3", "--set", f"scheme={EXAMPLE}", *QUICK)
        command = (sys.executable, "-m", "codedfl.cli", *words, "--plugin", "mine.py", "--verify", "--json")
        done = subprocess.run([*command, "--out", "run"], env=environment(), capture_output=True, text=True)
        return Outcome(done.returncode, done.stdout, done.stderr)

    outcome = local()
    assert outcome.code == 0, outcome.err
    dated = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")  # where it takes more than ten seconds
    assert [line for line in outcome.err.splitlines() if not dated.match(line)] == []
    found = strict_json(outcome.out)
    assert found["verified"]["equal_to_the_last_bit"] is True
    assert found["verified"]["difference_to_virtual_time"] == 0
    assert (found["scheme"], found["epochs"], found["virtual_seconds"]) == (EXAMPLE, 4, None)
    assert found["deployment"]["lost"] == {}
    assert found["real_seconds"] > 0
    assert not (folder / "run.fleet").exists(), "kits hold keys, and are of no use any more"
    assert processes_that_name(folder) == []
    ended = codedfl("deploy", "status", "run")
    assert (ended.code, ended.out) == (0, "no processes run for 'run'\n")
    assert strict_json(local().out) == found, "what is finished is not run again"


def test_a_run_that_was_killed_before_it_began_is_known_by_its_fleet(codedfl: Command, folder: Path) -> None:
    make_fleet(fleet_folder(folder / "run"), load(str(folder / "small.toml")).with_devices(2))
    assert not (folder / "run").exists()
    for command in ("stop", "status"):
        found = strict_json(codedfl("deploy", command, "run", "--json").out)["processes"]
        assert [Path(one["kit"]).name for one in found] == ["server", "device-1", "device-2"]


def test_a_kit_that_was_moved_to_its_host_is_not_said_to_be_down(codedfl: Command, folder: Path) -> None:
    kits = make_fleet(folder / "kits", load(str(folder / "small.toml")).with_devices(2))
    kits.device("device-2").rename(folder / "elsewhere")
    rows = [line for line in codedfl("deploy", "status", "kits").out.splitlines() if "device-" in line]
    assert ["does not run" in row for row in rows] == [True, False]
    assert ["not on this machine" in row for row in rows] == [False, True]


def test_kits_are_made_started_used_and_stopped(codedfl: Command, folder: Path) -> None:
    """A page follows the training where its server is installed."""
    live = ["--live"] if importlib.util.find_spec("uvicorn") else []
    kit = codedfl("deploy", "kit", "kits", "--scenario", "small.toml", "--devices", "2", "--make-keys", *QUICK)
    assert kit.code == 0
    assert "warning: 2 devices: with fewer than three, a sum shows each device the gradient of the other" in kit.err
    assert "warning: server and devices on one machine: every seal and mask opens to who has both" in kit.err
    assert kit.out.rstrip("\n") == (folder / "kits/README.md").read_text().rstrip("\n")
    assert strict_json(codedfl("deploy", "status", "kits", "--json").out)["processes"][0]["pid"] is None
    for device in ("device-1", "device-2"):  # owners take part in so small a cohort only if they say so
        agreed = codedfl("site", "agree", f"kits/{device}", "kits/scenario.toml", "--least", "2")
        assert (agreed.code, "at least 2 in a sum" in agreed.out) == (0, True), agreed.err
    try:
        started = strict_json(codedfl("deploy", "start", "kits", "--json").out)["processes"]
        assert all(psutil.pid_exists(one["pid"]) for one in started)
        again = codedfl("deploy", "start", "kits/device-1")
        assert (again.code, "is running already" in again.err) == (1, True)
        trained = codedfl("deploy", "train", "kits", "--json", *live)
        assert trained.code == 0, trained.err
        assert ("live page: http://127.0.0.1:" in trained.err) == bool(live)
        assert not (folder / "kits/.live").exists()
        summary = strict_json(trained.out)
        run = runs.load(Path(summary["run"]))
        assert run.path.is_relative_to(folder / "kits/server")
        assert summary["deployment"]["records"]["verified"] == 2
        (own,) = (folder / "kits/device-1/records").glob("*/site-record.json")
        checked = codedfl("site", "verify", str(own))
        assert (checked.code, "ended: finished" in checked.out) == (0, True), checked.err
        assert run.scenario == load(str(folder / "kits/scenario.toml"))
        found = strict_json(codedfl("deploy", "status", "kits", "--json").out)["training"]
        assert (found["done"], found["total"]) == (4, 4)
        assert [row["last_epoch"] for row in found["devices"]] == [4, 4]
        shown = codedfl("deploy", "status", "kits/server")
        assert "server" in shown.out
        assert "device-2" in shown.out
    finally:
        stopped = codedfl("deploy", "stop", "kits", "--json")
    assert [one["pid"] for one in strict_json(stopped.out)["processes"]] == [None] * 3
    assert processes_that_name(folder) == []
    virtual = runs.execute(run.scenario, folder / "virtual")
    real, simulated = (np.load(one.path / "model.npz")["theta"] for one in (run, virtual))
    assert np.allclose(real, simulated, rtol=1e-9, atol=0), "parts of minibatches are drawn, not timed"


def test_a_failed_training_says_where_the_logs_are(
    codedfl: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise LostDevicesError("epoch 3 got 4 of the 5 replies")

    monkeypatch.setattr(deploying.fleet, "train", failing)
    outcome = codedfl("deploy", "local", "small.toml", "--out", "run")
    assert (outcome.code, outcome.out) == (1, "")
    assert "epoch 3 got 4 of the 5 replies (logs are in 'run.fleet')" in outcome.err
    assert (folder / "run.fleet/server/startup").is_dir()
    assert processes_that_name(folder) == []


def test_a_key_is_made_at_the_first_start_and_never_again(
    codedfl: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(deploying.kit_processes, "start", lambda kit, threads: started.append(kit.name))
    made = codedfl("deploy", "kit", "kits", "--scenario", "small.toml", "--own-keys", "--json")
    assert (made.code, "--own-keys has no effect" in made.err) == (0, True)
    first = codedfl("deploy", "start", "kits/device-2")
    assert "tell the owners of all other devices its print, sha256:" in first.err
    key = (folder / "kits/device-2/device.key").read_bytes()
    second = codedfl("deploy", "start", "kits/device-2")
    assert (second.code, second.err) == (0, "")
    assert (folder / "kits/device-2/device.key").read_bytes() == key
    assert started == ["device-2", "device-2"]


def test_sites_come_and_go_one_by_one(codedfl: Command, folder: Path) -> None:
    """Every step as the commands before it print it; wrong ones say so in one sentence and change nothing."""
    sites = [word for name in ("anna", "ben", "cara") for word in ("--site", name)]
    made = codedfl(
        "deploy", "kit", "kits", "--scenario", "small.toml", "--host", "fl.example.org", "--port", "8002", *sites
    )
    assert (made.code, made.err) == (0, "")
    prints = [codedfl("deploy", "key", f"kits/{name}").out.strip() for name in ("anna", "ben", "cara")]
    assert codedfl("deploy", "key", "kits/ben").out.strip() == prints[1], "a key is made once"
    for name in ("server", "anna", "ben", "cara"):
        entered = strict_json(codedfl("deploy", "pin", f"kits/{name}", *prints, "--json").out)["entered"]
        assert entered == [other for other in ("anna", "ben", "cara") if other != name]
    refusal = codedfl("deploy", "pin", "kits/ben", prints[0].replace("anna", "cara"))
    assert (refusal.code, "give --replace if the key has changed" in refusal.err) == (2, True)
    assert codedfl("deploy", "pin", "kits/ben", "cara").code == 2

    assert "the cohort has 4 devices now" in codedfl("deploy", "add", "kits", "dora").out
    assert load(str(folder / "kits/scenario.toml")).fleet.size == 4
    shutil.rmtree(folder / "kits/ben")
    barred = strict_json(codedfl("deploy", "replace", "kits", "ben", "--json").out)["revoked"]
    assert barred[1] == prints[1].removeprefix("ben=")
    again = codedfl("deploy", "key", "kits/ben").out.strip()
    assert codedfl("deploy", "pin", "kits/anna", again).code == 2
    assert codedfl("deploy", "pin", "kits/anna", again, "--replace").code == 0
    out = strict_json(codedfl("deploy", "revoke", "kits", "cara", "--json").out)
    assert (out["sites"], out["revoked"][0]) == (["anna", "ben", "dora"], "cara")
    assert load(str(folder / "kits/scenario.toml")).fleet.size == 3
    assert codedfl("deploy", "revoke", "kits/server", "dora").code == 0
    assert tomllib.loads((folder / "kits/server/site.toml").read_text())["revoked"] == [
        *barred,
        *out["revoked"],
        "dora",
    ]
    for words in (
        ("add", "kits", "cara"),
        ("revoke", "kits", "cara"),
        ("revoke", "kits", "a", "b"),
        ("key", "kits/server"),
    ):
        refusal = codedfl("deploy", *words)
        assert (refusal.code, refusal.out, refusal.err.count("\n")) == (2, "", 1), words


def test_another_fleet_than_that_of_the_kits_is_refused(codedfl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Admin, "_ask", lambda *_: pytest.fail("the server was asked"))
    assert codedfl("deploy", "kit", "kits", "--scenario", "small.toml", "--devices", "2").code == 0
    outcome = codedfl("deploy", "train", "kits", "small.toml")
    assert (outcome.code, "5 devices" in outcome.err, "2 kits" in outcome.err) == (2, True, True)


def test_a_board_that_is_none_is_not_shown(folder: Path) -> None:
    for text in ("", "[1]", "{}", "{"):
        (folder / STATUS).write_text(text)
        assert read_board(folder / STATUS) is None
    assert read_board(folder / "nothing.json") is None


def test_a_board_shows_state_last_reply_data_and_hand_overs() -> None:
    filled = Board(["a", "b", "c"])
    for device in range(3):
        filled.samples(device, 1000)
    filled.replied(0, 7, 0.25, 0.125)
    filled.handed_over(1, 0)
    filled.lost({2: "it cannot be reached"})
    table = board(filled.as_table())
    cells = list(zip(*(column.cells for column in table.columns), strict=True))
    assert cells == [
        ("a", "replied", "7", "250.0 ms", "125.0 ms", "2,000 of 2 devices", "0 out, 1 in"),
        ("b", "handed over", "", "", "", "0", "1 out, 0 in"),
        ("c", "lost: it cannot be reached", "", "", "", "1,000", "0 out, 0 in"),
    ]
