"""Labels are moved apart, as little as possible."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.report.figures.labels import spread


@pytest.mark.parametrize(
    ("wanted", "heights", "found"),
    [
        ([], [], []),
        ([5.0], [2.0], [5.0]),
        ([5.0, 5.0], [2.0, 2.0], [4.0, 6.0]),
        ([1.0, 9.0], [2.0, 2.0], [1.0, 9.0]),
        ([0.0, 0.0], [2.0, 2.0], [1.0, 3.0]),
        ([10.0, 10.0], [2.0, 4.0], [5.0, 8.0]),
    ],
)
def test_by_hand(wanted: list[float], heights: list[float], found: list[float]) -> None:
    assert spread(wanted, heights, 0, 10) == found


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(1, 8)), max_size=10))
def test_none_overlaps_and_all_stay_inside(labels: list[tuple[float, float]]) -> None:
    wanted, heights = ([entry[place] for entry in labels] for place in (0, 1))
    found = spread(wanted, heights, 0, 100)
    boxes = sorted((centre - height / 2, centre + height / 2) for centre, height in zip(found, heights, strict=True))
    assert all(high <= low + 1e-6 for (_, high), (low, _) in itertools.pairwise(boxes))
    assert all(low >= -1e-6 and high <= 100 + 1e-6 for low, high in boxes)
    order = sorted(range(len(wanted)), key=lambda number: (wanted[number], number))
    assert [found[number] for number in order] == sorted(found)
