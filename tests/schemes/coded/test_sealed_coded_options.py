"""What the sealed and coded scheme says of itself: options that fit a fleet, harmless pools, sizes and words."""

from typing import Any

import numpy as np
import pytest

from codedfl.errors import DataError, ScenarioError
from codedfl.network import DelayModel
from codedfl.scenario import Fleet, Links, Privacy
from codedfl.schemes import Public
from codedfl.schemes.coded.sealed_coded import SealedCoded, SealedCodedOptions
from codedfl.schemes.sharing.sealed import SEALED_REASON
from codedfl.task import Shard
from tiny import is_one_sentence


def scheme(devices: int, features: int = 6, *, known: bool = False, **options: Any) -> SealedCoded:
    delays = DelayModel.create(Fleet(devices=[{"count": devices, "mac_rate": 1e6}]), Links()) if known else None
    public = Public((2,) * devices, features, 2, np.dtype("float64"), delays=delays)
    return SealedCoded(public, SealedCodedOptions(**options))


@pytest.mark.parametrize(
    "options",
    [
        *({}, {"workers": 4}, {"workers": 1, "spares": 0}, {"threshold": 4, "spares": 9}),
        *({"workers": 3, "threshold": 3}, {"spares": 3}, {"workers": 3, "spares": 2}),
    ],
)
def test_options_that_fit_four_devices(options: dict[str, int]) -> None:
    SealedCodedOptions(**options).check_fleet(4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workers": 5}, "schemes.sealed-coded.workers = 5 must be at most 4"),
        ({"threshold": 5}, "threshold = 5 must be at most 4, the number of workers"),
        ({"workers": 3, "threshold": 4}, "threshold = 4 must be at most 3, the number of workers"),
        ({"spares": 4}, "spares = 4 must be below 4, the number of workers"),
        ({"workers": 2, "spares": 2}, "spares = 2 must be below 2, the number of workers"),
    ],
)
def test_options_that_do_not_fit_four_devices(options: dict[str, int], words: str) -> None:
    with pytest.raises(ScenarioError, match=words) as error:
        SealedCodedOptions(**options).check_fleet(4)
    assert is_one_sentence(str(error.value))


def test_two_devices_and_two_features_at_least() -> None:
    scheme(2, 2).check()
    with pytest.raises(ScenarioError, match="at least 2 devices"):
        scheme(1, 2).check()
    with pytest.raises(ScenarioError, match="at least 2 features"):
        scheme(2, 1).check()
    with pytest.raises(ScenarioError, match="workers = 3 must be at most 2"):
        scheme(2, 2, workers=3).check()


@pytest.mark.parametrize(
    ("devices", "options", "harmless", "pool"),
    [
        (9, {}, 7, "at least two devices collude with nobody"),
        (9, {"neighbours": 4}, 3, "at most 3 devices collude with it"),
        (9, {"neighbours": 8}, 7, "at least two devices collude with nobody"),
        (3, {}, 1, "at least two devices collude with nobody"),
        (2, {}, 0, "the server colludes with no device"),
        (9, {"masks": False}, 0, "the server colludes with no device"),
    ],
)
def test_pools_that_learn_the_sum_over_the_others_only(
    devices: int, options: dict[str, Any], harmless: int, pool: str
) -> None:
    found = scheme(devices, **options)
    assert found.harmless_pool == harmless
    assert found.allowed_if == (
        "the server may learn the sum of all Gram matrices, and so who is in the data of all devices together, and "
        + pool
    )


@pytest.mark.parametrize(
    ("devices", "options", "up_to"), [(9, {}, "N - 2"), (9, {"neighbours": 4}, "3"), (9, {"masks": False}, None)]
)
def test_what_the_masks_add_to_what_is_said(devices: int, options: dict[str, Any], up_to: str | None) -> None:
    found = scheme(devices, **options)
    seen = found.leakage()
    if up_to is None:
        assert found.verdict_reason == SEALED_REASON
        assert seen.server.endswith("nothing about a single device")
    else:
        assert f"with X25519 also to a server that pools with up to {up_to} devices;" in found.verdict_reason
        assert seen.server.endswith(f"if up to {up_to} devices collude with it, the sum over the others")
    assert "sealed" in seen.devices
    assert "between devices" in seen.eavesdropper


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "with up to N - 2 devices it learns the sum over the others only"),
        ({"neighbours": 4}, "with up to 3 devices it learns the sum over the others only"),
        ({"masks": False}, "device a adds up band a of every Gram matrix"),
    ],
)
def test_verdicts_on_the_server_and_devices_that_pool(options: dict[str, Any], words: str) -> None:
    cells = scheme(9, **options).secrecy()
    pooled = [cell.reason for cell in cells if (cell.adversary, cell.asset) == ("server and devices", "gram")]
    assert len(pooled) == 1
    assert words in pooled[0]


