"""Workers, threshold and alpha on uneven links that lose messages: against sums over devices written out one by one."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from codedfl.network import DelayModel
from codedfl.scenario import Fleet, Links
from codedfl.schemes import Public
from codedfl.schemes.coded import worker_choice
from codedfl.schemes.coded.worker_choice import DRAWS, SEED, Workers, choose_alpha, choose_workers

D, C, BITS, OVERHEAD = 30, 4, 48, 0.25
EPOCHS = [round(1.25**power) for power in range(3, 40)]


def uneven(seed: int, count: int = 6, **links: Any) -> Public:
    """Devices whose rates and losses all differ, so any of them may be the slowest in something."""
    rng = np.random.default_rng(seed)
    fleet = [
        {
            "count": 1,
            **{name: float(rng.uniform(2e4, 1e5)) for name in ("up_rate", "down_rate", "d2d_rate")},
            **{name: float(rng.uniform(0.1, 0.5)) for name in ("loss", "d2d_loss")},
            "mac_rate": float(rng.uniform(2e3, 2e4)),
            "setup_ratio": float(rng.uniform(0.1, 0.9)),
        }
        for _ in range(count)
    ]
    delays = DelayModel.create(Fleet(devices=fleet), Links(**{"overhead": OVERHEAD, **links}))
    return Public((5,) * count, D, C, np.dtype("float32"), delays=delays)


def reply_times(public: Public, width: int) -> np.ndarray:
    """When each device's reply arrives in each draw: c d words down, c d times the width products, c width words up."""
    delays: Any = public.delays
    chance = delays.chance(SEED, 2, 0, DRAWS)
    found = np.empty((DRAWS, public.devices))
    for i in range(public.devices):
        down = C * D * BITS * (1 + OVERHEAD) / delays.down_rate[i] * chance.down_tries[:, i]
        work = C * D * width / delays.mac_rate[i] * (1 + delays.setup_ratio[i] * chance.setup[:, i])
        up = C * width * BITS * (1 + OVERHEAD) / delays.up_rate[i] * chance.up_tries[:, i]
        found[:, i] = down + work + up
    return found


def set_up_seconds(public: Public, alpha: int, *, relayed: bool, shared: bool) -> float:
    """The busiest device sends and takes alpha - 1 parcels side by side, multiplies each and, twice, its own data."""
    delays: Any = public.delays
    words = D * (D + 1) / 2 + D * C
    sent, taken = ("up_rate", "down_rate") if relayed else ("d2d_rate", "d2d_rate")
    loss = delays.loss if relayed else delays.d2d_loss
    bits = [words * BITS * (1 + OVERHEAD) / (1 - loss[i]) for i in range(public.devices)]
    sending = [bits[i] / getattr(delays, sent)[i] for i in range(public.devices)]
    taking = [bits[i] / getattr(delays, taken)[i] for i in range(public.devices)]
    busiest = 0.0
    for i in range(public.devices):
        work = words / delays.mac_rate[i] * (1 + delays.setup_ratio[i])
        parcel = sum(sending) if shared and not relayed else max(sending[i], taking[i])
        last = taking[i] if relayed else 0.0
        busiest = max(busiest, (alpha - 1) * (parcel + work) + (last + 2 * work if alpha > 1 else 0.0))
    return busiest


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("relayed", "channel"), [(True, "parallel"), (False, "parallel"), (False, "shared")])
def test_alpha_weighs_replies_against_the_busiest_device(seed: int, relayed: bool, channel: str) -> None:
    public = uneven(seed, d2d_channel=channel)
    replies = np.sort(reply_times(public, D), axis=1)
    epoch = [float(replies[:, 6 - alpha].mean()) for alpha in range(1, 7)]
    set_up = [set_up_seconds(public, alpha, relayed=relayed, shared=channel == "shared") for alpha in range(1, 7)]
    found = []
    for epochs in EPOCHS:
        times = [once / epochs + each for once, each in zip(set_up, epoch, strict=True)]
        found.append(choose_alpha(public, BITS, relayed=relayed, expected_epochs=epochs))
        assert found[-1] == 1 + int(np.argmin(times))
    assert len(set(found)) > 2, "the choice depends on the number of epochs"


