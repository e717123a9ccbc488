"""Numbers behind a figure, for LaTeX and spreadsheets."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.report.figures.tables import Entry, csv_table, escape_tex, tex_table

HOSTILE = r"a_b 50% & \input{x} #1 $x^2$ ~"


def test_special_letters_are_escaped() -> None:
    wanted = r"a\_b 50\% \& \textbackslash{}input\{x\} \#1 \$x\textasciicircum{}2\$ \textasciitilde{}"
    assert escape_tex(HOSTILE) == wanted


@given(st.text())
def test_whatever_is_escaped_has_no_command_of_its_own(text: str) -> None:
    """Taking off the commands that escaping writes leaves no special letter."""
    left = escape_tex(text)
    for name in ("textbackslash", "textasciitilde", "textasciicircum", "textless", "textgreater", "textbar"):
        left = left.replace(f"\\{name}{{}}", "")
    left = left.replace(r"\textsuperscript{2}", "")
    for letter in "{}#%&_$":
        left = left.replace(f"\\{letter}", "")
    assert not set(left) & set("\\{}#%&_$~^\n")


def test_a_line_a_label_and_a_column_a_quantity() -> None:
    entries = [
        Entry(HOSTILE, "time (s)", 1234567.0, 1e6, 2e6),
        Entry(HOSTILE, "score", 0.5, 0.5, 0.5),
        Entry("b", "time (s)", None, miss="no result"),
        Entry("b", "points", 0.1, x=1.0),
    ]
    lines = tex_table(entries).splitlines()
    assert lines[3] == r" & time (s) & score \\"
    assert lines[5] == escape_tex(HOSTILE) + r" & $1.235\cdot 10^{6}$ ($1\cdot 10^{6}$--$2\cdot 10^{6}$) & 0.5 \\"
    assert lines[6] == r"b & no result &  \\"
    assert "0.1" not in "".join(lines), "points of curves are left out"
    assert all(line.count(" & ") == 2 for line in lines if line.endswith(r"\\"))


def test_csv_has_every_number_in_full() -> None:
    entries = [Entry(HOSTILE, "t", 1 / 3, 0.1, 0.5), Entry("b", "t", None), Entry("b", "curve", 0.7, 0.6, 0.8, x=2.5)]
    rows = list(csv.DictReader(io.StringIO(csv_table(entries))))
    assert [row["label"] for row in rows] == [HOSTILE, "b", "b"]
    assert float(rows[0]["value"]) == 1 / 3
    assert (rows[1]["value"], rows[1]["low"]) == ("not reached", "")
    assert [float(rows[2][name]) for name in ("x", "value", "low", "high")] == [2.5, 0.7, 0.6, 0.8]


@pytest.mark.parametrize("found", [None, (1.0, 0.5, 2.0)])
def test_bands(found: tuple[float, float, float] | None) -> None:
    entry = Entry.banded("a", "b", found)
    assert (entry.value, entry.low, entry.high) == (found or (None, None, None))
