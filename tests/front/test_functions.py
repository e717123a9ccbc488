"""The front door: names, paths and plain values in, runs and rows out."""

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codedfl
from codedfl.errors import CodedflWarning, MissingExtraError, UsageError
from codedfl.front import broken_ciphers
from codedfl.studies import compare as comparing
from codedfl.studies import sweep as sweeping
from rundirs import SMALL, small

FEW = {"training.epochs": 4, "timing.draws": 3}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "small.toml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def done(folder: Path) -> codedfl.Run:
    return codedfl.run("small.toml", "run", FEW)


class TestRuns:
    def test_paths_may_be_text_or_path_and_scenarios_names_or_objects(self, folder: Path, done: codedfl.Run) -> None:
        again = codedfl.run(small(FEW), folder / "run")
        assert again.summary == done.summary == codedfl.load_run("run").summary
        assert codedfl.load(folder / "small.toml") == codedfl.load("small.toml") == small()

    def test_a_run_goes_to_a_folder_of_its_own(self, folder: Path) -> None:
        made = codedfl.run("small.toml", settings=FEW)
        assert made.path == Path("runs") / f"small-minibatch-{small(FEW).id()}"

    def test_the_model_is_the_matrix_that_was_trained(self, folder: Path, done: codedfl.Run) -> None:
        with np.load(folder / "run/model.npz") as arrays:
            assert np.array_equal(done.model, arrays["theta"])
        assert done.model.shape == (30, 10)
        assert np.array_equal(codedfl.load_model("run").theta, done.model)
        assert np.array_equal(codedfl.load_model(folder / "run/model").theta, done.load_model().theta)

    def test_a_run_is_shown_in_short(self, done: codedfl.Run) -> None:
        score = f"{done.summary['final_accuracy']:.4f}"
        assert repr(done) == f"<Run of 'small' with minibatch: epochs 4, final accuracy {score}>"
        page = done._repr_html_()
        assert page.startswith("<table>")
        assert f"<th>final accuracy</th><td>{score}</td>" in page

    def test_epochs_as_a_data_frame(self, done: codedfl.Run, monkeypatch: pytest.MonkeyPatch) -> None:
        class Pandas:
            DataFrame = dict

        monkeypatch.setitem(sys.modules, "pandas", Pandas)
        assert list(done.to_pandas()) == list(done.epochs)
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(MissingExtraError, match="to_pandas needs pandas; install it with: pip install pandas"):
            done.to_pandas()


class TestWarnings:
    """A broken cipher is named wherever it is chosen; in tests a warning is an error."""

    def test_only_one_scheme_has_a_broken_cipher(self) -> None:
        (sentence,) = broken_ciphers(small(), codedfl.schemes.SCHEMES)
        assert "'code-based'" in sentence

    def test_a_scheme_is_judged_with_the_options_of_the_scenario(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a wrapping scheme is worth is known of the instance only."""
        secagg = codedfl.schemes.SCHEMES["secagg"]
        broken = property(lambda scheme: "broken" if scheme.options.inner == "minibatch" else "server sees sums")
        monkeypatch.setattr(secagg, "verdict", broken)
        assert list(broken_ciphers(small(), ["secagg"])) == []
        assert len(list(broken_ciphers(small({"schemes.secagg.inner": "minibatch"}), ["secagg"]))) == 1

    def test_run(self, folder: Path) -> None:
        with pytest.raises(CodedflWarning, match="the cipher of 'code-based' is broken"):
            codedfl.run("small.toml", settings={"scheme": "code-based"})
        assert not (folder / "runs").exists()

    def test_compare_and_sweep(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        monkeypatch.setattr(comparing, "compare", lambda *given: [])
        monkeypatch.setattr(sweeping, "sweep", lambda *given: [])
        calls: list[Any] = [
            lambda: codedfl.compare("small.toml", ["sealed", "code-based"]),
            lambda: codedfl.compare("small.toml"),
            lambda: codedfl.sweep("small.toml", {"scheme": ["sealed", "code-based"]}),
            lambda: codedfl.sweep("small.toml", {"links.loss": [0]}, settings={"scheme": "code-based"}),
        ]
        for call in calls:
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                assert call() == []
            assert [entry.category for entry in seen] == [CodedflWarning]
            assert seen[0].filename == __file__
        assert codedfl.compare("small.toml", ["sealed"]) == []


def test_wrong_names_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="nosuch"):
        codedfl.compare("small.toml", ["nosuch"])
    with pytest.raises(UsageError, match="no preset is called 'small'"):
        codedfl.run("small")
    assert [path.name for path in folder.iterdir()] == ["small.toml"]


def test_one_shot_solves_in_closed_form(folder: Path) -> None:
    run = codedfl.run("small.toml", "run", {"scheme": "one-shot"})
    assert run.summary["epochs"] == 1
    assert run.scenario.training.solver == "closed-form"
