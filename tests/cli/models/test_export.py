"""``codedfl export``: the model of a run as ONNX, and the run in formats of other programs."""

import gzip
import shutil
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from sklearn.datasets import load_digits

from cli.conftest import Command
from cli.models.test_predict import put
from report.exports.made import made
from rundirs import strict_json, tree
from task.model.fitted import fitted


def test_the_graph_of_a_run_predicts_as_the_model(codedfl: Command, folder: Path) -> None:
    assert codedfl("run", "small.toml", "--out", "run").code == 0
    outcome = codedfl("export", "run", "model.onnx")
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("model.onnx: scores within ")
    pixels = (load_digits().data / 16).astype(np.float32)
    np.savez(folder / "rows.npz", x=pixels)
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    label, scores = session.run(["label", "scores"], {"inputs": pixels})
    assert label.tolist() == strict_json(codedfl("predict", "run", "rows.npz", "--json").out)
    assert scores.shape == (len(pixels), 10)


def test_for_machines(codedfl: Command, folder: Path) -> None:
    put(folder, fitted("text"))
    found = strict_json(codedfl("export", "run", "model.onnx", "--json").out)
    assert found["file"] == "model.onnx"
    assert found["difference"] <= found["tolerance"] == 1e-5


def test_without_the_extra_nothing_is_written(codedfl: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder, fitted("text"))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    before = tree(folder)
    outcome = codedfl("export", "run", "model.onnx")
    assert (outcome.code, outcome.out) == (1, "")
    assert "pip install 'codedfl[export]'" in outcome.err
    assert tree(folder) == before


@pytest.fixture
def run(folder: Path) -> Path:
    """A finished run in the working directory."""
    return Path(shutil.copytree(made(), folder / "run"))


class TestFormats:
    def test_a_trace_by_its_name(self, codedfl: Command, folder: Path, run: Path) -> None:
        outcome = codedfl("export", "run", "trace.json")
        assert outcome.code == 0, outcome.err
        assert outcome.out.startswith("trace.json: ")
        assert " events; open it at " in outcome.out
        found = strict_json(codedfl("export", "run", "packed.JSON.GZ", "--to", "trace", "--json").out)
        events = strict_json(gzip.decompress((folder / "packed.JSON.GZ").read_bytes()).decode())["traceEvents"]
        assert found == {"file": "packed.JSON.GZ", "events": len(events)}

    def test_a_folder_for_tensorboard(self, codedfl: Command, folder: Path, run: Path) -> None:
        outcome = codedfl("export", "run", "logs/run", "--to", "tensorboard")
        assert outcome.code == 0, outcome.err
        assert "tensorboard --logdir logs/run" in outcome.out
        assert strict_json(codedfl("export", "run", "logs/run", "--to", "tensorboard", "--json").out)["series"] > 5

    def test_a_store_of_mlflow(self, codedfl: Command, folder: Path, run: Path) -> None:
        outcome = codedfl("export", "run", "store", "--to", "mlflow", "--json")
        assert (outcome.code, outcome.err) == (0, "")
        found = strict_json(outcome.out)
        assert found["store"] == f"sqlite:///{folder}/store/mlflow.db"
        assert (folder / "store/artifacts" / found["run"] / "artifacts/summary.json").is_file()

    def test_mlflow_without_the_extra(
        self, codedfl: Command, folder: Path, run: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "mlflow", None)
        before = tree(folder)
        outcome = codedfl("export", "run", "store", "--to", "mlflow")
        assert (outcome.code, outcome.out) == (1, "")
        assert "pip install 'codedfl[tracking]'" in outcome.err
        assert tree(folder) == before