@pytest.mark.parametrize(
    ("devices", "options", "privacy", "words"),
    [
        (9, {}, {"colluding": 7}, None),
        (9, {}, {"colluding": 8}, None),  # all others: no masks can help
        (9, {}, {"losses": 1}, "privacy.losses must be 0"),
        (9, {"neighbours": 4}, {"colluding": 3}, None),
        (9, {"neighbours": 4}, {"colluding": 4}, "must be at most 3, below schemes.sealed-coded.neighbours"),
        (8, {"neighbours": 6}, {"colluding": 5}, None),
        (8, {"neighbours": 6}, {"colluding": 6}, "must be at most 5, below schemes.sealed-coded.neighbours"),
        (9, {"masks": False}, {"colluding": 1}, "needs masks"),
        (9, {"masks": False}, {}, None),
        (2, {}, {"colluding": 1}, None),
        (9, {}, {"release": "each-epoch"}, "is for scheme = 'secagg'"),
    ],
)
def test_noise_that_does_not_fit(
    devices: int, options: dict[str, Any], privacy: dict[str, Any], words: str | None
) -> None:
    found = scheme(devices, **options).refuses_noise(Privacy(epsilon=1.0, **privacy))
    assert found is None if words is None else words in str(found)


def test_numbers_that_follow_from_workers_and_threshold() -> None:
    """Sums and their blocks take four matrices of words of 64 bits, coded blocks W / K of one."""
    found = scheme(6, 10, workers=5, threshold=2)
    assert found.memory == 8 * (4 * 100 + 5 * 50)
    assert found.survives_losses == 3
    assert found.chosen_by_delays == ((0, 1, 2, 3, 4), 2)
    assert found.repeats_epochs
    assert scheme(6, 10).survives_losses == 1


@pytest.mark.parametrize(
    ("known", "overlap", "expected"), [(True, True, 1 + 4 * 4), (True, False, 1), (False, True, 1)]
)
def test_parcels_at_once(known: bool, overlap: bool, expected: int) -> None:
    """A key; of each of four chunks a piece, a sum, a block and a part."""
    assert scheme(3, 24, known=known, workers=3, threshold=2, overlap=overlap).parcels_at_once == expected


def test_counted_rounds_of_two_groups() -> None:
    """64 devices; five features in five bands on devices 0, 2, ... 8; K = 2 of W = 3 blocks of three columns."""
    found = scheme(64, 5, known=True, workers=3, threshold=2, masks=False).counted((), 4)
    (first,), *later = found.epochs
    assert len(later) == 3
    assert first.asked.tolist() == [0, 2, 4, 6, 8]
    assert first.up_bits.tolist() == [2 * 64] * 5
    assert (first.down_bits.any(), first.macs.any(), first.quorum, first.least, first.server_macs) == (
        *(False, False, 5, 5, 0),
    )
    for (costs,) in later:
        assert costs.asked.tolist() == [0, 1, 2]
        assert costs.down_bits.tolist() == [2 * 5 * 64] * 3
        assert costs.macs.tolist() == [2 * 5 * 3] * 3
        assert costs.up_bits.tolist() == [2 * 3 * 64] * 3
        assert {array.dtype.kind for array in (costs.down_bits, costs.macs, costs.up_bits)} == {"i"}
        assert (costs.quorum, costs.least) == (2, 2)
        assert costs.server_macs == 2 * 2 * 2 * 3 + 2 * 5 * 5
    assert [len(stage) for stage in found.stages] == [64 * 5 - 10, 5, 10, 5 * 3 - 2]
    assert found.after == [None, (0,), (0, 1), (0, 1, 2)]
    pieces, *others = (stage.column("grant_bits").tolist() for stage in found.stages)
    assert sorted(pieces) == [72] * (310 - 64) + [72 + 256 + 64] * 64, "a seed and its number go with the first"
    assert all(set(bits) == {72} for bits in others)


@pytest.mark.parametrize(("x", "y", "what"), [(1.5, 0.5, "feature"), (0.5, 1.5, "target")])
def test_a_device_refuses_data_beyond_the_agreed_bounds(x: float, y: float, what: str) -> None:
    found = scheme(2, 3)
    found.device(0, Shard(np.ones((4, 3)), np.ones((4, 2))))
    with pytest.raises(DataError, match=f"a {what} of size 1.5 exceeds the bound of 1"):
        found.device(0, Shard(np.full((4, 3), x), np.full((4, 2), y)))
