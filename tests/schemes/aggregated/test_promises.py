"""What secure sums promise: which thresholds are accepted, how many may collude, and the numbers in the words."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from codedfl.cipher.masks.graph import MaskGraph
from codedfl.errors import ScenarioError
from codedfl.privacy.release import Release
from codedfl.schemes import Public
from codedfl.schemes.aggregated.promises import (
    LEAST_NEIGHBOURS,
    aggregated_views,
    check_sums,
    check_threshold,
    neighbours_setting,
    private_threshold,
    secagg_leakage,
    sums_allowed,
    survived_losses,
    tolerated,
)
from codedfl.schemes.aggregated.server import Threshold
from tiny import is_one_sentence

CIRCLES = MaskGraph(20, 8)
"""Circles of nine devices, of which six open a secret: two thirds."""


def public(devices: int = 9, **private: Any) -> Public:
    found = Public((10,) * devices, 4, 2, np.dtype("float64"))
    if not private:
        return found
    given = {"epsilon": 3.0, "delta": 1e-4, "clip_features": 1.0, "clip_targets": 1.0, "features": 4, "outputs": 2}
    sizes = {"devices": devices, "largest_rows": 10, "records": 10 * devices}
    return replace(found, release=Release.plan(**given, **sizes, **private))


@pytest.mark.parametrize(("devices", "low"), [(2, 2), (5, 3), (6, 4)])
def test_thresholds_are_more_than_half_of_the_devices_and_at_most_all(devices: int, low: int) -> None:
    for threshold in (None, *range(low, devices + 1)):
        check_threshold("secagg", threshold, devices)
    for threshold in (low - 1, devices + 1):
        with pytest.raises(ScenarioError) as error:
            check_threshold("secagg", threshold, devices)
        assert f"schemes.secagg.threshold = {threshold} must be between {low}, " in str(error.value)
        assert f"half of the devices, and {devices}, all of them" in str(error.value)
        assert is_one_sentence(str(error.value))


def test_a_single_device_has_no_sum() -> None:
    for threshold in (None, 1):
        with pytest.raises(ScenarioError, match="scheme = 'one-shot' needs at least 2 devices"):
            check_threshold("one-shot", threshold, 1)
    with pytest.raises(ScenarioError, match="at least 2 devices"):
        check_sums("one-shot", None, public(1), MaskGraph(1))
    check_sums("one-shot", None, public(2), MaskGraph(2))


def refusal(given: Public, threshold: int | None, graph: MaskGraph | None = None) -> str | None:
    try:
        check_sums("one-shot", threshold, given, graph or MaskGraph(given.devices))
    except ScenarioError as error:
        assert is_one_sentence(str(error))
        return str(error)
    return None


def test_losses_need_masks_between_all_devices() -> None:
    assert refusal(public(20, losses=0), None, CIRCLES) is None
    said = refusal(public(20, losses=1), None, CIRCLES)
    assert said is not None
    assert "privacy.losses = 1 does not go with masks between 8 neighbours" in said
    assert "schemes.one-shot.neighbours = 20" in said


@pytest.mark.parametrize(
    ("colluding", "losses", "threshold", "least"),
    [
        (0, 3, None, None),  # t = max(6, 9 - 3), and 2 t > 9
        (2, 3, None, None),  # 12 > 11
        (3, 3, None, 7),  # 12 is not above 12
        (3, 3, 7, None),
        (4, 3, None, 7),  # 12 is not above 13
        (3, 2, None, None),  # t = 7
        (5, 3, None, None),  # one share of noise is counted on, and no two sums have more than one
    ],
)
def test_no_two_noisy_sums_open_with_the_help_of_those_who_collude(
    colluding: int, losses: int, threshold: int | None, least: int | None
) -> None:
    """Two lists of survivors are signed by 2 t of 9 + c devices at least: 2 t > 9 + c."""
    said = refusal(public(colluding=colluding, losses=losses), threshold)
    if least is None:
        assert said is None
    else:
        assert said is not None
        assert f"privacy.losses = {losses} and privacy.colluding = {colluding} let a server" in said
        assert f"set schemes.one-shot.threshold = {least}, or lower one of them" in said


def test_a_threshold_below_what_noise_is_counted_on_is_refused() -> None:
    assert refusal(public(losses=2), 7) is None
    assert refusal(public(losses=0), 9) is None
    for losses, threshold in ((2, 6), (0, 8)):
        said = refusal(public(losses=losses), threshold)
        assert said is not None
        assert f"schemes.one-shot.threshold = {threshold} opens sums without the noise of {9 - threshold} of 9" in said
        assert f"privacy.losses = {losses}; leave the threshold out" in said
    assert refusal(public(), 5) is None, "without noise, any threshold that fits"


def test_sums_open_with_all_whose_noise_is_counted_on() -> None:
    assert private_threshold(public(), Threshold(5)) == Threshold(5)
    assert private_threshold(public(losses=0), Threshold()) == Threshold(9)
    assert private_threshold(public(losses=2), Threshold()) == Threshold(7)
    assert private_threshold(public(losses=2), Threshold(8)) == Threshold(8)
    assert private_threshold(public(losses=4), Threshold()) == Threshold(6)


def test_losses_that_are_survived_may_all_be_of_one_circle() -> None:
    assert [survived_losses(MaskGraph(n), Threshold()) for n in (2, 3, 9, 25)] == [0, 1, 3, 8]
    assert survived_losses(MaskGraph(9), Threshold(8)) == 1
    assert survived_losses(CIRCLES, Threshold()) == 3


@pytest.mark.parametrize(
    ("graph", "threshold", "keeping", "deviating"),
    [
        (MaskGraph(9), 6, 5, 2),  # 2 * 6 - 9 - 1
        (MaskGraph(9), 9, 7, 8),  # with 8 of 9, the sum over the others is the reply of one device
        (MaskGraph(9), 8, 7, 6),
        (MaskGraph(3), 2, 1, 0),
        (CIRCLES, None, 1, 0),  # 6 - 8 / 2 - 1 = 1 more than half a circle
        (CIRCLES, 20, 7, 3),  # t = 9: 4 more
        (CIRCLES, 17, 5, 2),  # t = 8: 3 more
        (CIRCLES, 11, 0, 0),  # t = 5: none
    ],
)
def test_how_many_may_collude(graph: MaskGraph, threshold: int | None, keeping: int, deviating: int) -> None:
    """As derived in docs/secagg.md."""
    assert tolerated(graph, Threshold(threshold)) == (keeping, deviating)


def test_words_about_masks_between_all_devices() -> None:
    """Of nine devices six open a sum, so five may collude with the server, and two if it deviates."""
    given = (public(), Threshold())
    leakage = secagg_leakage(*given, "replies", MaskGraph(9))
    assert "replies, summed over all devices that replied (at least 6)" in leakage.server
    assert "fewer than 6 devices collude with it" in leakage.server
    views = aggregated_views(*given, MaskGraph(9))
    assert "as long as fewer than 6 devices collude" in views["server"].gradient.reason
    assert "Bonawitz" in views["server"].gradient.reason
    assert "with c of them, at most 5, the server learns" in views["server and devices"].gradient.reason
    assert "2 t > N + c is needed: c < 3" in views["deviating server"].gradient.reason
    allowed = sums_allowed(*given, "gradients", MaskGraph(9))
    assert allowed == (
        "the server may learn sums of gradients over at least 6 devices, and fewer than 6 devices collude with it"
    )


def test_words_about_masks_within_circles() -> None:
    """Of twenty devices fourteen have to reply; of each circle of nine, eight open a secret."""
    given = (public(20), Threshold(17))
    leakage = secagg_leakage(*given, "replies", CIRCLES)
    assert "replies, summed over all devices that replied (at least 17)" in leakage.server
    assert "if at most 5 devices collude with it" in leakage.server
    views = aggregated_views(*given, CIRCLES)
    assert "masks with 8 neighbours each (Bell" in views["server"].gradient.reason
    assert "as long as at most 5 devices collude" in views["server"].gradient.reason
    assert "with c of them, at most 5, the server learns" in views["server and devices"].gradient.reason
    assert "at most 2 may deviate, too" in views["deviating server"].gradient.reason
    allowed = sums_allowed(*given, "gradients", CIRCLES)
    assert "sums of gradients over at least 17 devices" in allowed
    assert allowed.endswith("at most 5 devices collude with it, at most 2 if it deviates from the protocol")


def test_neighbours_are_at_least_eight_and_unset_by_default() -> None:
    option = neighbours_setting()
    assert option.default is None
    assert option.metadata["low"] == LEAST_NEIGHBOURS == 8
    assert "all up to 257 devices, 64 in larger fleets" in option.metadata["help"]
