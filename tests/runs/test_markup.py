"""Numbers, times and tables for people."""

import pytest

from codedfl.runs.markup import bits_text, facts_html, seconds_and_band, table_html
from report.exports.made import HOSTILE


def test_a_band_is_shown_where_there_is_one() -> None:
    assert seconds_and_band(90.0, [60.0, 240.0]) == "90.0 s (95%: 60.0 s to 4.0 min)"
    assert seconds_and_band(None, None) == "never"


def test_a_tenth_of_a_megabyte_is_one() -> None:
    assert [bits_text(bits) for bits in (0, 7e5, 8e5)] == ["0.0 MB", "87.5 kB", "0.1 MB"]


@pytest.mark.parametrize("limits", [None, [], [None, 3.0], [1.0, None]])
def test_half_a_band_is_none(limits: list[float | None] | None) -> None:
    assert seconds_and_band(0.5, limits) == "0.5 s"


def test_names_and_values_are_text() -> None:
    for page in (facts_html({HOSTILE: HOSTILE}), table_html([HOSTILE], [[HOSTILE]])):
        assert "<script" not in page
        assert "<img" not in page
        assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&gt;&lt;img src=x") == 2
