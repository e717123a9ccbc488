"""What all commands share: how a scenario is named, sizes of fleets, help, completion, warnings, settings."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from cli.conftest import Command
from codedfl.cli import COMMANDS
from codedfl.cli import security as judging
from codedfl.cli.run import run_table
from codedfl.cli.settings import every_setting, settings_page
from codedfl.scenario import Scenario, load, preset_names
from codedfl.schemes import SCHEMES
from rundirs import InlinePool, environment, strict_json, summary

FEW = ("--set", "training.epochs=4", "--set", "timing.draws=3")
BROKEN = "warning: the cipher of 'code-based' is broken"
DOCS = Path(__file__).parents[2] / "docs"


class TestScenario:
    @pytest.mark.parametrize("named", [("small.toml",), ("-s", "small.toml"), ("--scenario", "small.toml")])
    def test_of_a_run(self, codedfl: Command, named: tuple[str, ...]) -> None:
        outcome = codedfl("run", *named, *FEW, "--json")
        assert outcome.code == 0, outcome.err
        assert strict_json(outcome.out)["scenario"] == "small"

    @pytest.mark.parametrize("named", [("small.toml", "minibatch"), ("minibatch", "-s", "small.toml")])
    @pytest.mark.parametrize("command", ["compare", "plan"])
    @pytest.mark.usefixtures("no_figures")
    def test_beside_schemes(self, codedfl: Command, command: str, named: tuple[str, ...]) -> None:
        outcome = codedfl(command, *named, *FEW, "--json")
        assert outcome.code == 0, outcome.err
        found = strict_json(outcome.out)
        rows = found if command == "compare" else found["schemes"]
        assert [row["scheme"] for row in rows] == ["minibatch"]

    @pytest.mark.parametrize("named", [("small.toml",), ("-s", "small.toml")])
    @pytest.mark.usefixtures("no_figures")
    def test_of_a_sweep(self, codedfl: Command, named: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("codedfl.studies.processes.ProcessPoolExecutor", InlinePool)
        outcome = codedfl("sweep", *named, "--over", "links.loss=0.1", *FEW, "--json")
        assert outcome.code == 0, outcome.err
        assert [row["scenario"] for row in strict_json(outcome.out)] == ["small"]

    @pytest.mark.parametrize("named", [("sealed",), ("-s", "sealed")])
    def test_to_judge(self, codedfl: Command, named: tuple[str, ...]) -> None:
        assert [row["preset"] for row in strict_json(codedfl("security", *named, "--json").out)] == ["sealed"]


class TestDevices:
    def test_a_run_on_more_or_fewer_devices(self, codedfl: Command, folder: Path) -> None:
        for devices in (2, 9):
            assert codedfl("run", "small.toml", "--devices", str(devices), *FEW, "--out", str(devices)).code == 0
            scaled = load(folder / f"{devices}/scenario.toml")
            assert scaled == load("small.toml").with_settings({"training.epochs": 4, "timing.draws": 3}).with_devices(
                devices
            )
            assert scaled.fleet.size == devices

    def test_of_a_plan_and_a_statement(self, codedfl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        assert strict_json(codedfl("plan", "small.toml", "minibatch", "--devices", "7", "--json").out)["devices"] == 7
        seen: list[int] = []
        statement = judging.statement
        monkeypatch.setattr(judging, "statement", lambda found: seen.append(found.fleet.size) or statement(found))
        assert codedfl("security", "sealed", "--devices", "7").code == 0
        assert seen == [7]


GROUPS = ("data", "deploy", "fleet", "site")


class TestHelp:
    @pytest.mark.parametrize("name", COMMANDS)
    def test_the_list_says_what_the_command_says(self, name: str) -> None:
        module = importlib.import_module(f"codedfl.cli.{COMMANDS[name].module or name}")
        found: Any = getattr(module, f"{name}_{'app' if name in GROUPS else 'command'}")
        text = found.info.help if isinstance(found, typer.Typer) else inspect.getdoc(found)
        assert text.splitlines()[0] == COMMANDS[name].summary

    @pytest.mark.parametrize("name", COMMANDS)
    def test_examples_stand_in_the_help_and_name_what_there_is(
        self, codedfl: Command, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        shown = codedfl(name, "--help").out
        for example in COMMANDS[name].examples:
            assert f"  codedfl {example}\n" in shown
            assert example.split()[0] == name
            unknown = [word for word in example.split()[1:] if word.startswith("--") and word not in shown]
            assert unknown == [] or name in GROUPS, "a group lists no options of its commands"
        assert "..." not in shown.replace("]...", ""), "something was cut"


@pytest.mark.real
class TestCompletion:
    """The shell asks in environment variables what may come next."""

    def complete(self, folder: Path, words: str) -> set[str]:
        last = str(len(words.split(" ")) - 1)
        asked = {"_CODEDFL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": last}
        code = "import sys; sys.argv[0] = 'codedfl'; from codedfl.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code], env={**environment(), **asked}, cwd=folder, capture_output=True, text=True
        )
        assert done.stderr == ""
        return set(done.stdout.split())

    def test_commands(self, folder: Path) -> None:
        assert self.complete(folder, "codedfl ") == set(COMMANDS)
        assert self.complete(folder, "codedfl se") == {"security", "settings"}

    def test_scenarios_and_schemes(self, folder: Path) -> None:
        assert self.complete(folder, "codedfl run ") == {*preset_names(), "small.toml"}
        assert self.complete(folder, "codedfl run -s seal") == {"sealed", "sealed-coded"}
        assert self.complete(folder, "codedfl compare co") == {"conventional", "coded-padded", "code-based"}

    def test_options(self, folder: Path) -> None:
        assert self.complete(folder, "codedfl run --dev") == {"--devices"}

    def test_the_script_is_printed(self) -> None:
        command = [sys.executable, "-m", "codedfl.cli", "--show-completion", "bash"]
        shown = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
        assert (
            "--install-completion"
            in subprocess.run(
                [*command[:3], "--help"], env=environment(), capture_output=True, text=True, check=True
            ).stdout
        )
        assert "Traceback" not in shown.stderr


class TestWarnings:
    def test_settings_of_schemes_that_are_not_used_are_named(self, codedfl: Command) -> None:
        unused = ("--set", "schemes.sealed.delta=2", "--set", "schemes.minibatch.parts=2")
        outcome = codedfl("run", "small.toml", *FEW, *unused, "--json")
        assert outcome.code == 0
        assert outcome.err == "warning: schemes.sealed.delta is not used: the scheme is minibatch\n"
        inside = ("--set", "scheme=secagg", "--set", "schemes.secagg.inner=minibatch")
        inside += ("--set", "schemes.minibatch.parts=2")
        assert codedfl("run", "small.toml", *FEW, *inside, "--out", "out").err == "", "the scheme inside is used"

    def test_they_are_named_where_several_schemes_run(self, codedfl: Command) -> None:
        unused = ("--set", "schemes.sealed.delta=2", "--set", "schemes.conventional={}")
        outcome = codedfl("plan", "small.toml", "conventional", "--draws", "2", *unused, "--json")
        assert outcome.err == "warning: schemes.sealed.delta is not used: the scheme is conventional\n"
        both = ("plan", "small.toml", "conventional", "sealed", "--draws", "2")
        assert codedfl(*both, *unused, "--json").err == ""

    def test_a_broken_cipher(self, codedfl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("codedfl.cli.sweep.sweep", lambda *given: [])
        monkeypatch.setattr("codedfl.cli.sweep.draw_sweep", lambda *given: None)
        chosen = ("sweep", "small.toml", "--json")
        assert BROKEN in codedfl(*chosen, "--over", "scheme=sealed,code-based").err
        assert BROKEN in codedfl(*chosen, "--over", "links.loss=0", "--set", "scheme=code-based").err
        assert codedfl(*chosen, "--over", "scheme=sealed").err == ""


class TestWords:
    @pytest.mark.usefixtures("no_figures")
    def test_a_run_that_only_models_costs_says_so(self, codedfl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        costs = ("--set", "schemes.he.backend=costs")
        said = codedfl("run", "small.toml", "--set", "scheme=he", *costs, *FEW).out
        assert "models costs only" in said
        compared = codedfl("compare", "small.toml", "he", *costs, *FEW).out
        row = next(line for line in compared.partition("megabytes")[2].splitlines() if line.startswith("  he "))
        assert "models" in row
        assert "…" not in compared
        assert "server sees replies" in codedfl("run", "small.toml", "--set", "scheme=sealed", *FEW).out

    def test_without_test_data_nothing_is_known_of_accuracy(self, codedfl: Command, folder: Path) -> None:
        assert codedfl("run", "small.toml", "--out", "run").code == 0
        found = summary(folder / "run")
        times = dict.fromkeys(found["time_to_accuracy"])
        blind = found | {"final_accuracy": None, "time_to_accuracy": times, "time_to_accuracy_band": times}
        cells = [str(cell) for column in run_table(blind).columns for cell in column.cells]
        assert cells.count("not known") == 1 + len(times)
        assert "never" not in cells

    def test_thousands_of_epochs(self, codedfl: Command) -> None:
        outcome = codedfl("run", "small.toml", "--set", "training.epochs=1e1", "--json")
        assert strict_json(outcome.out)["epochs"] == 10


class TestSettings:
    def test_every_key_of_every_preset_and_scheme_is_described(self) -> None:
        known = {setting.key for setting in every_setting()}
        table = load("paper").to_table()
        for section, values in table.items():
            if section not in ("schemes", "fleet", "name", "scheme"):
                assert {f"{section}.{key}" for key in values} <= known
        for name in SCHEMES:
            options = load("paper").with_settings({"scheme": name}).options()
            assert {f"schemes.{name}.{key}" for key in options.to_table()} <= known
        assert {"fleet.devices.mac_rate", "fleet.server_mac_rate", "scheme"} <= known

    def test_everything_has_a_meaning(self) -> None:
        for setting in every_setting():
            assert setting.meaning.endswith("."), setting.key
            assert len(setting.meaning) > 10, setting.key

    def test_defaults_are_those_of_an_empty_scenario(self) -> None:
        empty = Scenario(fleet={"devices": [{"mac_rate": 1e6}]}).to_table()
        for setting in every_setting():
            table, _, key = setting.key.rpartition(".")
            if table in ("data", "partition", "features", "task", "links", "timing"):
                assert setting.default == empty[table].get(key)  # what is unset is not written
        required = [setting.key for setting in every_setting() if setting.required]
        own = ["features.categories.column", "features.categories.values"]
        own += [f"privacy.columns.{name}" for name in ("name", "low", "high")]
        assert required == [*own, "fleet.devices", "fleet.devices.mac_rate"]

    def test_for_people(self, codedfl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        outcome = codedfl("settings", "training.epochs")
        assert outcome.out == (
            "training.epochs = 1000\n  a whole number at least 1 and at most 1000000\n"
            "  Upper limit on the number of epochs.\n"
        )
        everything = codedfl("settings").out
        assert "schemes.code-based.n = 4000\n" in everything
        assert "fleet.devices.loss = (unset)\n" in everything
        assert "fleet.devices.mac_rate = (required)\n" in everything

    def test_for_machines(self, codedfl: Command) -> None:
        (row,) = strict_json(codedfl("settings", "links.loss", "--json").out)
        assert row == {
            "key": "links.loss",
            "type": "a number at least 0 and below 1",
            "default": 0.1,
            "required": False,
            "meaning": "Probability that a transmission fails and is repeated.",
        }
        rows = strict_json(codedfl("settings", "schemes.minibatch", "--json").out)
        assert [row["key"] for row in rows] == ["schemes.minibatch.parts"]
        assert strict_json(codedfl("settings", "fleet.devices.0.count", "--json").out)[0]["default"] == 1

    def test_the_page_is_what_the_command_prints(self, codedfl: Command) -> None:
        page = (DOCS / "settings.md").read_text(encoding="utf-8")
        assert settings_page(every_setting()) == page, "run `make docs`"
        assert codedfl("settings", "--markdown").out == page
