"""Curves K(e) and L(e): by hand, and of replays against runs."""

import math
from typing import Any

import numpy as np
import pytest

from codedfl.network import DelayModel
from codedfl.training.curves import (
    SharingCurves,
    bands,
    curves_of,
    curves_side_by_side,
    sharing_curves,
    times_and_curves,
)
from codedfl.training.timing import epoch_ends
from tiny import trained
from training.test_sharing_draws import EPOCHS, FLEET, LINKS, by_hand, given, sharing, variant, wanted


def test_curves_by_hand() -> None:
    """Devices 2 and 3 straggle in epoch 2 and take two of the four supports; from epoch 3 on two are active."""
    delays = DelayModel.create(FLEET, LINKS)
    asked: dict[str, Any] = {"epochs": 4, "seed": 0, "draws": 2}
    assert sharing_curves(by_hand(4), delays, **asked).active.tolist() == [[4, 4, 2, 2]] * 2
    assert sharing_curves(by_hand(4), delays, **asked).supports.tolist() == [[4, 4, 2, 2]] * 2
    assert sharing_curves(by_hand(0), delays, **asked).active.tolist() == [[4] * 4] * 2


def test_curves_side_by_side_are_those_of_each_alone() -> None:
    chosen = wanted()
    delays = DelayModel.create(chosen.fleet, chosen.links)
    asked: dict[str, Any] = {"epochs": EPOCHS, "seed": 3, "draws": 4}
    variants = [variant(wanted(supply=supply, delta=delta)) for supply in ("once", "reissued") for delta in (0.0, 0.5)]
    together = curves_side_by_side(variants, delays, **asked)
    for each, found in zip(variants, together, strict=True):
        alone = sharing_curves(each, delays, **asked)
        assert np.array_equal(found.active, alone.active)
        assert np.array_equal(found.supports, alone.supports)
    assert len({found.active.tobytes() for found in together}) > 1, "they are not all alike"


def test_several_channels_in_one_replay_are_those_of_each_alone() -> None:
    """The channel between devices delays hand-overs and nothing else, also after the first epoch."""
    links = [wanted({"links.d2d_channel": channel}).links for channel in ("parallel", "shared")]
    delays = [DelayModel.create(wanted().fleet, each) for each in links]
    asked: dict[str, Any] = {"epochs": EPOCHS, "seed": 3, "draws": 6}
    variants = [
        variant(wanted(supply=supply, delta=delta, detect_from=first))
        for supply, delta, first in (("once", 0.0, 2), ("reissued", 0.001, 2), ("reissued", 0.0, 1))
    ]
    ends, (last, first) = times_and_curves(variants, delays, curves=[2, 0], **asked)
    for own, each in zip(ends, delays, strict=True):
        assert np.array_equal(own, epoch_ends(variants, each, **asked).astype(np.float32))
    assert not np.array_equal(*ends), "the channels differ"
    told: list[tuple[int, int]] = []
    (single,), _ = times_and_curves(variants[:1], delays[:1], progress=lambda *at: told.append(at), **asked)
    assert told[0] == (1, EPOCHS) and told[-1] == (EPOCHS, EPOCHS) and told == sorted(set(told))
    assert np.array_equal(single[0], ends[0, 0]), "alone, on one channel"
    for found, number in ((first, 0), (last, 2)):
        alone = sharing_curves(variants[number], delays[1], **asked)
        assert np.array_equal(found.active, alone.active)
        assert np.array_equal(found.supports, alone.supports)


OPTIONS: list[dict[str, Any]] = [
    {"supply": "once"},
    {"supply": "reissued"},
    {"supply": "once", "odd_set": "two-errors", "detect_from": 1, "M": 11, "t": 3},
    {"supply": "reissued", "odd_set": "two-errors"},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_run_is_one_of_the_draws(options: dict[str, Any]) -> None:
    draw = 3
    chosen = wanted({"timing.draw": draw}, **options)
    state, shared = trained(given(), chosen), sharing(chosen).sharing
    assert shared is not None
    found = curves_of(state, shared.policy())
    delays, seed = DelayModel.create(chosen.fleet, chosen.links), chosen.timing.seed
    drawn = sharing_curves(variant(chosen), delays, epochs=EPOCHS, seed=seed, draws=5)
    assert np.array_equal(found.active[0], drawn.active[draw])
    assert np.array_equal(found.supports[0], drawn.supports[draw])
    own = sharing_curves(variant(chosen), delays, epochs=EPOCHS, seed=seed, draws=1, first=draw)
    assert np.array_equal(own.active, found.active)
    # every active device of this scheme is asked and awaited, so its replies are counted independently
    assert found.active[0].tolist() == state.history.columns["replies"]
    assert found.active[0, 0] == 25
    assert found.active[0, -1] < 25
    issued = np.bincount(state.server["moved"][:, 0][state.server["moved"][:, 3] >= 0], minlength=EPOCHS + 1)
    if options["supply"] == "once":
        assert found.supports[0].tolist() == [chosen.options().M - issued[:e].sum() for e in range(1, EPOCHS + 1)]
        assert found.supports[0, -1] < found.supports[0, 0]
    else:
        assert set(found.supports[0].tolist()) == {chosen.options().M}


def test_without_limit_supports_are_infinite() -> None:
    chosen = wanted({"scheme": "sealed", "schemes.sealed": {"delta": 1e-3}})
    state, shared = trained(given(), chosen), sharing(chosen).sharing
    assert shared is not None
    found = curves_of(state, shared.policy())
    assert set(found.supports[0].tolist()) == {math.inf}
    assert found.active[0, -1] < 25


def test_share_of_draws_that_end_with_one_device_and_bands() -> None:
    active = np.array([[4, 2], [4, 1], [4, 1], [4, 1]])
    curves = SharingCurves(active, active.astype(float))
    assert curves.alone == 0.75
    first, second = bands(active)
    assert (first.mean, first.low, first.high) == (4.0, 4.0, 4.0)
    assert second.mean == 1.25
    assert second.low < 1 < 2 < second.high
