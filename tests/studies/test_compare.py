"""Schemes side by side."""

import csv
import io
import sys
from pathlib import Path
from typing import Any

import pytest

from codedfl.errors import UsageError
from codedfl.progress import silent
from codedfl.runs import directory as runs
from codedfl.studies import compare as module
from codedfl.studies.compare import BENCHMARK, SharedProblem, compare, row, to_csv
from codedfl.task import Problem
from rundirs import FINISHED, SCHEMES, files, small, strict_json, tree

PROMISED = {
    "scheme",
    "epochs",
    "final_accuracy",
    "time_to_accuracy",
    "speedup",
    "bits_sent",
    "device_macs",
    "survives_losses",
    "leakage",
    "verdict",
}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """All three schemes; tests only read them."""
    out = tmp_path_factory.mktemp("compared")
    return out, compare(small(), ["conventional", "drop-slowest"], out, silent)


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than the runs of these tests."""
    monkeypatch.setattr(module.figures, "save", lambda figure, path: None)


def test_rows_have_the_promised_keys_and_the_benchmark_comes_first(compared) -> None:
    _, rows = compared
    assert [entry["scheme"] for entry in rows] == ["minibatch", "conventional", "drop-slowest"]
    for entry in rows:
        assert entry.keys() >= PROMISED
        assert entry["leakage"].keys() == {"server", "devices", "eavesdropper"}
        assert entry["verdict"]


def test_speedup_is_benchmark_over_own(compared) -> None:
    _, rows = compared
    base = rows[0]["time_to_accuracy"]
    for entry in rows:
        for target, seconds in entry["time_to_accuracy"].items():
            wanted = None if seconds is None or base[target] is None else base[target] / seconds
            assert entry["speedups"][target] == wanted
        assert entry["speedup"] is None, "the last target, 0.99, is out of reach"
    assert rows[0]["speedups"]["0.5"] == 1
    assert rows[2]["speedups"]["0.7"] > 1, "whoever waits for the slowest is slower"


def test_the_speedup_is_that_of_the_last_target(no_figures: None, tmp_path: Path) -> None:
    rows = compare(small({"training.targets": [0.5, 0.7]}), ["conventional"], tmp_path, silent)
    times = [entry["time_to_accuracy"]["0.7"] for entry in rows]
    assert [entry["speedup"] for entry in rows] == [1, times[0] / times[1]]


def test_no_targets_no_speedup(no_figures: None, tmp_path: Path) -> None:
    rows = compare(small({"training.targets": [], "training.epochs": 3}), ["conventional"], tmp_path, silent)
    assert [(entry["speedup"], entry["time_to_accuracy"]) for entry in rows] == [(None, {})] * 2


def test_rows_say_what_the_runs_found(compared) -> None:
    out, rows = compared
    for entry in rows:
        run = runs.load(out / "runs" / f"{entry['scheme']}-{entry['scenario_id']}")
        assert run.scenario == small({"scheme": entry["scheme"]})
        assert row(run, runs.load(out / "runs" / f"{BENCHMARK}-{rows[0]['scenario_id']}")) == entry
        for key in ("epochs", "final_accuracy", "time_to_accuracy", "bits_sent", "device_macs"):
            assert entry[key] == run.summary[key]
    assert [entry["survives_losses"] for entry in rows] == [0, 0, 1], "drop-slowest waits for 4 of 5"


def test_files(compared) -> None:
    out, rows = compared
    assert {path.name for path in out.iterdir()} == {
        "compare.json",
        "compare.csv",
        "compare.png",
        "compare.svg",
        "runs",
    }
    assert strict_json((out / "compare.json").read_text()) == rows
    table = list(csv.DictReader(io.StringIO((out / "compare.csv").read_text())))
    assert [line["scheme"] for line in table] == [entry["scheme"] for entry in rows]
    for line, entry in zip(table, rows, strict=True):
        assert float(line["time_to_accuracy.0.5"]) == entry["time_to_accuracy"]["0.5"]
        assert line["time_to_accuracy.0.99"] == ""
        assert int(line["bits_sent.up"]) == entry["bits_sent"]["up"]
    for place in (out / "runs").iterdir():
        assert {name for name in files(place) if not name.startswith("repeats")} == FINISHED


@pytest.mark.parametrize("names", [[], ["minibatch"], ["conventional", "conventional", "minibatch"]])
def test_the_benchmark_is_always_there_and_nothing_twice(no_figures: None, tmp_path: Path, names: list[str]) -> None:
    rows = compare(small({"training.epochs": 3}), names, tmp_path, silent)
    assert [entry["scheme"] for entry in rows] == ["minibatch", *dict.fromkeys(n for n in names if n != "minibatch")]


def test_the_scheme_of_the_scenario_does_not_matter(no_figures: None, tmp_path: Path) -> None:
    base = small({"training.epochs": 3})
    first = compare(base, ["conventional"], tmp_path, silent)
    assert compare(base.with_settings({"scheme": "drop-slowest"}), ["conventional"], tmp_path, silent) == first


def test_finished_runs_are_not_run_again(no_figures: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compare(small({"training.epochs": 3}), SCHEMES, tmp_path, silent)
    monkeypatch.setattr(runs, "train", None)
    monkeypatch.setattr(Problem, "build", None)
    assert compare(small({"training.epochs": 3}), SCHEMES, tmp_path, silent) == first


def test_data_are_prepared_once_for_all_schemes(
    no_figures: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    build = Problem.build
    monkeypatch.setattr(Problem, "build", lambda *arguments: built.append(1) or build(*arguments))
    compare(small({"training.epochs": 3}), SCHEMES, tmp_path, silent)
    assert len(built) == 1


def test_other_data_are_prepared_anew() -> None:
    shared = SharedProblem(silent)
    first, second = small(), small({"features.dimension": 20})
    assert shared.get(first)() is shared.get(first.with_settings({"links.loss": 0.3}))()
    assert shared.get(second)().shape == (20, 10)
    assert shared.get(first)().shape == (30, 10)


def test_an_unknown_scheme_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'nosuch'.*conventional"):
        compare(small(), ["conventional", "nosuch"], tmp_path / "out", silent)
    assert tree(tmp_path) == {}


def test_without_matplotlib_everything_but_the_figure_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said = []
    compare(small({"training.epochs": 3}), [], tmp_path, lambda stage, done, total: said.append(stage))
    assert {path.name for path in tmp_path.iterdir()} == {"compare.json", "compare.csv", "runs"}
    assert any("codedfl[plots]" in stage for stage in said)


@pytest.mark.parametrize("epochs", [1, 2])
def test_very_few_epochs_still_make_a_figure(tmp_path: Path, epochs: int) -> None:
    compare(small({"training.epochs": epochs}), ["conventional"], tmp_path, silent)
    assert (tmp_path / "compare.png").exists()


def test_csv_of_nested_rows() -> None:
    rows = [{"a": 1, "b": {"c": 2.5, "d": [3, None]}}, {"a": 'x, "y"', "e": None}]
    assert to_csv(rows) == 'a,b.c,b.d.0,b.d.1,e\n1,2.5,3,,\n"x, ""y""",,,,\n'


def test_the_benchmark_is_the_papers() -> None:
    assert module.BENCHMARK == "minibatch"
