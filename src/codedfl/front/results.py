"""Rows of studies that notebooks show as tables; everything else takes them for lists."""

from collections.abc import Mapping, Sequence
from typing import Any, final

from codedfl.runs import final_score
from codedfl.runs.facts import noise_text
from codedfl.runs.markup import seconds_and_band, table_html

_BITS_A_MEGABYTE = 8e6


@final
class Comparison(list[dict[str, Any]]):
    """What :func:`codedfl.compare` returns: a list of rows, one a scheme and fleet, which notebooks show as a table.

    Examples
    --------
    >>> import codedfl, tempfile
    >>> few = {"training.epochs": 5, "timing.draws": 10}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = codedfl.compare("paper-quick", ["conventional"], folder, few)
    >>> rows
    <Comparison of 2 schemes: minibatch, conventional>
    >>> rows[1]["scheme"], len(rows), rows == list(rows)
    ('conventional', 2, True)
    """

    def __repr__(self) -> str:
        return f"<Comparison of {_counted(self, 'scheme')}: {', '.join(row['scheme'] for row in self)}>"

    def _repr_html_(self) -> str:
        fleets = {row["fleet"] for row in self}
        leading = ("fleet", "scheme") if len(fleets) > 1 else ("scheme",)
        return _table(leading, [{name: row[name] for name in leading} for row in self], self)


@final
class SweepRows(list[dict[str, Any]]):
    """What :func:`codedfl.sweep` returns: a list of rows, one a combination, which notebooks show as a table."""

    def __repr__(self) -> str:
        keys = ", ".join(self[0]["settings"]) if self else ""
        return f"<SweepRows of {_counted(self, 'combination')} of {keys}>"

    def _repr_html_(self) -> str:
        keys = tuple(self[0]["settings"]) if self else ()
        leading = keys if "scheme" in keys else (*keys, "scheme")
        return _table(leading, [{"scheme": row["scheme"], **row["settings"]} for row in self], self)


def _counted(rows: Sequence[Any], word: str) -> str:
    return f"{len(rows)} {word}{'' if len(rows) == 1 else 's'}"


def _table(leading: Sequence[str], names: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> str:
    """Write results of runs; ``names`` tell the rows apart."""
    targets = list(dict.fromkeys(target for row in rows for target in row.get("time_to_accuracy") or ()))
    header = [*leading, "epochs", "final score", *(f"time to {target}" for target in targets)]
    compared, noisy = any("speedup" in row for row in rows), any(row.get("privacy") for row in rows)
    header += [*(["speed-up"] if compared else []), "MB up, down, d2d", "secrecy", *(["noise"] if noisy else [])]
    lines = []
    for own, row in zip(names, rows, strict=True):
        line = [*(str(own[name]) for name in leading), *_results(row, targets)]
        line += [*([_speedup(row)] if compared else []), _payload(row), row["verdict"]]
        lines.append([*line, *([noise_text(row["privacy"]) if row.get("privacy") else "none"] if noisy else [])])
    return table_html(header, lines)


def _results(row: Mapping[str, Any], targets: Sequence[str]) -> list[Any]:
    """Return epochs, score and times; why there is none stands in the place of the score."""
    if row.get("refused") is not None:
        return ["-", f"no result: {row['refused']}", *["-"] * len(targets)]
    times, bands = row["time_to_accuracy"], row["time_to_accuracy_band"]
    score = final_score(row)
    shown = "not known" if score is None else f"{score:.4f}"
    return [row["epochs"], shown, *(seconds_and_band(times.get(each), bands.get(each)) for each in targets)]


def _speedup(row: Mapping[str, Any]) -> str:
    return "-" if row["speedup"] is None else f"{row['speedup']:.2f}x"


def _payload(row: Mapping[str, Any]) -> str:
    sent = row.get("bits_sent")
    return ", ".join(f"{sent[link] / _BITS_A_MEGABYTE:,.3g}" for link in ("up", "down", "d2d")) if sent else "-"
