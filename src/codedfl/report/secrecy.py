"""Verdict tables of schemes as rows: an overview of several, and every cell of one."""

from collections.abc import Iterable, Sequence

from codedfl.report.pages import table_markdown
from codedfl.schemes.secrecy import ADVERSARIES, ASSETS, WORST_FIRST, Secrecy

Cells = Sequence[Secrecy]

OVERVIEW = ("scheme", *ADVERSARIES)
DETAIL = ("adversary", "Gram matrix", "gradient", "member, device", "member, union")
"""Headers of the two tables."""
OVERVIEW_TITLE = "worst verdict on a device's Gram matrix and gradient / on who is in the data"


def overview_rows(tables: Iterable[tuple[str, Cells]]) -> list[list[str]]:
    """Return a row a scheme: against each adversary the worst verdict on a device's data, and on membership."""
    return [[name, *(_pair(cells, adversary) for adversary in ADVERSARIES)] for name, cells in tables]


def _pair(cells: Cells, adversary: str) -> str:
    of = [(cell.asset.startswith("membership"), cell.verdict) for cell in cells if cell.adversary == adversary]
    data, members = (
        min((verdict for about, verdict in of if about is kind), key=WORST_FIRST.index) for kind in (False, True)
    )
    return data if data == members else f"{data} / {members}"


def detail_rows(cells: Cells) -> list[list[str]]:
    """Return a row an adversary with the verdict on each asset."""
    found = {(cell.adversary, cell.asset): cell.verdict for cell in cells}
    return [[adversary, *(found[adversary, asset] for asset in ASSETS)] for adversary in ADVERSARIES]


def reasons(cells: Cells) -> list[tuple[str, str]]:
    """Return each adversary with its reasons, and the verdict that each is for."""
    found = []
    for adversary in ADVERSARIES:
        own: dict[str, dict[str, None]] = {}
        for cell in cells:
            if cell.adversary == adversary:
                own.setdefault(cell.reason, {})[cell.verdict] = None
        found += [(adversary, f"{' and '.join(verdicts)}: {reason}") for reason, verdicts in own.items()]
    return found


def overview_markdown(tables: Iterable[tuple[str, Cells]]) -> str:
    """Write the overview for Markdown pages."""
    return table_markdown(OVERVIEW, [[f"`{row[0]}`", *row[1:]] for row in overview_rows(tables)])


def page_markdown(statements: Iterable[tuple[str, Cells, str]]) -> str:
    """Write the page docs/secrecy.md: name, cells, and the condition under which to allow it, scheme by scheme."""
    entries = list(statements)
    parts = [
        "# Secrecy of every scheme\n",
        "Written by `codedfl security --markdown`; SECURITY.md explains adversaries, assets and verdicts. Figures are "
        "those of `codedfl attack`, stored in `src/codedfl/security/figures.json`.\n",
        f"{OVERVIEW_TITLE[0].upper() + OVERVIEW_TITLE[1:]}, the scheme that tells least first:\n",
        overview_markdown((name, cells) for name, cells, _ in entries),
    ]
    for name, cells, condition in entries:
        parts += [f"## `{name}`\n", f"Allow it if {condition}.\n", table_markdown(DETAIL, detail_rows(cells))]
        parts.append("".join(f"- **{adversary}**, {words}\n" for adversary, words in reasons(cells)))
    return "\n".join(parts)
