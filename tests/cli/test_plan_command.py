"""``codedfl plan``: what it prints, for people and for machines."""

from pathlib import Path

import pytest

from cli.conftest import Command
from codedfl.training.timing import first_epoch
from rundirs import SCHEMES, epochs, strict_json, summary

PLAN = ("plan", "conventional", "sealed-coded", "code-based", "-s", "small.toml")


class TestJson:
    """Standard output holds one JSON value and nothing else."""

    def test_plan(self, codedfl: Command, folder: Path) -> None:
        names = (*SCHEMES, "sealed", "sealed-coded")
        outcome = codedfl("plan", *names, "-s", "small.toml", "--epochs", "gradient-descent=9", "--json")
        assert outcome.code == 0
        found = strict_json(outcome.out)
        assert found["recommended"] == "sealed-coded"
        assert {row["scheme"] for row in found["schemes"]} == {*names}
        for row in found["schemes"]:
            assert row["low"] <= row["seconds"] <= row["high"]
            assert row["bits_per_device"] > 0
            sources = {entry["solver"]: entry["epochs_from"] for entry in row["solvers"]}
            assert sources.pop("gradient-descent") == "told by --epochs"
            assert all(source.startswith("assumed") for source in sources.values())
        assert [path.name for path in folder.iterdir()] == ["small.toml"], "a plan writes nothing"

    def test_plan_without_the_data(self, codedfl: Command) -> None:
        """The cache of this test is empty, so MNIST is not there."""
        wanted = ("plan", "conventional", "--set", "features.dimension=20", "--samples", "500", "--outputs", "10")
        outcome = codedfl(*wanted, "--draws", "2", "--epochs", "gradient-descent=3", "--json")
        assert outcome.code == 0
        found = strict_json(outcome.out)
        assert (found["samples"], found["outputs"], found["features"], found["devices"]) == (500, 10, 20, 25)
        assert {entry["solver"]: entry["epochs"] for entry in found["schemes"][0]["solvers"]}["gradient-descent"] == 3

    def test_plan_from_a_run(self, codedfl: Command, folder: Path) -> None:
        assert codedfl("run", "small.toml", "--out", "run").code == 0
        reached = first_epoch(epochs(folder / "run")["accuracy"], 0.7)
        wanted = ("plan", "minibatch", "-s", "small.toml", "--set", "training.targets=[0.7]", "--draws", "50")
        outcome = codedfl(*wanted, "--from-run", "run", "--json")
        assert outcome.code == 0
        (row,) = strict_json(outcome.out)["schemes"]
        assert row["epochs"] == reached
        assert "run (minibatch" in row["epochs_from"]
        measured = summary(folder / "run")["time_to_accuracy"]["0.7"]
        assert row["seconds"] == pytest.approx(measured, rel=1e-6), "the same draws"


class TestForPeople:
    def test_plan(self, codedfl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        outcome = codedfl(*PLAN, "--set", "schemes.code-based.n=20", "--draws", "2")
        assert outcome.code == 0
        assert "…" not in outcome.out, "a column was cut"
        assert max(map(len, outcome.out.splitlines())) <= 80
        said = " ".join(outcome.out.split())
        for words in ("recommended: sealed-coded with conjugate-gradients", "code-based cannot be used: schemes"):
            assert words in said
        for words in ("assumed: 6 in clear", "522, 564 and 866", "not encrypted", "eavesdropper: nothing"):
            assert words in said

    def test_a_plan_that_recommends_nothing(self, codedfl: Command) -> None:
        outcome = codedfl("plan", "minibatch", "-s", "small.toml", "--draws", "2")
        assert outcome.code == 0
        assert "recommended: none. No scheme whose parcels are proven to hide data" in outcome.out
