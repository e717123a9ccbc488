"""Numbers, times and tables for people."""

import pytest

from codedfl.runs.markup import bits_text, facts_html, number, seconds_and_band, seconds_text, table_html
from report.exports.made import HOSTILE


def test_a_band_is_shown_where_there_is_one() -> None:
    assert seconds_and_band(90.0, [60.0, 240.0]) == "90.0 s (95%: 60.0 s to 4.0 min)"
    assert seconds_and_band(None, None) == "never"


def test_a_tenth_of_a_megabyte_is_one() -> None:
    assert [bits_text(bits) for bits in (0, 1, 7e5, 799_999, 8e5)] == [
        *("0.0 MB", "0.0 kB", "87.5 kB", "100.0 kB", "0.1 MB")
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0 s"),
        (0.12345, "0.123 s"),
        (0.9994, "0.999 s"),
        (1.0, "1.0 s"),
        (119.94, "119.9 s"),
        (120.0, "2.0 min"),
        (120.5, "2.0 min"),
        (7199.0, "120.0 min"),
        (7200.0, "2.00 h"),
        (36_000.0, "10.00 h"),
        (None, "never"),
    ],
)
def test_a_time_is_in_seconds_minutes_from_two_and_hours_from_two(seconds: float | None, shown: str) -> None:
    assert seconds_text(seconds) == shown


def test_a_number_has_four_digits_unless_it_is_whole() -> None:
    assert [number(value) for value in (None, 0.123456, 123456, 1.0, "text", 98765.0)] == [
        *("-", "0.1235", "123456", "1", "text", "9.876e+04")
    ]


def test_a_table_has_a_row_for_its_header_and_one_for_each_of_its_rows() -> None:
    cells = "<tr><td>x</td><td>0.5</td></tr><tr><td>y</td><td>-</td></tr>"
    expected = f"<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody>{cells}</tbody></table>"
    assert table_html(["a", "b"], [["x", 0.5], ["y", None]]) == expected


@pytest.mark.parametrize("limits", [None, [], [None, 3.0], [1.0, None]])
def test_half_a_band_is_none(limits: list[float | None] | None) -> None:
    assert seconds_and_band(0.5, limits) == "0.5 s"


def test_names_and_values_are_text() -> None:
    for page in (facts_html({HOSTILE: HOSTILE}), table_html([HOSTILE], [[HOSTILE]])):
        assert "<script" not in page
        assert "<img" not in page
        assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&gt;&lt;img src=x") == 2
