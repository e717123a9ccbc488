"""Results in notebooks: tables in which everything is text, of objects that are lists."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import config_context

import codedfl
from codedfl import Comparison, FederatedRidge, FederatedRidgeClassifier
from codedfl.front.results import SweepRows
from report.exports.made import HOSTILE
from rundirs import SMALL, InlinePool

FEW = {"training.epochs": 4, "training.targets": [0.5], "timing.draws": 3, "timing.repeats": 1}
RNG = np.random.default_rng(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("results")
    (place / "small.toml").write_text(SMALL)
    return place


@pytest.fixture(scope="module")
def rows(folder: Path) -> Comparison:
    return codedfl.compare(folder / "small.toml", ["conventional"], folder / "compare", FEW)


def harmless(page: str) -> bool:
    return "<script>alert" not in page and "<img" not in page and "&lt;script&gt;" in page


class TestComparison:
    def test_it_is_the_list_that_it_was(self, rows: Comparison, folder: Path) -> None:
        plain = list(rows)
        assert isinstance(rows, list)
        assert rows == plain
        assert plain == rows
        assert json.loads(json.dumps(rows)) == json.loads((folder / "compare/compare.json").read_text())
        assert rows[0]["scheme"] == "minibatch"
        assert [row["scheme"] for row in rows[1:]] == ["conventional"]
        assert pickle.loads(pickle.dumps(rows)) == copy.deepcopy(rows) == rows

    def test_it_is_short(self, rows: Comparison) -> None:
        assert repr(rows) == "<Comparison of 2 schemes: minibatch, conventional>"
        assert repr(Comparison(rows[:1])) == "<Comparison of 1 scheme: minibatch>"

    def test_a_table(self, rows: Comparison) -> None:
        page = rows._repr_html_()
        assert page.startswith(
            "<table><thead><tr><th>scheme</th><th>epochs</th><th>final score</th><th>time to 0.5</th>"
        )
        assert page.count("<tr>") == 3
        assert f"<td>{rows[0]['final_accuracy']:.4f}</td>" in page
        assert "<td>1.00x</td>" in page
        assert "noise" not in page

    def test_refused_schemes_noise_and_several_fleets(self, rows: Comparison) -> None:
        noisy = {"privacy": {"epsilon": 2.0, "delta": 1e-5, "known_seed": False}}
        empty = dict.fromkeys(("time_to_accuracy", "time_to_accuracy_band", "bits_sent", "speedup", "epochs"))
        refused = {**rows[1], **empty, "refused": f"no {HOSTILE}", "fleet": HOSTILE}
        page = Comparison([{**rows[0], **noisy}, refused])._repr_html_()
        assert "<th>fleet</th><th>scheme</th>" in page
        assert "epsilon 2, delta 1e-05" in page or "epsilon 2.0" in page
        assert "<td>no result: no &lt;script&gt;" in page
        assert harmless(page)

    def test_nothing_compared(self) -> None:
        assert repr(Comparison()) == "<Comparison of 0 schemes: >"
        assert Comparison()._repr_html_().startswith("<table>")

    def test_hostile_names_are_text(self, rows: Comparison) -> None:
        assert harmless(Comparison([{**rows[0], "scheme": HOSTILE, "verdict": HOSTILE}])._repr_html_())


def test_a_sweep(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codedfl.studies.processes.ProcessPoolExecutor", InlinePool)
    rows = codedfl.sweep(folder / "small.toml", {"links.loss": [0.1, 0.2]}, folder / "sweep", FEW, workers=1)
    assert rows == json.loads((folder / "sweep/sweep.json").read_text())
    assert repr(rows) == "<SweepRows of 2 combinations of links.loss>"
    page = rows._repr_html_()
    assert page.startswith("<table><thead><tr><th>links.loss</th><th>scheme</th>")
    assert "<td>0.2</td><td>minibatch</td>" in page
    hostile: list[dict[str, Any]] = [{**rows[0], "settings": {HOSTILE: HOSTILE, "scheme": HOSTILE}}]
    assert harmless(SweepRows(hostile)._repr_html_())
    assert SweepRows()._repr_html_().startswith("<table>")


class TestEstimators:
    X, Y = RNG.normal(size=(30, 3)), RNG.normal(size=30)

    def test_a_fitted_estimator_shows_what_it_took(self) -> None:
        made = FederatedRidge(random_state=0)
        assert "the server sees" not in made._repr_html_()
        page = made.fit(self.X, self.Y)._repr_html_()
        assert "sk-top-container" in page
        assert f"<th>scheme</th><td>{made.report_['scheme']}</td>" in page
        assert "<th>virtual time</th>" in page
        assert made._repr_mimebundle_()["text/html"].endswith(page[page.index("<table><tr><th>scheme") :])

    def test_scikit_learn_may_be_told_to_show_text_only(self) -> None:
        made = FederatedRidge(random_state=0).fit(self.X, self.Y)
        with config_context(display="text"):
            assert not hasattr(made, "_repr_html_")
            assert list(made._repr_mimebundle_()) == ["text/plain"]

    def test_noise_is_named(self) -> None:
        made = FederatedRidge(epsilon=2.0, ranges={"*": (-5, 5), "y": (-5, 5)}, random_state=0).fit(self.X, self.Y)
        assert "<th>noise</th><td>epsilon 2" in made._repr_html_()

    def test_hostile_columns_classes_and_owners_are_text(self) -> None:
        import pandas as pd

        frame = pd.DataFrame(self.X, columns=[HOSTILE, "b", "c"])
        labels, owners = np.where(self.Y > 0, HOSTILE, "no"), np.array([HOSTILE, "anna", "bert"] * 10)
        made = FederatedRidgeClassifier(random_state=0, settings={"name": "x"}).fit(frame, labels, owners)
        for page in (made._repr_html_(), made._repr_mimebundle_()["text/html"]):
            assert "<script>alert" not in page
            assert "<img src=x" not in page
