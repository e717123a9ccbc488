"""The graph of masks: rings, circles and counts by hand, and from which size on a fleet is no longer complete."""

from math import gcd, sqrt

import pytest

from codedfl.cipher.masks.graph import MaskGraph


@pytest.mark.parametrize(
    ("devices", "neighbours", "degree"),
    [(257, None, 0), (258, None, 64), (20, 7, 8), (20, 8, 8), (20, 18, 18), (19, 18, 0), (19, 17, 0), (18, 16, 16)],
)
def test_degree_of_a_fleet(devices: int, neighbours: int | None, degree: int) -> None:
    """Odd numbers are rounded up; N - 1 neighbours or more are everyone, which degree 0 stands for."""
    graph = MaskGraph.of(devices, neighbours)
    assert (graph.degree, graph.complete) == (degree, degree == 0)
    assert graph.size == len(graph.circle(0)) == (degree + 1 if degree else devices)


def test_places_of_nine_devices() -> None:
    """9 times 0.618 is near 6, which has a divisor in common with 9; of 7 and 5 the larger is taken."""
    graph = MaskGraph(9, 4)
    assert graph.ring.tolist() == [0, 7, 5, 3, 1, 8, 6, 4, 2]
    assert [graph.circle(device) for device in (0, 7, 2)] == [(0, 2, 4, 5, 7), (0, 2, 3, 5, 7), (0, 2, 4, 6, 7)]


def test_a_step_on_the_ring_is_near_the_golden_ratio() -> None:
    """Of the numbers without a divisor in common with N the nearest, and of two equally near the larger."""
    for devices in range(2, 200):
        wanted = round(devices * (sqrt(5) - 1) / 2)
        steps = [step for step in range(1, devices) if gcd(step, devices) == 1]
        assert MaskGraph(devices).ring[1] == min(steps, key=lambda step: (abs(step - wanted), -step))


def test_one_device_is_alone() -> None:
    graph = MaskGraph(1)
    assert (graph.complete, graph.size, graph.circle(0), graph.ring.tolist()) == (True, 1, (0,), [0])
    assert graph.present([0]).tolist() == [1]


def test_counts_within_circles_of_nine() -> None:
    """Device 7 is in the circles of itself and of its neighbours 0, 3, 5 and 2, device 2 in those of 2, 0, 4, 6, 7."""
    graph = MaskGraph(9, 4)
    assert graph.present({7}).tolist() == [int(device in (0, 2, 3, 5, 7)) for device in range(9)]
    assert graph.present([7, 2]).tolist() == [2, 0, 2, 1, 1, 1, 1, 2, 0]
    assert graph.present(range(9)).tolist() == [5] * 9
    assert graph.present(()).tolist() == [0] * 9


def test_counts_among_everyone() -> None:
    assert MaskGraph(4).present({1, 3}).tolist() == [2, 2, 2, 2]
    assert MaskGraph(4).circle(2) == (0, 1, 2, 3)
