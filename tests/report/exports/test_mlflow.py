"""Stores of MLflow, read by MLflow's own client."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from codedfl.errors import MissingExtraError, RunDirectoryError, UsageError
from codedfl.report.exports import write_mlflow
from codedfl.report.exports.mlflow import MARK, _quiet
from codedfl.runs import load
from report.exports.made import HOSTILE, copied, made, renamed, scratch
from rundirs import small_run, tree

OTHER = {"scheme": "conventional", "training.epochs": 2, "timing.draws": 3}


@cache
def store() -> tuple[Path, str, str]:
    """A store with two runs, the first of which was exported twice; making its tables takes seconds."""
    folder = scratch()
    write_mlflow(load(made()), folder / "store")
    other = write_mlflow(renamed(small_run(folder / "other", OTHER)), folder / "store")
    return folder / "store", write_mlflow(load(made()), folder / "store"), other


@contextmanager
def client(folder: Path) -> Iterator[Any]:
    with _quiet():
        from mlflow import MlflowClient

        yield MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")


def test_settings_tags_and_results() -> None:
    folder, name, _ = store()
    run = load(made())
    with client(folder) as mlflow:
        found = mlflow.get_run(name)
    assert found.info.status == "FINISHED"
    assert found.info.run_name == f"minibatch {run.summary['scenario_id']}"
    assert found.info.end_time - found.info.start_time == pytest.approx(run.epochs["time"][-1] * 1000, abs=1)
    settings = found.data.params
    assert (settings["training.epochs"], settings["data.source"], settings["schemes.minibatch.parts"]) == (
        *("6", "digits", "3"),
    )
    assert json.loads(settings["fleet.devices"]) == run.scenario.to_table()["fleet"]["devices"]
    assert not [key for key in settings if key.startswith("schemes.drop-slowest")]
    assert found.data.tags["codedfl.scenario_id"] == run.summary["scenario_id"]
    assert found.data.tags["leakage.server"] == run.summary["leakage"]["server"]
    assert found.data.metrics["final_accuracy"] == run.summary["final_accuracy"]
    assert found.data.metrics["bits_sent/up"] == run.summary["bits_sent"]["up"]


def test_metrics_have_the_epoch_as_step_and_virtual_time() -> None:
    folder, name, _ = store()
    run = load(made())
    with client(folder) as mlflow:
        history = mlflow.get_metric_history(name, "accuracy")
        start = mlflow.get_run(name).info.start_time
    assert [point.step for point in history] == run.epochs["epoch"].tolist()
    assert [point.value for point in history] == run.epochs["accuracy"].tolist()
    times = [(point.timestamp - start) / 1000 for point in history]
    assert times == pytest.approx(run.epochs["time"].tolist(), abs=2e-3)


def test_files_are_where_mlflow_looks_for_them() -> None:
    folder, name, _ = store()
    with client(folder) as mlflow:
        listed = [entry.path for entry in mlflow.list_artifacts(name)]
        model = Path(mlflow.download_artifacts(name, "model"))
    assert listed == ["model", "scenario.toml", "summary.json"]
    assert tree(model) == tree(made() / "model")


def test_a_store_holds_several_runs_each_once() -> None:
    folder, name, other = store()
    with client(folder) as mlflow:
        experiments = {each.name: each.experiment_id for each in mlflow.search_experiments()}
        found = {key: [run.info.run_id for run in mlflow.search_runs([each])] for key, each in experiments.items()}
    assert found == {"small": [name], HOSTILE: [other], "Default": []}
    assert {path.name for path in (folder / "artifacts").iterdir()} == {name, other}


def test_nothing_of_the_environment_is_left_changed() -> None:
    before = dict(os.environ)
    with _quiet():
        assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert dict(os.environ) == before


def test_a_store_that_was_moved_is_refused(tmp_path: Path) -> None:
    shutil.copytree(store()[0], tmp_path / "moved")
    before = tree(tmp_path)
    with pytest.raises(UsageError, match="where MLflow looks for its files; choose another folder"):
        write_mlflow(load(made()), tmp_path / "moved")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("mark", ["{", "[]", '{"program": "other", "place": ""}', '{"program": "codedfl"}'])
def test_a_folder_of_others_is_refused(tmp_path: Path, mark: str) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / MARK).write_text(mark)
    (tmp_path / "store/mlflow.db").write_text("")
    before = tree(tmp_path)
    with pytest.raises(UsageError, match="exists and is not what this command writes"):
        write_mlflow(load(made()), tmp_path / "store")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["what?", "a#b", "a%20b"])
def test_a_name_that_is_no_part_of_an_address_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="which the address of a store cannot hold; choose another folder"):
        write_mlflow(load(made()), tmp_path / name)
    assert tree(tmp_path) == {}


def test_a_damaged_store_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "store"
    place.mkdir()
    (place / MARK).write_text(json.dumps({"program": "codedfl", "place": str(place)}))
    (place / "mlflow.db").write_bytes(b"no database" * 1000)
    before = tree(tmp_path)
    with pytest.raises(RunDirectoryError, match="MLflow does not take the run"):
        write_mlflow(load(made()), place)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("library", ["mlflow", "alembic", "sqlalchemy"])
def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'codedfl\[tracking\]'"):
        write_mlflow(load(made()), tmp_path / "store")
    assert tree(tmp_path) == {}


def test_noise_is_named(tmp_path: Path) -> None:
    from codedfl.report.exports.mlflow import _results, _tags

    promise = {"statement": "one record, epsilon 2"}
    run = copied(tmp_path / "run", privacy=promise, epsilon=2.0, delta=1e-5, without_noise="scores have none")
    assert _tags(run)["noise"] == "one record, epsilon 2"
    assert _tags(run)["without_noise"] == "scores have none"
    assert dict(_results(run.summary))["epsilon"] == 2.0
