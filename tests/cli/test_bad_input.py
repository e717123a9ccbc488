"""Wrong input of every kind: one sentence, exit code 1 or 2, nothing on the output, nothing written."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Command
from cli.wrong import FOLDER, Wrong
from cli.wrong.clusters import CLUSTERS
from cli.wrong.data import DATA
from cli.wrong.figures import FIGURES
from cli.wrong.fleets import FLEETS
from cli.wrong.models import MODELS
from cli.wrong.owners import OWNERS
from cli.wrong.pages import PAGES
from cli.wrong.privacy import PRIVACY
from cli.wrong.settings import SCENARIOS, SETTINGS, USAGE
from codedfl import storage as whole_files
from codedfl.studies import cluster
from rundirs import SMALL, tree
from tiny import is_one_sentence

RUN = ("run", "small.toml", "--out")
PLACES = {
    "a file": Wrong((*RUN, "mine"), 1, ("'mine'", "--out"), {"mine": "text"}),
    "a folder of others": Wrong((*RUN, "mine"), 1, ("'mine'", "--out"), {"mine/notes.txt": "text"}),
    "below a file": Wrong((*RUN, "mine/run"), 1, ("mine/run", "--out"), {"mine": "text"}),
    "below a device": Wrong((*RUN, "/dev/null/run"), 1, ("/dev/null/run", "--out")),
    "a name too long": Wrong((*RUN, "n" * 300), 1, ("too long", "--out")),
    "compare into a file": Wrong(("compare", "-s", "small.toml", "--out", "mine"), 1, ("mine",), {"mine": "text"}),
    "sweep into a file": Wrong(
        ("sweep", "-s", "small.toml", "--over", "links.loss=0.1", "--out", "mine"), 1, ("mine",), {"mine": "text"}
    ),
    "reproduce into a file": Wrong(("reproduce", "--quick", "--out", "mine"), 1, ("mine",), {"mine": "text"}),
    "another scenario": Wrong(
        (*RUN, "mine"), 1, ("mine", "another"), {"mine/scenario.toml": SMALL.replace("epochs = 24", "epochs = 25")}
    ),
    "a scenario that is none": Wrong((*RUN, "mine"), 1, ("mine",), {"mine/scenario.toml": "not = = toml"}),
}
LOCAL = ("deploy", "local", "small.toml")
KIT = ("deploy", "kit", "kits", "--scenario", "small.toml")
DEPLOYMENTS = {
    "no devices": Wrong((*LOCAL, "--devices", "0"), 2, ("--devices 0", "from 1 to 100000")),
    "a scenario twice": Wrong((*LOCAL, "-s", "small.toml"), 2, ("small.toml", "name it once")),
    "time that stands still": Wrong((*LOCAL, "--emulate", "0"), 2, ("--emulate 0", "above 0")),
    "time that is no number": Wrong((*LOCAL, "--emulate", "nan"), 2, ("--emulate nan", "above 0")),
    "slow links in no slow fleet": Wrong((*LOCAL, "--kernel-links"), 2, ("--kernel-links", "add --emulate SCALE")),
    "data that are elsewhere": Wrong((*LOCAL, "--set", "data.source=sites"), 2, ("'sites'", "deploy kit")),
    "a place that is a file": Wrong((*LOCAL, "--out", "mine"), 1, ("'mine'", "--out"), {"mine": "text"}),
    "a place of others": Wrong((*LOCAL, "--out", "mine"), 1, ("'mine'", "--out"), {"mine/notes.txt": "text"}),
    "no such scenario": Wrong(("deploy", "local", "nothing"), 2, ("nothing",)),
    "kits where something is": Wrong(KIT, 2, ("'kits'", "empty"), {"kits/notes.txt": "text"}),
    "kits for too few": Wrong((*KIT, "--devices", "5", "--site", "a", "--site", "b"), 2, ("2 sites", "5 devices")),
    "kits with one name twice": Wrong((*KIT, "--site", "a", "--site", "a"), 2, ("a name of its own",)),
    "kits with a name that is none": Wrong((*KIT, "--site", "A b"), 2, ("'A b'", "lower-case")),
    "kits with no port": Wrong((*KIT, "--port", "0"), 2, ("0 is not a port",)),
    **{
        f"{name} without kits": Wrong(("deploy", name, "kits"), 1, ("'kits'", "no start-up kits"))
        for name in ("start", "train", "status", "stop")
    },
}
TAKEN = """
from codedfl import schemes
from codedfl.schemes.plain.conventional import Conventional
schemes.register(type("Mine", (Conventional,), {"name": "minibatch"}))
"""
PLUGINS = {
    f"{name} for {' '.join(words[:2])}": Wrong((*words, "--plugin", "mine.py"), 2, ("mine.py",), files)
    for words in (
        ("run", "small.toml"),
        ("compare", "small.toml"),
        ("plan", "small.toml"),
        ("sweep", "small.toml", "--over", "links.loss=0"),
        ("security", "paper-92"),
        ("settings",),
        ("attack", "small.toml"),
        LOCAL,
        KIT,
        ("deploy", "start", "kits"),
        ("deploy", "train", "kits"),
    )
    for name, files in {
        "no plug-in": {},
        "a plug-in that is no Python": {"mine.py": "no Python"},
        "a plug-in that does not import": {"mine.py": "import nosuchmodule"},
        "a plug-in that exits": {"mine.py": "raise SystemExit"},
        "a plug-in without schemes": {"mine.py": "x = 1"},
    }.items()
} | {
    f"a name that is taken for {' '.join(words)}": Wrong(
        (*words, "--plugin", "mine.py"), 2, ("'minibatch'",), {"mine.py": TAKEN}
    )
    for words in (("settings",), LOCAL)
}
TABLE = [
    pytest.param(wrong, id=f"{group}: {name}")
    for group, rows in (
        *(("usage", USAGE), ("setting", SETTINGS), ("scenario", SCENARIOS)),
        *(("data", DATA), ("place", PLACES), ("deployment", DEPLOYMENTS), ("plug-in", PLUGINS)),
        ("model", MODELS),
        ("owners", OWNERS),
        ("figure", FIGURES),
        ("fleet", FLEETS),
        ("page", PAGES),
        ("cluster", CLUSTERS),
        ("privacy", PRIVACY),
    )
    for name, wrong in rows.items()
]


def put(folder: Path, files: Mapping[str, str | bytes | None]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is FOLDER:
            path.mkdir()
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)


def refused(err: str, *, narrated: bool = False) -> str:
    """Return the one sentence on the error stream."""
    lines = err.splitlines()
    assert "Traceback" not in err
    assert lines, "it says nothing"
    assert lines[-1].startswith("codedfl: ")
    assert is_one_sentence(lines[-1])
    assert narrated or len(lines) == 1, f"more than the one line: {err!r}"
    assert not [line for line in lines[:-1] if line.startswith("codedfl: ")]
    return lines[-1]


@pytest.mark.parametrize("wrong", TABLE)
def test_wrong_input(codedfl: Command, folder: Path, wrong: Wrong, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_PATIENCE", 0.5)  # a port where nobody listens refuses at once, and every time
    put(folder, wrong.files)
    before = tree(folder.parent)
    outcome = codedfl(*wrong.command)
    assert outcome.code == wrong.code, outcome.err
    assert outcome.out == ""
    sentence = refused(outcome.err, narrated=wrong.narrated)
    for words in wrong.says:
        assert words in sentence
    assert tree(folder.parent) == before, "something was written"


@pytest.mark.parametrize("command", [(), ("data",), ("deploy",)])
def test_a_bare_command_shows_its_help(codedfl: Command, folder: Path, command: tuple[str, ...]) -> None:
    outcome = codedfl(*command)
    assert outcome.code in (0, 2)
    assert "Usage:" in outcome.out + outcome.err
    assert "codedfl: Usage" not in outcome.err


def test_a_corrected_command_may_use_the_same_place(codedfl: Command) -> None:
    command = ("run", "small.toml", "--out", "out", "--set")
    assert codedfl(*command, "schemes.minibatch.parts=1000").code == 2
    assert codedfl(*command, "schemes.minibatch.parts=2").code == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_place_that_may_not_be_written(codedfl: Command, folder: Path) -> None:
    (folder / "closed").mkdir(mode=0o555)
    outcome = codedfl(*RUN, "closed/run")
    assert outcome.code == 1
    assert "closed/run" in refused(outcome.err)


@pytest.mark.parametrize("which", [1, 2, 3])
def test_a_full_disk(codedfl: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, which: int) -> None:
    """The first, second or third file of a run finds no room."""
    replace, count = os.replace, 0

    def full(*arguments: Any) -> None:
        nonlocal count
        count += 1
        if count == which:
            raise OSError(28, "No space left on device")
        replace(*arguments)

    monkeypatch.setattr(whole_files.os, "replace", full)
    outcome = codedfl(*RUN, "out")
    assert outcome.code == 1
    assert outcome.out == ""
    assert "No space left on device" in refused(outcome.err)
    assert codedfl(*RUN, "out").code == 0, "with room again, the same command goes on"
