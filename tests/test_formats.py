"""docs/formats.md describes the files that runs really write, and no others."""

import json
import re
from pathlib import Path

import pyarrow.parquet
import pytest

import codedfl
from contracts.test_engines import chosen, given
from fleets import fleet

PAGE = (Path(__file__).parents[1] / "docs/formats.md").read_text(encoding="utf-8")
OPTIONAL = {"scoring", "deployment", "real_seconds", "preparation", "selection", "owners"}
"""Keys of summary.json that only some runs have."""


def described(section: str) -> list[str]:
    """Return the names in the first column of a section's table, in their order."""
    part = PAGE.split(f" {section}\n")[1].split("\n#")[0]
    rows = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    codedfl.run("paper-quick", path, {"scheme": "sealed-coded", "training.epochs": 2, "timing.draws": 3})
    return path


def test_files_of_a_run(simulated: Path) -> None:
    names = described("The run directory")
    written = {path.name + "/" * path.is_dir() for path in simulated.iterdir()}
    assert written <= set(names)
    of_others = {"devices.parquet", "deployment.json", "site-records.json", "repeats/N/"}
    unfinished = {"checkpoint.npz", "session.npz", ".live"}
    assert set(names) - written == of_others | unfinished


@pytest.mark.parametrize("name", ["epochs.parquet", "costs.parquet", "timeline.parquet"])
def test_columns_of_a_run(simulated: Path, name: str) -> None:
    assert described(name) == pyarrow.parquet.read_table(simulated / name).column_names


def test_keys_of_the_summary(simulated: Path) -> None:
    found = json.loads((simulated / "summary.json").read_text(encoding="utf-8"))
    assert set(described("summary.json")) - OPTIONAL == set(found)


def test_a_deployed_run(tmp_path: Path) -> None:
    with fleet(given()) as sites:
        run = sites.deploy(chosen("sealed-coded"), tmp_path / "run", check=False)
    written = {path.name + "/" * path.is_dir() for path in run.path.iterdir()}
    assert written <= set(described("The run directory"))
    assert described("devices.parquet") == pyarrow.parquet.read_table(run.path / "devices.parquet").column_names
    assert described("epochs.parquet") == list(run.epochs)
    assert set(run.summary) <= set(described("summary.json"))


def test_keys_of_the_model(simulated: Path) -> None:
    found = json.loads((simulated / "model" / "model.json").read_text(encoding="utf-8"))
    names = described("The model")
    assert set(found) == set(names)
