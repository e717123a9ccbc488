"""A grid of scenarios."""

import csv
import io
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from codedfl.errors import CodedflError, ScenarioError, TrainingError
from codedfl.progress import silent
from codedfl.report.sweep import draw_sweep
from codedfl.runs import directory as runs
from codedfl.studies import processes
from codedfl.studies.sweep import sweep
from rundirs import SMALL, InlinePool, Processes, files, small, strict_json, summary, tree

FEW = {"training.epochs": 6}


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let cells run in this process: most tests are not about processes."""
    monkeypatch.setattr(processes, "ProcessPoolExecutor", InlinePool)


@pytest.mark.real
def test_two_by_two_in_processes(tmp_path: Path) -> None:
    grid = {"scheme": ["minibatch", "conventional"], "links.loss": [0, 0.3]}
    seen = []
    report = lambda stage, done, total: seen.append((stage, done, total))  # noqa: E731
    rows = sweep(small(), grid, tmp_path, report, workers=2)
    assert [entry["settings"] for entry in rows] == [
        {"scheme": "minibatch", "links.loss": 0},
        {"scheme": "minibatch", "links.loss": 0.3},
        {"scheme": "conventional", "links.loss": 0},
        {"scheme": "conventional", "links.loss": 0.3},
    ]
    for entry in rows:
        wanted = small(entry["settings"])
        place = tmp_path / "runs" / f"{wanted.scheme}-{wanted.id()}"
        assert runs.load(place).scenario == wanted
        assert {key: value for key, value in entry.items() if key != "settings"} == summary(place)
    # the same random numbers decide the tries, so every single transmission takes as long or longer
    assert rows[0]["seconds_per_epoch"] < rows[1]["seconds_per_epoch"]
    assert rows[2]["seconds_per_epoch"] < rows[3]["seconds_per_epoch"]
    assert rows[0]["final_accuracy"] == rows[1]["final_accuracy"], "the model does not depend on the links"
    assert seen[0] == ("sweep", 0, 4)
    assert seen[-1] == ("sweep", 4, 4)
    assert strict_json((tmp_path / "sweep.json").read_text()) == rows
    table = list(csv.DictReader(io.StringIO((tmp_path / "sweep.csv").read_text())))
    assert [(line["settings.scheme"], line["settings.links.loss"]) for line in table] == [
        ("minibatch", "0"),
        ("minibatch", "0.3"),
        ("conventional", "0"),
        ("conventional", "0.3"),
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"sweep.json", "sweep.csv", "runs"}


@pytest.mark.real
def test_cells_that_are_one_experiment_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    """Equal values, and values that do not matter to the scheme, lead to one run directory."""
    grid = {"links.loss": [0.1, 0.1], "schemes.drop-slowest.wait_for": [3, 4]}
    rows = sweep(small(FEW), grid, tmp_path, silent, workers=2)
    assert len(rows) == 4
    assert len({entry["scenario_id"] for entry in rows}) == 1
    assert all(entry["final_accuracy"] == rows[0]["final_accuracy"] for entry in rows)


LONG = SMALL.replace("count = 3", "count = 98").replace("epochs = 24", "epochs = 3000")


def children(process: Any) -> list[int]:
    return [int(number) for number in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def workers(process: Any, folder: Path) -> list[int]:
    """Wait until both cells are being trained, and return the processes that do it."""
    give_up = time.monotonic() + 120
    while len(list(folder.glob("out/runs/*/checkpoint.npz"))) < 2:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < give_up
        time.sleep(0.01)
    names = {number: Path(f"/proc/{number}/cmdline").read_bytes() for number in children(process)}
    return [number for number, name in names.items() if b"spawn_main" in name]


@pytest.mark.real
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks the system for the processes of a process")
@pytest.mark.parametrize("end", ["Control-C", "a worker is killed"])
def test_a_sweep_that_ends_early_says_so_and_leaves_no_process(tmp_path: Path, end: str) -> None:
    (tmp_path / "long.toml").write_text(LONG)
    with Processes(tmp_path) as processes:
        process = processes.start(
            "sweep", "-s", "long.toml", "--over", "timing.seed=1,2", "--workers", "2", "--out", "out"
        )
        started = workers(process, tmp_path)
        assert len(started) == 2
        if end == "Control-C":
            os.kill(process.pid, signal.SIGINT)
        else:
            os.kill(started[0], signal.SIGKILL)
        out, err = process.communicate(timeout=120)
    assert process.returncode == (130 if end == "Control-C" else 1)
    assert out == ""
    assert "Traceback" not in err
    assert [line for line in err.splitlines() if line.startswith("codedfl: ")] == err.splitlines()[-1:]
    assert not [number for number in started if Path(f"/proc/{number}").exists()]


def drawn(out: Path, changes: dict[str, Any], grid: dict[str, Any]) -> list[dict[str, Any]]:
    """Sweep and draw, as the command does."""
    scenario = small(FEW | changes)
    rows = sweep(scenario, grid, out, silent)
    draw_sweep(rows, out)
    return rows


@pytest.mark.usefixtures("inline")
class TestInline:
    def test_a_numeric_key_makes_a_figure(self, tmp_path: Path) -> None:
        drawn(tmp_path, {}, {"links.loss": [0, 0.1]})
        assert {path.name for path in tmp_path.iterdir()} == {
            "sweep.json",
            "sweep.csv",
            "sweep.png",
            "sweep.svg",
            "runs",
        }

    def test_a_figure_where_no_value_reaches_the_target(self, tmp_path: Path) -> None:
        drawn(tmp_path, {"training.targets": [0.999]}, {"links.loss": [0, 0.1]})
        assert (tmp_path / "sweep.png").exists()

    @pytest.mark.parametrize(
        "grid",
        [
            {"scheme": ["minibatch"]},
            {"training.stop_at_last_target": [True, False]},
            {"links.loss": [0, 0.1], "timing.seed": [1, 2]},
            {"scheme": ["minibatch", "conventional"], "links.loss": [0, 0.1]},
        ],
    )
    def test_a_figure_of_any_one_or_two_keys(self, tmp_path: Path, grid: dict[str, Any]) -> None:
        drawn(tmp_path, {}, grid)
        assert (tmp_path / "sweep.png").exists()

    def test_three_keys_make_a_sentence_instead_of_a_figure(self, tmp_path: Path) -> None:
        said: list[str] = []
        grid = {"links.loss": [0, 0.1], "timing.seed": [1, 2], "timing.draws": [5, 6]}
        rows = sweep(small(FEW), grid, tmp_path, silent)
        draw_sweep(rows, tmp_path, lambda stage, done, total: said.append(stage))
        assert not (tmp_path / "sweep.png").exists()
        (sentence,) = said
        assert sentence.startswith(
            "sweep.png left out: the sweep varies 3 keys (links.loss, timing.seed, timing.draws)"
        )

    def test_without_targets_final_scores_are_drawn(self, tmp_path: Path) -> None:
        drawn(tmp_path, {"training.targets": []}, {"links.loss": [0, 0.1]})
        assert "final test accuracy" in (tmp_path / "sweep.svg").read_text()

    def test_targets_themselves_may_be_swept(self, tmp_path: Path) -> None:
        rows = drawn(tmp_path, {}, {"training.targets": [[0.4], [0.5, 0.6]]})
        assert [list(entry["time_to_accuracy"]) for entry in rows] == [["0.4"], ["0.5", "0.6"]]

    def test_cells_with_bands(self, tmp_path: Path) -> None:
        rows = sweep(small(FEW), {"timing.draws": [40, 60]}, tmp_path, silent)
        for entry, draws in zip(rows, (40, 60), strict=True):
            low, high = entry["time_to_accuracy_band"]["0.5"]
            assert low < entry["time_to_accuracy"]["0.5"] < high
            assert entry["timing_draws"] == draws

    def test_finished_cells_are_not_run_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = sweep(small(FEW), {"links.loss": [0, 0.1]}, tmp_path, silent)
        monkeypatch.setattr(runs, "train", None)
        assert sweep(small(FEW), {"links.loss": [0, 0.1]}, tmp_path, silent) == first

    def test_a_wider_grid_takes_over_what_is_there(self, tmp_path: Path) -> None:
        first = sweep(small(FEW), {"links.loss": [0, 0.1]}, tmp_path, silent)
        wider = sweep(small(FEW), {"links.loss": [0, 0.1, 0.2]}, tmp_path, silent)
        assert wider[:2] == first

    def test_a_cell_that_fails_ends_the_sweep_in_words(self, tmp_path: Path) -> None:
        with pytest.raises(TrainingError, match="diverged"):
            sweep(small({"training.epochs": 8}), {"training.learning_rate": [1.0, 1e6]}, tmp_path, silent)
        assert not (tmp_path / "sweep.json").exists()

    def test_without_matplotlib_everything_but_the_figure_is_there(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        drawn(tmp_path, {}, {"links.loss": [0.1]})
        assert {path.name for path in tmp_path.iterdir()} == {"sweep.json", "sweep.csv", "runs"}

    def test_names_do_not_matter_but_are_kept(self, tmp_path: Path) -> None:
        rows = sweep(small(FEW), {"name": ["a", "b"]}, tmp_path, silent)
        assert [entry["settings"] for entry in rows] == [{"name": "a"}, {"name": "b"}]


@pytest.mark.parametrize(
    ("grid", "word"),
    [
        ({"links.loss": [0.1, 2]}, "links.loss = 2"),
        ({"links.loss": [0.1, "much"]}, "links.loss = 'much'"),
        ({"scheme": ["minibatch", "nosuch"]}, "nosuch"),
        ({"nosuch.key": [1]}, "nosuch.key"),
        ({"training.epochs": [2.5]}, "training.epochs"),
        ({"fleet.devices.7.count": [1]}, "fleet.devices.7"),
        ({"training.targets": [[0.9, 0.5]]}, "must increase"),
        ({"schemes.drop-slowest.wait_for": [4, 6], "scheme": ["drop-slowest"]}, "wait_for = 6"),
    ],
)
def test_a_wrong_value_is_refused_before_anything_is_written(tmp_path: Path, inline: None, grid, word: str) -> None:
    with pytest.raises(ScenarioError, match=word):
        sweep(small(FEW), grid, tmp_path / "out", silent)
    assert tree(tmp_path) == {}


def test_a_place_that_cannot_be_is_refused(tmp_path: Path, inline: None) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CodedflError):
        sweep(small(FEW), {"links.loss": [0.1]}, tmp_path / "file", silent)
    assert tree(tmp_path) == {"file": b"mine"}


def test_a_key_without_values_is_refused(tmp_path: Path, inline: None) -> None:
    with pytest.raises(CodedflError, match=r"links\.loss"):
        sweep(small(FEW), {"links.loss": []}, tmp_path / "out", silent)
    assert tree(tmp_path) == {}


def test_every_cell_is_in_one_directory_of_its_own(tmp_path: Path, inline: None) -> None:
    rows = sweep(small(FEW), {"links.loss": [0, 0.1], "timing.seed": [0, 1]}, tmp_path, silent)
    places = {name.split("/")[1] for name in files(tmp_path) if name.startswith("runs/")}
    assert places == {f"minibatch-{entry['scenario_id']}" for entry in rows}
    assert len(places) == 4
