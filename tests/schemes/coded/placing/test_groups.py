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


@pytest.mark.parametrize(
    ("devices", "count"), [(1, 1), (31, 1), (32, 1), (63, 1), (64, 2), (95, 2), (96, 3), (1000, 31)]
)
def test_a_group_has_32_members_at_least(devices: int, count: int) -> None:
    assert Groups(devices, 1).count == count


def test_a_tree_of_six_groups() -> None:
    """Groups 1 and 2 below 0, 3 and 4 below 1, 5 below 2; member i of group g is device 6 i + g."""
    groups = Groups(192, 2)
    assert groups.count == 6
    assert [list(groups.members(group))[:3] for group in (0, 5)] == [[0, 6, 12], [5, 11, 17]]
    assert groups.members(5)[-1] == 191
    assert [groups.adder(device) for device in (0, 5, 6, 11, 12, 191)] == [0, 0, 1, 1, None, None]
    assert [groups.device(1, group) for group in range(6)] == [6, 7, 8, 9, 10, 11]
    assert groups.device(1) == 6
    assert [groups.parent(device) for device in range(6, 12)] == [None, 6, 6, 7, 7, 8]
    assert [groups.children(device) for device in range(6, 12)] == [(7, 8), (9, 10), (11,), (), (), ()]
    assert groups.levels() == [range(3, 6), range(1, 3)]
    assert [Groups(devices, 1).levels() for devices in (32, 64)] == [[], [range(1, 2)]]


@pytest.mark.parametrize(("devices", "adders"), [(70, 36), (70, 0), (1, 2), (5, -1)])
def test_as_many_adders_as_members_at_most(devices: int, adders: int) -> None:
    assert Groups(70, 35).adders == 35
    with pytest.raises(ValueError, match="do not fit groups"):
        Groups(devices, adders)