def fastest_first(public: Public) -> list[int]:
    """By the mean time of a reply about all columns: every message takes 1 / (1 - loss) tries on average."""
    delays: Any = public.delays

    def seconds(i: int) -> float:
        bits = C * D * BITS * (1 + OVERHEAD) / (1 - delays.loss[i])
        work = C * D * D / delays.mac_rate[i] * (1 + delays.setup_ratio[i])
        return float(bits / delays.down_rate[i] + work + bits / delays.up_rate[i])

    return sorted(range(public.devices), key=seconds)


def spreading_seconds(public: Public, W: int, K: int, *, shared: bool) -> float:
    delays: Any = public.delays
    width = math.ceil(D / K)
    words = max(D * width, W * width * math.ceil(D / public.devices))
    if shared:
        words = W * width * (D - D // public.devices)
    rates = sorted(delays.d2d_rate[i] * (1 - delays.d2d_loss[i]) for i in range(public.devices))
    middle = len(rates) // 2
    median = rates[middle] if len(rates) % 2 else (rates[middle - 1] + rates[middle]) / 2
    return float(words * BITS * (1 + OVERHEAD) / median)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("channel", ["parallel", "shared"])
@pytest.mark.parametrize(
    ("fits", "options"),
    [
        (lambda W, K: W >= K + 1, {"spares": 1}),
        (lambda W, K: W >= K, {"spares": 0}),
        (lambda W, K: W == 4 and K <= 2, {"workers": 4, "spares": 2}),
        (lambda W, K: K == 3 and W >= 3, {"threshold": 3, "spares": 2}),
    ],
    ids=["one spare", "no spare", "four workers", "three replies"],
)
def test_workers_are_those_of_the_least_mean_time(
    seed: int, channel: str, fits: Callable[[int, int], bool], options: dict[str, int]
) -> None:
    """Of all pairs that are allowed; 7 devices, whose rows are not divided evenly."""
    public = uneven(seed + 10, 7, d2d_channel=channel)
    order = fastest_first(public)
    allowed = [(W, K) for K in range(1, 8) for W in range(K, 8) if fits(W, K)]
    epoch = {}
    for K in {K for _, K in allowed}:
        replies = reply_times(public, math.ceil(D / K))
        for W in [W for W, awaited in allowed if awaited == K]:
            epoch[W, K] = float(np.sort(replies[:, order[:W]], axis=1)[:, K - 1].mean())
    for epochs in EPOCHS[::3]:
        times = {
            (W, K): epoch[W, K] + spreading_seconds(public, W, K, shared=channel == "shared") / epochs
            for W, K in allowed
        }
        given: dict[str, Any] = {"workers": None, "threshold": None, **options}
        found = choose_workers(public, BITS, **given, expected_epochs=epochs)
        assert found == Workers(tuple(order), *min(times, key=times.__getitem__))


def test_workers_of_a_larger_fleet() -> None:
    """The 20th of the replies of the W fastest of 60 devices, which the time of an epoch depends on alone."""
    public = uneven(20, 60)
    order = fastest_first(public)
    replies = reply_times(public, math.ceil(D / 20))[:, order]
    epoch = {W: float(np.sort(replies[:, :W], axis=1)[:, 19].mean()) for W in range(20, 61)}
    found = set()
    for epochs in EPOCHS[::4]:
        times = {W: epoch[W] + spreading_seconds(public, W, 20, shared=False) / epochs for W in epoch}
        chosen = choose_workers(public, BITS, workers=None, threshold=20, spares=0, expected_epochs=epochs)
        assert (chosen.count, chosen.threshold) == (min(times, key=times.__getitem__), 20)
        found.add(chosen.count)
    assert len(found) > 2, "the choice depends on the number of epochs"


def alike(count: int, **more: float) -> Public:
    """Devices without any chance, which compute slowly."""
    fleet = [{"count": count, "mac_rate": 1e3, "setup_ratio": 0.0, "setup_seconds": 0.0, "loss": 0.0, **more}]
    delays = DelayModel.create(Fleet(devices=fleet), Links())
    return Public((5,) * count, D, C, np.dtype("float32"), delays=delays)


def picked(public: Public, **options: int | None) -> tuple[int, int]:
    given: dict[str, Any] = {"workers": None, "threshold": None, "spares": 0, "expected_epochs": 10**9, **options}
    found = choose_workers(public, BITS, **given)
    return found.count, found.threshold


def test_only_the_fastest_are_tried_unless_more_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of six devices that are alike each further one makes an epoch shorter; three are tried."""
    monkeypatch.setattr(worker_choice, "MOST_WORKERS", 3)
    public = alike(6)
    assert picked(public) == (3, 3)
    assert picked(public, spares=1) == (3, 2)
    assert picked(public, workers=5) == (5, 5)
    assert picked(public, threshold=4) == (4, 4)
    assert picked(public, spares=4) == (5, 1)
    assert picked(alike(2)) == (2, 2)


def test_fewer_workers_where_more_gain_nothing() -> None:
    """One reply of three, and one of those that are alike is as good as another."""
    assert picked(alike(6), threshold=2) == (2, 2)
    assert picked(alike(6), threshold=2, spares=3) == (2, 2), "spares are those of a threshold that is not given"


@pytest.mark.parametrize("spares", [0, 1, 2])
def test_one_device_that_is_much_faster_does_all(spares: int) -> None:
    fleet = [{"count": 1, "mac_rate": 1e9, "setup_ratio": 0.0}, {"count": 5, "mac_rate": 1.0, "setup_ratio": 0.0}]
    public = Public(
        (5,) * 6, D, C, np.dtype("float32"), delays=DelayModel.create(Fleet(devices=fleet), Links(loss=0.0))
    )
    assert picked(public, spares=spares) == (spares + 1, 1)


@pytest.mark.parametrize("options", [{"spares": 6}, {"workers": 3, "threshold": 4}, {"workers": 2, "spares": 2}])
def test_what_does_not_fit_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="no W and K fit 6 devices"):
        picked(alike(6), **options)


@pytest.mark.parametrize(("loss", "first"), [(0.0, 0), (0.3, 0), (0.34, 1), (0.9, 1)])
def test_a_device_that_loses_messages_sends_them_again(loss: float, first: int) -> None:
    """Device 1 has links of two thirds of the rate: it is as fast where device 0 sends everything one and a half times.

    That is at a loss of one third.
    """
    own = {"count": 1, "mac_rate": 1e6, "setup_ratio": 0.0, "setup_seconds": 0.0}
    fleet = [
        {**own, "up_rate": 3e3, "down_rate": 3e3, "loss": loss},
        {**own, "up_rate": 2e3, "down_rate": 2e3, "loss": 0.0},
    ]
    delays = DelayModel.create(Fleet(devices=fleet), Links())
    found = choose_workers(
        Public((5, 5), D, C, np.dtype("float32"), delays=delays),
        *(BITS,),
        **{"workers": 2, "threshold": 1, "spares": 0, "expected_epochs": 1},
    )
    assert found.order == (first, 1 - first)


@pytest.mark.parametrize(("rate", "first"), [(1.01, 0), (0.99, 1)])
def test_devices_are_compared_by_a_reply_about_all_columns(rate: float, first: int) -> None:
    """c d d products at 1e3 a second take as long as c d words each way at this rate, or a bit less or more."""
    even = 2 * 1.1 * BITS * 1e3 / D
    own = {"count": 1, "setup_ratio": 0.0, "setup_seconds": 0.0, "loss": 0.0}
    links = [
        {**own, "mac_rate": 1e12, "up_rate": even * rate, "down_rate": even * rate},
        {**own, "mac_rate": 1e3, "up_rate": 1e12, "down_rate": 1e12},
    ]
    delays = DelayModel.create(Fleet(devices=links), Links(overhead=0.1))
    public = Public((5, 5), D, C, np.dtype("float32"), delays=delays)
    found = choose_workers(public, BITS, workers=2, threshold=1, spares=0, expected_epochs=1)
    assert found.order == (first, 1 - first)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"spares": 2}, (6, 4)),
        ({"spares": 5}, (6, 1)),
        ({"spares": 6}, (6, 1)),
        ({"spares": 0}, (6, 6)),
        ({"workers": 4, "spares": 1}, (4, 3)),
        ({"threshold": 2, "spares": 1}, (6, 2)),
    ],
)
def test_unknown_delays(options: dict[str, int], expected: tuple[int, int]) -> None:
    public = Public((5,) * 6, D, C, np.dtype("float32"))
    assert picked(public, **options) == expected
    given: dict[str, Any] = {"workers": None, "threshold": None, **options}
    assert choose_workers(public, BITS, **given, expected_epochs=1).order == (0, 1, 2, 3, 4, 5)
