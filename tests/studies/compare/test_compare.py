"""Schemes side by side."""

import csv
import io
import sys
from pathlib import Path
from typing import Any

import pytest

from codedfl.errors import DataError, TrainingError, UsageError
from codedfl.progress import Progress, silent
from codedfl.report import comparison
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES as REGISTERED
from codedfl.schemes.sharing.sealed import Sealed
from codedfl.studies.compare import BENCHMARK, compare
from codedfl.studies.tables import to_csv
from codedfl.task import Problem
from codedfl.task.shared import SharedProblem
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
    return out, drawn(out, small(), ["conventional", "drop-slowest"])


def drawn(out: Path, scenario: Scenario, names: list[str], progress: Progress = silent) -> list[dict[str, Any]]:
    """Compare and draw, as the command does."""
    rows = compare(scenario, names, out, progress)
    comparison.draw_accuracies(scenario, rows, out, progress)
    return rows


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


def test_the_speedup_is_that_of_the_last_target(tmp_path: Path) -> None:
    rows = compare(small({"training.targets": [0.5, 0.7]}), ["conventional"], tmp_path, silent)
    times = [entry["time_to_accuracy"]["0.7"] for entry in rows]
    assert [entry["speedup"] for entry in rows] == [1, times[0] / times[1]]


def test_no_targets_no_speedup(tmp_path: Path) -> None:
    rows = compare(small({"training.targets": [], "training.epochs": 3}), ["conventional"], tmp_path, silent)
    assert [(entry["speedup"], entry["time_to_accuracy"]) for entry in rows] == [(None, {})] * 2


def test_rows_say_what_the_runs_found(compared) -> None:
    out, rows = compared
    for entry in rows:
        run = runs.load(out / "runs" / f"{entry['scheme']}-{entry['scenario_id']}")
        assert run.scenario == small({"scheme": entry["scheme"]})
        for key in entry.keys() & run.summary.keys():
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
def test_the_benchmark_is_always_there_and_nothing_twice(tmp_path: Path, names: list[str]) -> None:
    rows = compare(small({"training.epochs": 3}), names, tmp_path, silent)
    assert [entry["scheme"] for entry in rows] == ["minibatch", *dict.fromkeys(n for n in names if n != "minibatch")]


def test_the_scheme_of_the_scenario_does_not_matter(tmp_path: Path) -> None:
    base = small({"training.epochs": 3})
    first = compare(base, ["conventional"], tmp_path, silent)
    assert compare(base.with_settings({"scheme": "drop-slowest"}), ["conventional"], tmp_path, silent) == first


def test_finished_runs_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compare(small({"training.epochs": 3}), SCHEMES, tmp_path, silent)
    monkeypatch.setattr(runs, "train", None)
    monkeypatch.setattr(Problem, "build", None)
    assert compare(small({"training.epochs": 3}), SCHEMES, tmp_path, silent) == first


def test_data_are_prepared_once_for_all_schemes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    drawn(tmp_path, small({"training.epochs": 3}), [], lambda stage, done, total: said.append(stage))
    assert {path.name for path in tmp_path.iterdir()} == {"compare.json", "compare.csv", "runs"}
    assert any("codedfl[plots]" in stage for stage in said)


@pytest.mark.parametrize("epochs", [1, 2])
def test_very_few_epochs_still_make_a_figure(tmp_path: Path, epochs: int) -> None:
    drawn(tmp_path, small({"training.epochs": epochs}), ["conventional"])
    assert (tmp_path / "compare.png").exists()


def test_csv_of_nested_rows() -> None:
    rows = [{"a": 1, "b": {"c": 2.5, "d": [3, None]}}, {"a": 'x, "y"', "e": None}]
    assert to_csv(rows) == 'a,b.c,b.d.0,b.d.1,e\n1,2.5,3,,\n"x, ""y""",,,,\n'


def test_the_benchmark_is_the_papers() -> None:
    assert BENCHMARK == "minibatch"


def test_a_scheme_that_does_not_fit_has_a_row_that_says_so(tmp_path: Path) -> None:
    changes = {"schemes.drop-slowest.wait_for": 6, "training.epochs": 3}  # of five devices
    rows = drawn(tmp_path, small(changes), ["drop-slowest", "conventional"])
    assert [entry["scheme"] for entry in rows] == ["minibatch", "drop-slowest", "conventional"]
    assert [entry["refused"] is None for entry in rows] == [True, False, True]
    assert "wait_for = 6" in rows[1]["refused"]
    assert rows[1].keys() == rows[0].keys()
    assert (rows[1]["epochs"], rows[1]["time_to_accuracy"], rows[1]["speedup"]) == (None, None, None)
    assert rows[2]["epochs"] == 3
    assert (tmp_path / "compare.png").exists()
    assert strict_json((tmp_path / "compare.json").read_text()) == rows


def test_wrong_options_and_data_refuse_the_scheme_they_concern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> None:
        raise DataError("a device has a feature of 2.0, but promised at most 1")

    monkeypatch.setattr(Sealed, "device", refuse)
    changes = {"schemes.secagg.inner": "nosuch", "training.epochs": 2}
    rows = compare(small(changes), ["secagg", "sealed"], tmp_path, silent)
    assert rows[0]["refused"] is None
    assert "schemes.secagg.inner = 'nosuch'" in rows[1]["refused"]
    assert "promised" in rows[2]["refused"]


def test_without_the_benchmark_there_are_no_speedups(tmp_path: Path) -> None:
    rows = compare(small({"schemes.minibatch.parts": 1000, "training.epochs": 3}), ["conventional"], tmp_path, silent)
    assert "parts = 1000" in rows[0]["refused"]
    assert rows[1]["refused"] is None
    assert set(rows[1]["speedups"].values()) == {None}


def test_if_no_scheme_has_a_result_the_first_error_is_raised(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="diverged"):
        compare(small({"training.learning_rate": 1e6}), ["conventional"], tmp_path, silent)
    assert not (tmp_path / "compare.json").exists()


@pytest.mark.parametrize("fits", [True, False])
def test_a_broken_cipher_is_in_the_row(tmp_path: Path, fits: bool) -> None:
    """Whether or not the scheme fits the data."""
    broken = [name for name, scheme in REGISTERED.items() if scheme.verdict == "broken"]
    assert broken == ["code-based"]
    code = {"n": 60 if fits else 24, "degree": 3, "t_tot": 12, "t": 6, "M": 4, "beta": 2}
    rows = compare(small({"training.epochs": 2, "schemes.code-based": code}), broken, tmp_path, silent)
    assert [entry["verdict"] for entry in rows] == ["not encrypted", "broken"]
    assert (rows[1]["refused"] is None) == fits
