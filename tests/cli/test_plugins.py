"""Plug-ins: a file that registers schemes reaches every process that a command, or a call from Python, starts.

The processes of a deployment: test_deploying.py.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rundirs import SMALL, environment, strict_json

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-scheme.md"
FEW = ("--set", "training.epochs=4", "--set", "timing.draws=3")
EXAMPLE = "half-precision"


def write_plugin(path: Path) -> None:
    """The example of the page as a plug-in."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    path.write_text(f"{block}\n\nfrom codedfl import schemes\n\nschemes.register(HalfPrecision)\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with a scenario and a plug-in."""
    write_plugin(tmp_path / "mine.py")
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


def python(folder: Path, *words: str) -> str:
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("run", "small.toml", "--set", f"scheme={EXAMPLE}"),
        ("sweep", "small.toml", "--over", f"scheme={EXAMPLE}", "--workers", "1"),
        ("compare", "small.toml", EXAMPLE),
    ],
    ids=lambda words: words[0],
)
def test_a_command_trains_the_scheme_of_a_file(folder: Path, words: tuple[str, ...]) -> None:
    found = strict_json(python(folder, "-m", "codedfl.cli", *words, *FEW, "--plugin", "mine.py", "--json"))
    assert (found if isinstance(found, list) else [found])[-1]["scheme"] == EXAMPLE


SWEEP = """
import codedfl, json
from codedfl import schemes

{indent}schemes.load_plugin("mine.py")
if __name__ == "__main__":
    grid = {{"scheme": ["half-precision", "minibatch"], "links.loss": [0, 0.1]}}
    rows = codedfl.sweep("small.toml", grid, "out", {{"training.epochs": 4, "timing.draws": 3}}, workers=2)
    print(json.dumps([row["scheme"] for row in rows]))
"""


@pytest.mark.parametrize("indent", ["", 'if __name__ == "__main__": '], ids=["everywhere", "in the main process"])
def test_a_sweep_from_python_hands_plugins_to_its_processes(folder: Path, indent: str) -> None:
    """Also where its processes, which run the script up to the guard, have loaded the file already."""
    (folder / "study.py").write_text(SWEEP.format(indent=indent))
    assert strict_json(python(folder, "study.py")) == [EXAMPLE] * 2 + ["minibatch"] * 2
