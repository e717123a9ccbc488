"""``codedfl export``: the model of a run as ONNX."""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from sklearn.datasets import load_digits

from cli.conftest import Command
from cli.models.test_predict import put
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
