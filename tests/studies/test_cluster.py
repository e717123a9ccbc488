"""Studies on a cluster: the bits of one process, workers that are killed, and what is refused in words."""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from codedfl import schemes
from codedfl.errors import EngineError, ScenarioError, UsageError
from codedfl.progress import silent
from codedfl.runs import directory as runs
from codedfl.studies import cluster as clusters
from codedfl.studies.archives import pack
from codedfl.studies.cluster import Cluster, carry_out, connected, numerics, unpack_result
from codedfl.studies.compare import compare_all
from codedfl.studies.sweep import run_cell, sweep
from codedfl.studies.tasks import StudyPart
from rundirs import Stopped, small, small_run, stop_at, tree
from tiny import is_one_sentence

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Dask's own: sockets and loops that it closes late
]
GRID = {"links.loss": [0, 0.3], "scheme": ["minibatch", "conventional"]}


@pytest.fixture(scope="module")
def pair() -> Iterator[Cluster]:
    with connected(processes=2) as found:
        yield found


def without_wall_time(folder: Path) -> dict[str, Any]:
    """Files of a study; of summaries and tables all but the seconds that it took."""
    found: dict[str, Any] = {}
    for name, content in tree(folder).items():
        path = Path(name)
        if path.name == ".lock" or path.suffix in (".csv", ".png", ".svg"):
            continue
        if path.name in ("summary.json", "sweep.json") or path.parent.name == "attacks":
            value = json.loads(content)
            for row in value if isinstance(value, list) else [value]:
                for spent in ("wall_seconds", "seconds", "peak_bytes"):
                    row.pop(spent, None)
            found[name] = value
        else:
            found[name] = content
    return found


def inline(monkeypatch: pytest.MonkeyPatch, tasks: list[StudyPart]) -> list[Any]:
    """Carry tasks out as a worker does, in this process."""
    monkeypatch.setattr(clusters, "one_thread", lambda: None)
    found = []
    for task in tasks:
        data = carry_out(json.dumps(clusters._order(task)), pack(None, task.folder, (*task.uses, *task.reads)))
        found.append(unpack_result(data, task.records)[0])
    return found


