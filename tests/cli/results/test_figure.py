"""``codedfl figure``: every folder and every kind, sizes and formats, numbers, and what is refused."""

import csv
import io
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from cli.conftest import Command
from codedfl import storage
from codedfl.progress import silent
from codedfl.runs import load
from codedfl.studies.compare import compare
from codedfl.studies.sweep import sweep
from rundirs import small, small_run, strict_json, tree

HOSTILE = r"50%_of {a} & #b \c $x"
FEW = {"training.epochs": 30, "timing.draws": 8}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, a comparison and a sweep; tests copy what they need."""
    place = tmp_path_factory.mktemp("made")
    small_run(place / "first", FEW)
    small_run(place / "second", FEW | {"scheme": "conventional"})
    small_run(place / HOSTILE, FEW)
    small_run(place / "named", FEW | {"name": "a_b"})
    compare(small(FEW), ["conventional", "drop-slowest"], place / "compared", silent)
    sweep(small(FEW), {"links.loss": [0, 0.1]}, place / "swept", silent, workers=1)
    return place


@pytest.fixture
def results(made: Path, folder: Path) -> Path:
    """Results in the working directory."""
    shutil.copytree(made, folder, dirs_exist_ok=True)
    return folder


def numbers(folder: Path, name: str = "figure.csv") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((folder / name).read_text())))


def words(text: str) -> set[str]:
    """The texts of an SVG file."""
    return {re.sub(r"<[^>]+>", "", found) for found in re.findall(r"<text.*?</text>", text, re.DOTALL)}


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        (("first",), ("accuracy", "traffic", "timeline")),
        (("first", "second"), ("accuracy", "traffic")),
        (("compared",), ("accuracy", "times", "traffic")),
        (("swept",), ("sweep",)),
    ],
)
def test_every_kind_of_every_folder(codedfl: Command, results: Path, given: tuple[str, ...], kinds: Any) -> None:
    before = tree(results)
    for kind in kinds:
        for style in ("paper", "screen"):
            outcome = codedfl("figure", *given, "--kind", kind, "--style", style, "--format", "svg", "--json")
            assert outcome.code == 0, outcome.err
            assert outcome.err == ""
            found = strict_json(outcome.out)
            assert (found["file"], found["kind"], found["format"]) == ("figure.svg", kind, "svg")
            assert found["numbers"]
            (results / "figure.svg").unlink()
        assert codedfl("figure", *given, "--kind", kind, "--format", "tex").code == 0
        assert r"\begin{tabular}" in (results / "figure.tex").read_text()
        (results / "figure.tex").unlink()
    assert tree(results) == before, "nothing else is written"


def test_the_default_is_a_pdf_beside_the_working_directory(codedfl: Command, results: Path) -> None:
    outcome = codedfl("figure", "first")
    assert outcome.code == 0
    assert "figure.pdf" in outcome.out
    assert (results / "figure.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("width", "inches"), [("3.5in", 3.5), ("89mm", 89 / 25.4), ("8.9cm", 8.9 / 2.54), ("252pt", 252 / 72.27)]
)
def test_widths(codedfl: Command, results: Path, width: str, inches: float) -> None:
    outcome = codedfl("figure", "first", "--width", width, "--height", "2in", "--out", "it.svg", "--json")
    found = strict_json(outcome.out)
    assert found["width_in"] == pytest.approx(inches)
    assert found["height_in"] == 2
    shown = re.search(r'width="([0-9.]+)pt" height="([0-9.]+)pt"', (results / "it.svg").read_text())
    assert shown
    assert [float(number) / 72 for number in shown.groups()] == [pytest.approx(inches, rel=1e-4), pytest.approx(2)]


def test_labels_are_schemes_scenarios_or_folders(codedfl: Command, results: Path) -> None:
    for given, labels in (
        (("first", "second"), {"minibatch", "conventional"}),
        (("first", "named"), {"small, minibatch", "a_b, minibatch"}),
        (("first", HOSTILE), {"first", r"50%_of {a} &amp; #b \c $x"}),
    ):
        assert codedfl("figure", *given, "--style", "screen", "--format", "svg").code == 0
        shown = " ".join(words((results / "figure.svg").read_text()))
        assert all(label in shown for label in labels)
    shutil.copytree(results / "first", results / "other/first")
    assert codedfl("figure", "first", "other/first", "--format", "csv").code == 0
    assert {row["label"] for row in numbers(results)} == {"first", "other/first"}


def test_numbers_are_those_of_the_run(codedfl: Command, results: Path) -> None:
    assert codedfl("figure", "first", "--format", "csv").code == 0
    rows = numbers(results)
    run = load(results / "first")
    for target, seconds in run.summary["time_to_accuracy"].items():
        (row,) = [row for row in rows if row["quantity"] == f"time to accuracy {float(target):g} (s)"]
        if seconds is None:
            assert row["value"] == "not reached"
        else:
            # timings are kept in float32
            assert float(row["value"]) == pytest.approx(seconds, rel=1e-6)
    points = [row for row in rows if row["x"]]
    assert 10 < len(points) <= 400
    assert float(points[-1]["value"]) == pytest.approx(run.epochs["accuracy"][-1], abs=0.05)


def test_a_target_of_ones_own(codedfl: Command, results: Path) -> None:
    assert codedfl("figure", "first", "--target", "0.6", "--format", "csv").code == 0
    assert [row["quantity"] for row in numbers(results) if not row["x"]] == [
        "time to accuracy 0.6 (s)",
        "final accuracy",
    ]


def test_a_hostile_name_in_latex(codedfl: Command, results: Path) -> None:
    assert codedfl("figure", "first", HOSTILE, "--format", "tex").code == 0
    text = (results / "figure.tex").read_text()
    assert r"50\%\_of \{a\} \& \#b \textbackslash{}c \$x & " in text


def test_an_overlay_is_drawn(codedfl: Command, results: Path) -> None:
    (results / "mine.csv").write_text("label,time,accuracy\nfield trial,1,0.6\nfield trial,2,0.7\n")
    assert codedfl("figure", "first", "--overlay", "mine.csv", "--format", "svg").code == 0
    assert "field trial" in words((results / "figure.svg").read_text())
    (results / "own.csv").write_text("label,x,y\ntheirs,0.05,1\n")
    assert codedfl("figure", "swept", "--overlay", "own.csv", "--format", "svg").code == 0
    assert "theirs" in words((results / "figure.svg").read_text())


def test_quantities_of_a_sweep(codedfl: Command, results: Path) -> None:
    for quantity, words_of in (("accuracy", "final test accuracy"), ("bits", "megabits")):
        outcome = codedfl("figure", "swept", "--y", quantity, "--json", "--format", "svg")
        assert words_of in strict_json(outcome.out)["numbers"][0]["quantity"]


def test_a_sweep_draws_the_quantity_asked_for(codedfl: Command, folder: Path) -> None:
    few = ("--set", "training.epochs=3", "--set", "timing.draws=2", "--workers", "1", "--out", "out", "--json")
    assert codedfl("sweep", "small.toml", "--over", "links.loss=0,0.1", "--y", "bits", *few).code == 0
    assert "megabits" in (folder / "out/sweep.svg").read_text()


class TestRefusals:
    """Of finished runs; the rest is among all wrong input."""

    def refuse(self, codedfl: Command, folder: Path, *command: str, code: int, says: str) -> None:
        before = tree(folder)
        outcome = codedfl("figure", *command)
        assert outcome.code == code, outcome.err
        assert outcome.out == ""
        (line,) = outcome.err.splitlines()
        assert says in line
        assert tree(folder) == before

    def test_several_timelines(self, codedfl: Command, results: Path) -> None:
        self.refuse(codedfl, results, "first", "second", "--kind", "timeline", code=2, says="name one of them")

    def test_no_handovers(self, codedfl: Command, results: Path) -> None:
        self.refuse(codedfl, results, "first", "--kind", "handovers", code=2, says="no device of 'first' hands over")

    def test_no_timeline(self, codedfl: Command, results: Path) -> None:
        (results / "first/timeline.parquet").unlink()
        self.refuse(codedfl, results, "first", "--kind", "timeline", code=1, says="no timeline.parquet")

    def test_a_damaged_timeline(self, codedfl: Command, results: Path) -> None:
        (results / "first/timeline.parquet").write_bytes(b"PAR1")
        self.refuse(codedfl, results, "first", "--kind", "timeline", code=1, says="damaged")

    def test_a_quantity_of_a_run(self, codedfl: Command, results: Path) -> None:
        self.refuse(
            codedfl, results, "first", "--y", "bits", code=2, says="--y bits has no meaning for --kind accuracy"
        )

    def test_an_overlay_on_traffic(self, codedfl: Command, results: Path) -> None:
        command = ("first", "--kind", "traffic", "--overlay", "small.toml")
        self.refuse(codedfl, results, *command, code=2, says="--overlay small.toml has no meaning")

    def test_a_folder_beside_a_run(self, codedfl: Command, results: Path) -> None:
        self.refuse(codedfl, results, "first", "swept", code=2, says="'swept' is an output folder of sweep")

    def test_runs_without_test_data(self, codedfl: Command, results: Path) -> None:
        table = pyarrow.parquet.read_table(results / "first/epochs.parquet")
        columns = {name: table[name].to_numpy() for name in table.column_names}
        columns["accuracy"] = np.full_like(columns["accuracy"], np.nan)
        storage.write_parquet(results / "first/epochs.parquet", columns)
        self.refuse(codedfl, results, "first", code=2, says="has no accuracy in any epoch")

    def test_without_matplotlib(self, codedfl: Command, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        self.refuse(codedfl, results, "first", code=1, says="pip install 'codedfl[plots]'")
        assert codedfl("figure", "first", "--format", "csv").code == 0, "numbers need none"
