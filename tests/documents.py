"""Rewrites the parts of pages that come from code: ``python tests/documents.py`` (`make docs`).

A part stands between ``<!-- from: NAME -->`` and ``<!-- end -->``; ``tests/test_documents.py`` holds them to the code.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import typer

from codedfl import schemes
from codedfl.cli import app
from codedfl.report.pages import table_markdown
from codedfl.report.secrecy import OVERVIEW, overview_markdown, overview_rows
from codedfl.scenario import load
from codedfl.schemes import SCHEMES
from codedfl.schemes.secrecy import ADVERSARIES, ASSETS
from codedfl.security.verdicts import by_secrecy, verdict_table

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "SECURITY.md", "docs/commands.md")
_PART = re.compile(r"(<!-- from: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _schemes() -> list[schemes.Scheme]:
    paper = load("paper")
    return by_secrecy(schemes.nominal(paper.with_settings({"scheme": name})) for name in SCHEMES)


def secrecy() -> str:
    """Return the overview of all schemes."""
    return overview_markdown((scheme.name, verdict_table(scheme)) for scheme in _schemes())


SHOWN = ("eavesdropper", "device", "devices", "server", "server and devices")
"""The adversaries of the overview in README."""
_WHAT = re.compile(r"[^;:.]*")


def measured_rows() -> dict[str, dict[str, str]]:
    """Return the rows of the first fleet of docs/comparison.md, as printed, by scheme."""
    text = (ROOT / "docs/comparison.md").read_text(encoding="utf-8")
    header, _, *lines = [
        [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        for line in text.partition("### Fleet `")[2].partition("### ")[0].splitlines()
        if line.startswith("|")
    ]
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    return {row["scheme"].strip("`"): row for row in rows}


def overview() -> str:
    """Return what each scheme does, what it costs on the paper's fleet, and who learns what."""
    rows, measured = [], measured_rows()
    found = overview_rows((scheme.name, verdict_table(scheme)) for scheme in _schemes())
    for scheme, secret in zip(_schemes(), found, strict=True):
        row, verdicts = measured[scheme.name], dict(zip(OVERVIEW, secret, strict=True))
        megabytes = sum(float(row[f"{way} MB"].split()[0]) for way in ("up", "down", "d2d"))
        what = _WHAT.match(type(scheme).__doc__ or "")
        rows.append(
            [
                f"`{scheme.name}`",
                what[0] if what else "",
                row["time to 0.95"].partition(" (")[0],
                row["speed-up"],
                f"{megabytes:.3g}",
                row["survives"],
                *(verdicts[adversary] for adversary in SHOWN),
            ]
        )
    header = ["scheme", "what it does", "to 95%", "speed-up", "MB a device", "losses", *SHOWN]
    return table_markdown(header, rows)


def conditions() -> str:
    """Return when to allow each scheme."""
    return "".join(f"- `{scheme.name}`: allow it if {scheme.allowed_if}.\n" for scheme in _schemes())


def parties() -> str:
    """Return the adversaries and assets in words."""
    return (
        table_markdown(["adversary", ""], list(ADVERSARIES.items()))
        + "\n"
        + table_markdown(["asset", ""], list(ASSETS.items()))
    )


def command_tree() -> Iterator[tuple[str, click.Command]]:
    """Yield the full name of every command, and the command; groups before what is in them."""
    waiting = [("codedfl", typer.main.get_command(app))]
    while waiting:
        name, command = waiting.pop(0)
        yield name, command
        if hasattr(command, "list_commands"):  # a group, whose commands are imported when they are asked for
            context = click.Context(command, info_name=name)
            found = [(each, command.get_command(context, each)) for each in command.list_commands(context)]
            waiting = [(f"{name} {each}", inner) for each, inner in found if not inner.hidden] + waiting


def commands() -> str:
    """Return the help of every command."""
    parts = []
    for name, command in command_tree():
        context = click.Context(command, info_name=name, terminal_width=100, max_content_width=100)
        lines = [line.rstrip() for line in command.get_help(context).strip().splitlines()]
        parts.append("\n".join([f"## {name}", "", "```text", *lines, "```", ""]))
    return "\n".join(parts)


PARTS: dict[str, Callable[[], str]] = {
    "secrecy": secrecy,
    "overview": overview,
    "conditions": conditions,
    "parties": parties,
    "commands": commands,
}


def rewritten(text: str) -> str:
    """Return a page with all its parts made anew."""
    return _PART.sub(lambda found: found[1] + "\n" + PARTS[found[2]]() + "\n" + found[3], text)


if __name__ == "__main__":
    for name in PAGES:
        page = ROOT / name
        page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")
