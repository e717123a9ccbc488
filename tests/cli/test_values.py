"""Values on the command line: how they are read, and that they reach the scenario."""

from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Command
from codedfl.cli import sweep as sweeping
from codedfl.cli.common import value_from
from codedfl.scenario import load
from rundirs import small, strict_json


class TestValues:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("0.2", 0.2),
            ("5", 5),
            ("1e-3", 0.001),
            ("true", True),
            ("[0.5, 0.9]", [0.5, 0.9]),
            ("[]", []),
            ("minibatch", "minibatch"),
            ('"5"', "5"),
            ("'a, b'", "a, b"),
            ("data/my file.csv", "data/my file.csv"),
            ("", ""),
            ("C:\\x", "C:\\x"),
        ],
    )
    def test_read_as_toml_or_else_as_text(self, text: str, value: Any) -> None:
        assert value_from(text) == value
        assert type(value_from(text)) is type(value)

    @pytest.mark.parametrize(
        ("over", "grid"),
        [
            (["links.loss=0,0.1"], {"links.loss": [0, 0.1]}),
            (["scheme=conventional,drop-slowest"], {"scheme": ["conventional", "drop-slowest"]}),
            (["scheme=conventional"], {"scheme": ["conventional"]}),
            (["name=a, b"], {"name": ["a", "b"]}),
            (['name="a, b",c'], {"name": ["a, b", "c"]}),
            (['name="a, b","c"'], {"name": ["a, b", "c"]}),
            (["training.targets=[0.5],[0.6,0.7]"], {"training.targets": [[0.5], [0.6, 0.7]]}),
            (["training.stop_at_last_target=true,false"], {"training.stop_at_last_target": [True, False]}),
            (["links.loss=0.1", "timing.seed=1,2"], {"links.loss": [0.1], "timing.seed": [1, 2]}),
            ([" links.loss = 0, 0.1 "], {"links.loss": [0, 0.1]}),
        ],
    )
    def test_axes(self, codedfl: Command, monkeypatch: pytest.MonkeyPatch, over: list[str], grid: Any) -> None:
        seen = []

        def sweep(scenario: Any, given: Any, *others: Any) -> list[Any]:
            seen.append(given)
            return []

        monkeypatch.setattr(sweeping, "sweep", sweep)
        monkeypatch.setattr(sweeping, "draw_sweep", lambda *given: None)
        options = [word for text in over for word in ("--over", text)]
        assert codedfl("sweep", *options, "--json").code == 0
        assert seen == [grid]

    def test_settings_reach_the_scenario(self, codedfl: Command, folder: Path) -> None:
        changes = {
            "scheme": "drop-slowest",
            "schemes.drop-slowest.wait_for": 3,
            "fleet.devices.1.count": 4,
            "training.targets": [0.3],
            "training.epochs": 2,
            "name": "changed",
        }
        pairs = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
        assert codedfl("run", "small.toml", *pairs, "--out", "run").code == 0
        written = load(str(folder / "run/scenario.toml"))
        assert written == small(changes)

    def test_presets_by_name(self, codedfl: Command) -> None:
        outcome = codedfl("run", "paper-quick", "--set", "training.epochs=3", "--set", "timing.draws=2", "--json")
        assert outcome.code == 0
        assert strict_json(outcome.out)["scenario"] == "paper-quick"
