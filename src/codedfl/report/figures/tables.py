r"""Numbers behind a figure, as a LaTeX table and as CSV.

>>> print(tex_table([Entry("a_b", "time to 0.9 (s)", 1.5, 1.25, 2.0), Entry("c", "time to 0.9 (s)", None)]))
% numbers of a figure: mean (95% band)
\begin{tabular}{lr}
\hline
 & time to 0.9 (s) \\
\hline
a\_b & 1.5 (1.25--2) \\
c & not reached \\
\hline
\end{tabular}
<BLANKLINE>
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from codedfl.errors import printable

COLUMNS = ("label", "quantity", "x", "value", "low", "high")
_SPECIAL = {
    "\\": r"\textbackslash{}",
    **{letter: f"\\{letter}" for letter in "{}#%&_$"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "²": r"\textsuperscript{2}",
}


@dataclass(frozen=True)
class Entry:
    """One number: what it belongs to, what it is (with its unit), its value and band; x if it is a point of a curve."""

    label: str
    quantity: str
    value: float | None
    low: float | None = None
    high: float | None = None
    x: float | None = None
    miss: str = "not reached"

    @classmethod
    def banded(
        cls,
        label: str,
        quantity: str,
        found: Sequence[float | None] | None,
        *,
        x: float | None = None,
        miss: str = "not reached",
    ) -> "Entry":
        """Return the entry of a mean and its band; None where there is no number."""
        value, low, high = found or (None, None, None)
        return cls(label, quantity, value, low, high, x, miss)

    def cells(self) -> list[str | float | None]:
        """Return the cells of a CSV row."""
        return [self.label, self.quantity, self.x, self.miss if self.value is None else self.value, self.low, self.high]


def escape_tex(text: str) -> str:
    r"""Return a text that LaTeX prints as it is.

    >>> print(escape_tex(r"50% & {x_1} #\\"))
    50\% \& \{x\_1\} \#\textbackslash{}\textbackslash{}
    """
    return "".join(_SPECIAL.get(letter, letter) for letter in printable(" ".join(text.split())))


def tex_table(entries: Sequence[Entry]) -> str:
    """Write a line for each label and a column for each quantity; points of curves are left out."""
    shown = [entry for entry in entries if entry.x is None]
    labels, quantities = (
        list(dict.fromkeys(names)) for names in zip(*((e.label, e.quantity) for e in shown), strict=True)
    )
    found = {(entry.label, entry.quantity): _cell(entry) for entry in shown}
    lines = [
        "% numbers of a figure: mean (95% band)",
        f"\\begin{{tabular}}{{l{'r' * len(quantities)}}}",
        "\\hline",
        " & ".join(["", *(escape_tex(name) for name in quantities)]) + r" \\",
        "\\hline",
        *(
            " & ".join([escape_tex(label), *(found.get((label, name), "") for name in quantities)]) + r" \\"
            for label in labels
        ),
        "\\hline",
        "\\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _cell(entry: Entry) -> str:
    if entry.value is None:
        return escape_tex(entry.miss)
    if entry.low is None or entry.high is None or entry.low == entry.high:
        return _number(entry.value)
    return f"{_number(entry.value)} ({_number(entry.low)}--{_number(entry.high)})"


def _number(value: float) -> str:
    """Write four significant digits, powers of ten as LaTeX has them."""
    text = f"{value:.4g}"
    digits, mark, power = text.partition("e")
    return f"${digits}\\cdot 10^{{{int(power)}}}$" if mark else text


def csv_table(entries: Sequence[Entry]) -> str:
    """Write all entries, those of curves with their x."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(entry.cells() for entry in entries)
    return text.getvalue()
