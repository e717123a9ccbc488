"""Groups of devices and their tree: everybody is counted once, and the adders of group 0 have everything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.schemes.coded.placing.groups import GROUP, Groups


@given(st.integers(2, 2000), st.integers(1, GROUP))
def test_every_device_is_in_the_sum_of_every_adder_of_group_0_exactly_once(devices: int, adders: int) -> None:
    groups = Groups(devices, min(adders, devices))
    reached: dict[int, list[int]] = {}

    def added(adder: int) -> list[int]:
        found = list(groups.members(adder % groups.count))
        for child in groups.children(adder):
            assert groups.parent(child) == adder
            found += added(child)
        return found

    for place in range(groups.adders):
        root = groups.device(place)
        assert groups.adder(root) == place
        assert groups.parent(root) is None
        reached[place] = sorted(added(root))
    assert all(found == list(range(devices)) for found in reached.values())


@given(st.integers(2, 5000))
def test_groups_are_small_and_levels_few(devices: int) -> None:
    groups = Groups(devices, 1)
    sizes = {len(groups.members(group)) for group in range(groups.count)}
    assert max(sizes) < 2 * GROUP
    assert min(sizes) >= min(devices, GROUP)
    levels = groups.levels()
    assert sorted(group for level in levels for group in level) == list(range(1, groups.count))
    assert len(levels) == (groups.count).bit_length() - 1
    for above, level in zip(levels[1:], levels[:-1], strict=True):
        assert {(group - 1) // 2 for group in level} <= set(above)


def test_adders_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="40 adders do not fit groups of 35 devices"):
        Groups(70, 40)
