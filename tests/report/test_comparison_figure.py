"""The figure of all schemes on three fleets, read from the tables of its page."""

from pathlib import Path

from benchmarks.comparison_figure import read_rows

PAGE = """
### Fleet `a`, 3 devices

| scheme | how | time to 0.9 | time to 0.95 | secrecy: the server sees |
| --- | --- | --- | --- | --- |
| `sealed` | trained | 5.3 min (4.5 min to 6.4 min) | 2.00 h | server sees replies: words | |
| `he` | no result | - | never | models costs only |

### Fleet `b`, 4 devices

| scheme | how | time to 0.9 | time to 0.95 | secrecy: the server sees |
| --- | --- | --- | --- | --- |
| `sealed` | predicted | 0.05 s | never | server sees replies |
"""


def test_by_hand() -> None:
    first, second, third = read_rows(PAGE.replace(" | |\n", " |\n"))
    assert (first["fleet"], first["devices"], first["scheme"], first["verdict"]) == (
        "a",
        3,
        "sealed",
        "server sees replies",
    )
    assert first["time_to_accuracy"] == {"0.9": 318.0, "0.95": 7200.0}
    assert first["time_to_accuracy_band"] == {"0.9": [270.0, 384.0], "0.95": None}
    assert second["refused"] == "no result"
    assert second["time_to_accuracy"] == {"0.9": None, "0.95": None}
    assert third["time_to_accuracy"]["0.9"] == 0.05


def test_the_page_has_every_scheme_on_three_fleets() -> None:
    rows = read_rows(Path("docs/comparison.md").read_text(encoding="utf-8"))
    assert len(rows) == 39
    assert len({row["fleet"] for row in rows}) == 3