def test_a_sweep_has_the_files_of_one_process(pair: Cluster, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    report = lambda stage, done, total: seen.append((stage, done, total))  # noqa: E731
    rows = sweep(small(), GRID, tmp_path / "cluster", report, cluster=pair)
    alone = sweep(small(), GRID, tmp_path / "alone", silent, workers=1)
    assert len(rows) == len(alone) == 4
    assert without_wall_time(tmp_path / "cluster") == without_wall_time(tmp_path / "alone")
    assert (seen[0], seen[-1]) == (("sweep", 0, 4), ("sweep", 4, 4))


def test_what_is_finished_is_not_done_again(pair: Cluster, tmp_path: Path) -> None:
    first = sweep(small(), GRID, tmp_path, silent, cluster=pair)
    before = tree(tmp_path)
    assert sweep(small(), GRID, tmp_path, silent, cluster=pair) == first, "seconds included: nothing ran"
    assert tree(tmp_path) == before


def test_an_interrupted_run_goes_on_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = small({"training.epochs": 40})
    place = f"runs/{scenario.scheme}-{scenario.id()}"
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(Stopped):
        small_run(tmp_path / place, {"training.epochs": 40}, progress=stop_at(12))
    assert (tmp_path / place / "checkpoint.npz").exists()
    resumed: list[int] = []
    train = runs.train
    monkeypatch.setattr(runs, "train", lambda *given: resumed.append(given[4].epoch) or train(*given))
    (summary,) = inline(monkeypatch, [StudyPart(run_cell, (scenario.to_toml(), place), tmp_path, (place,))])
    assert resumed[0] > 0
    assert summary["epochs"] == 40


def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    """When one task is done, a process that works on another is killed; its task is carried out again."""
    grid, changes = {"timing.seed": [1, 2, 3, 4]}, {"training.epochs": 200}
    sweep(small(changes), grid, tmp_path / "alone", silent, workers=1)
    killed: list[int] = []
    with connected(processes=2) as found:

        def kill(stage: str, done: int, total: int) -> None:
            if done == 1 and not killed:
                killed.append(found.process_numbers()[0])
                os.kill(killed[0], signal.SIGKILL)

        sweep(small(changes), grid, tmp_path / "cluster", kill, cluster=found)
        assert killed
        assert killed[0] not in found.process_numbers()
    assert without_wall_time(tmp_path / "cluster") == without_wall_time(tmp_path / "alone")


def test_a_comparison_has_the_rows_of_one_process(pair: Cluster, tmp_path: Path) -> None:
    changes = {"training.epochs": 8, "training.targets": [0.5], "schemes.drop-slowest.wait_for": 6}
    six = [{"count": 2, "mac_rate": 25e6}, {"count": 3, "mac_rate": 5e6}, {"count": 1, "mac_rate": 0.2e6}]
    fleets = {"five": small(changes), "six": small({**changes, "fleet.devices": six})}
    names = ["conventional", "drop-slowest"]  # the second one is refused on five devices
    given: dict[str, Any] = {"fleets": fleets, "attacked_epochs": 4}
    alone = compare_all(small(changes), names, tmp_path / "alone", **given)
    seen: list[str] = []
    report = lambda stage, done, total: seen.append(stage)  # noqa: E731
    found = compare_all(small(changes), names, tmp_path / "cluster", report, cluster=pair, **given)
    assert found == alone
    assert any(row["refused"] for row in found) and any(row["predicted"] for row in found)
    assert without_wall_time(tmp_path / "cluster") == without_wall_time(tmp_path / "alone")
    assert "training" not in seen, "what the cluster computed is read, not computed again"


def test_an_error_of_codedfl_is_raised_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = small().to_toml().replace("loss = ", "loss = 2 # ")
    with pytest.raises(ScenarioError, match="loss = 2"):
        inline(monkeypatch, [StudyPart(run_cell, (wrong, "runs/a"), tmp_path, ("runs/a",))])
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("key", ["codedfl", "numpy", "source", "BLAS"])
def test_other_versions_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str) -> None:
    task = StudyPart(run_cell, (small().to_toml(), "runs/a"), tmp_path, ("runs/a",))
    order = clusters._order(task)
    order["numerics"] = {**numerics(), key: "another"}
    with pytest.raises(EngineError, match="last bits") as raised:
        unpack_result(carry_out(json.dumps(order), pack(None)), ())
    assert is_one_sentence(str(raised.value))
    assert key in str(raised.value)


def test_other_versions_are_refused_before_anything_is_sent(pair: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "numerics", lambda: {**numerics(), "numpy": "0.9"})
    with pytest.raises(EngineError, match=r"numpy .* this machine 0\.9"):
        Cluster(pair._client, "the scheduler")


def test_functions_of_others_are_refused() -> None:
    order = {"function": "os:getpid", "arguments": "[]", "folder": False, "uses": [], "reads": [], "plugins": []}
    told = order | {"numerics": numerics()}
    with pytest.raises(EngineError, match="os:getpid"):
        unpack_result(carry_out(json.dumps(told), pack(None)), ())


@pytest.mark.parametrize("address", ["", "nonsense", "tcp://", "tcp://host", "http://127.0.0.1:80", "ftp://a:1"])
def test_a_wrong_address(address: str) -> None:
    with pytest.raises(UsageError, match="tcp://HOST:PORT") as raised, connected(address):
        pass
    assert is_one_sentence(str(raised.value))


def test_a_scheduler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_PATIENCE", 1.0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(EngineError, match="no Dask scheduler answers") as raised, connected(address):
            pass
    assert is_one_sentence(str(raised.value))


def test_a_scheduler_that_goes_away(tmp_path: Path) -> None:
    with connected(processes=1) as found:
        end = threading.Timer(1.0, found._client.cluster.close)
        end.start()
        with pytest.raises(EngineError, match="rerun the same command") as raised:
            sweep(small({"training.epochs": 4000}), {"timing.seed": [1, 2, 3]}, tmp_path, silent, cluster=found)
        end.join()
    assert is_one_sentence(str(raised.value))


def test_plugins_are_named(tmp_path: Path) -> None:
    assert clusters._order(StudyPart(run_cell, ()))["plugins"] == [str(path) for path in schemes.plugin_files()]
