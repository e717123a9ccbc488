"""What pages name exists: commands and their options, presets, schemes, settings, targets, benchmarks and files."""

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import documents
from codedfl.scenario import preset_names
from codedfl.schemes import SCHEMES
from documents import ROOT

MADE = {"commands.md", "settings.md", "secrecy.md"}
PAGES = [path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")) if path.name not in MADE]
KEYS = set(re.findall(r"^\| `([\w.-]+)` \|", (ROOT / "docs" / "settings.md").read_text(encoding="utf-8"), re.MULTILINE))
SECTIONS = {key.split(".")[0] for key in KEYS if "." in key} - {"site"}
COMMANDS = dict(documents.command_tree())
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
PLACEHOLDER = re.compile(r"[A-Z.…*/]|\.toml|\.csv")
OTHERS = {"schemes.mine", "schemes.my-scheme"}
"""Settings of schemes that the page itself defines."""
NO_CALLS = {"codedfl record 1"}
"""The first words of a file."""


def code(text: str) -> Iterator[str]:
    """Yield code between backticks, and every line of fenced blocks with what continues it, without comments."""
    for block in re.findall(
        r"^```(?:sh|console|bash|{code-cell} python\n%%sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL
    ):
        for line in block.replace("\\\n", " ").splitlines():
            yield line.split("  #")[0].split(" # ")[0].removeprefix("$ ").strip()
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for span in re.findall(r"`([^`]+)`", rest):
        yield " ".join(span.split())


def split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def calls(text: str) -> Iterator[list[str]]:
    """Yield the words of every call of the command line."""
    for line in code(text):
        words = split(line)
        while words and ("=" in words[0] and words[0].split("=")[0].isupper()):
            words = words[1:]
        if words and words[0].removeprefix(".venv/bin/") == "codedfl" and "..." not in words and line not in NO_CALLS:
            yield words[1:]


def wrong_in_call(words: list[str]) -> str | None:
    """Return what a call names that does not exist."""
    name, rest = "codedfl", list(words)
    while rest and f"{name} {rest[0]}" in COMMANDS:
        name = f"{name} {rest.pop(0)}"
    command = COMMANDS[name]
    if hasattr(command, "list_commands") and rest and not rest[0].startswith("-") and not PLACEHOLDER.search(rest[0]):
        choices = [word for word in rest[0].split("|") if f"{name} {word}" not in COMMANDS]
        return f"{name} {choices[0]}" if choices else None
    known = {word for option in command.params for word in (*option.opts, *option.secondary_opts)} | {"--help"}
    for option in (word.split("=")[0] for word in rest if re.match(r"--?[a-z]", word)):
        if option not in known:
            return f"{name} {option}"
    pairs = list(itertools.pairwise(rest))
    chosen = [after for word, after in pairs if word in ("-s", "--scenario")]
    if rest and name in ("codedfl run", "codedfl plan", "codedfl attack") and not rest[0].startswith("-"):
        chosen.append(rest[0])
    for preset in chosen:
        if not PLACEHOLDER.search(preset) and preset not in preset_names() and preset not in SCHEMES:
            return preset
    for key, _, value in (after.partition("=") for word, after in pairs if word in ("--set", "--over")):
        if key not in KEYS and not PLACEHOLDER.search(key.replace(".", "")):
            return f"setting {key}"
        if key == "scheme" and not PLACEHOLDER.search(value) and set(value.split(",")) - set(SCHEMES):
            return f"scheme {value}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_options_presets_and_settings_in_calls_exist(page: Path) -> None:
    for words in calls(page.read_text(encoding="utf-8")):
        assert wrong_in_call(words) is None, f"codedfl {' '.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_targets_benchmarks_and_files_exist(page: Path) -> None:
    for line in code(page.read_text(encoding="utf-8")):
        if re.fullmatch(r"[a-z_]+(\.[a-z_-][\w-]*)+(?<!\.json)(?<!\.key)", line) and line.split(".")[0] in SECTIONS:
            outer = [key for key in KEYS if key.startswith(f"{line}.")]
            assert line in KEYS or outer or line.rsplit(".", 1)[0] in OTHERS, line
        for target in re.findall(r"^make ([a-z]+)", line):
            assert target in TARGETS, line
        for name in re.findall(r"python -m benchmarks[. ]([a-z_]+)", line):
            assert (ROOT / "benchmarks" / f"{name}.py").is_file(), line
        for path in re.findall(r"^(?:src|tests|docs|benchmarks)/[\w./-]+\.(?:py|md|png|json)$", line):
            assert (ROOT / path).exists(), line


@pytest.mark.parametrize(
    "line",
    [
        "codedfl rum paper",
        "codedfl run papier",
        "codedfl run paper --sett a=1",
        "codedfl run paper --set trainings.epochs=1",
        "codedfl run paper --set scheme=sealed-code",
        "codedfl deploy locale",
        "codedfl plan -s papers",
    ],
)
def test_a_wrong_name_is_found(line: str) -> None:
    (words,) = calls(f"`{line}`")
    assert wrong_in_call(words) is not None


def test_there_is_something_to_check() -> None:
    found = [words for page in PAGES for words in calls(page.read_text(encoding="utf-8"))]
    assert len(found) > 100
    assert len(KEYS) > 100
    assert {"training", "links", "schemes"} <= SECTIONS
