"""Mini-batches: parts that cover the data, and the gradient of each part."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl import schemes
from codedfl.errors import ScenarioError
from codedfl.scenario import Scenario
from codedfl.schemes import Scheme, Work
from codedfl.task import Problem
from codedfl.task.shard import batch_rows
from tiny import is_one_sentence, plain_gradient, problem, scenario, spied, trained


def wanted(devices: int, parts: int, changes: dict[str, Any] | None = None) -> Scenario:
    fleet = {"fleet.devices": [{"count": devices, "mac_rate": 1e6}]}
    return scenario({"scheme": "minibatch", "schemes.minibatch.parts": parts, **fleet, **(changes or {})})


def gradient(scheme: Scheme[Any], made: Problem, epoch: int, model: np.ndarray) -> np.ndarray:
    """The server's gradient of an epoch when everybody replies."""
    server = scheme.server()
    requests = server.ask(epoch, model).requests
    replies = {
        device: scheme.device(device, made.shards[device]).reply(epoch, request, Work())
        for device, request in requests.items()
    }
    return server.combine(epoch, replies, Work())


@given(st.integers(1, 200), st.integers(1, 20), st.integers(1, 1000))
def test_parts_cover_all_rows_once_in_every_cycle(samples: int, parts: int, first: int) -> None:
    rows = np.arange(samples)
    cycle = [rows[batch_rows(samples, parts, epoch)] for epoch in range(first, first + parts)]
    assert sorted(np.concatenate(cycle).tolist()) == rows.tolist()
    sizes = [len(part) for part in cycle]
    assert max(sizes) - min(sizes) <= 1


@given(
    each=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    parts=st.integers(1, 5),
    first=st.integers(1, 50),
    seed=st.integers(0, 1000),
)
def test_the_mean_over_a_cycle_is_the_full_gradient(each: list[int], parts: int, first: int, seed: int) -> None:
    """Parts of equal size (n_i = parts * b_i) and a fixed model; parts + 1 roundings more for the mean."""
    made = problem([parts * size for size in each], seed=seed)
    scheme = schemes.create(wanted(len(each), parts), made)
    model = np.random.default_rng(seed).standard_normal(made.shape)
    mean = np.mean([gradient(scheme, made, epoch, model) for epoch in range(first, first + parts)], axis=0)
    expected, bound = plain_gradient(made.shards, model)
    # bound has twice (d + n + N + 2) roundings, so that the parts + 1 <= n + 1 of the mean are within it once more
    assert np.all(abs(mean - expected) <= 2 * bound)


@given(sizes=st.lists(st.integers(3, 20), min_size=1, max_size=4), epoch=st.integers(1, 9), seed=st.integers(0, 1000))
def test_an_epoch_is_the_mean_over_its_own_samples(sizes: list[int], epoch: int, seed: int) -> None:
    """Thirds of any sizes: part k of n samples is rows floor(k n / 3) up to floor((k + 1) n / 3)."""
    made = problem(sizes, seed=seed)
    model = np.random.default_rng(seed).standard_normal(made.shape)
    part = (epoch - 1) % 3
    rows = [slice(part * n // 3, (part + 1) * n // 3) for n in sizes]
    expected, bound = plain_gradient(made.shards, model, rows)
    found = gradient(schemes.create(wanted(len(sizes), 3), made), made, epoch, model)
    assert np.all(abs(found - expected) <= bound)


def test_multiplications_are_twice_the_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of 10 and 7 samples in 3 parts (3, 3, 4 and 2, 2, 3 rows), 6 features, 3 outputs: 2 * rows * 6 * 3."""
    history = trained(problem([10, 7]), wanted(2, 3, {"training.epochs": 4})).history
    macs = [history.rounds[number].macs.tolist() for number in history.round_of_epoch]
    assert macs == [[0, 0], [3 * 36, 2 * 36], [4 * 36, 3 * 36], [3 * 36, 2 * 36]]
    assert history.columns["device_macs"] == [0, 5 * 36, 7 * 36, 5 * 36]


def test_everybody_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = wanted(4, 2)
    seen = spied(monkeypatch, chosen)
    trained(problem([5, 6, 7, 8]), chosen)
    assert [set(epoch.replies) for epoch in seen] == [{0, 1, 2, 3}] * 5


def test_more_parts_than_samples_are_refused() -> None:
    with pytest.raises(ScenarioError) as error:
        schemes.create(wanted(3, 5), problem([9, 4, 6]))
    assert "schemes.minibatch.parts = 5 must be at most 4" in str(error.value)
    assert is_one_sentence(str(error.value))
    schemes.create(wanted(3, 4), problem([9, 4, 6]))


def test_the_memory_of_the_sums_of_batches() -> None:
    """Two Gram matrices of six features, or at most as many rows as there are data points, in float64."""
    assert schemes.create(wanted(2, 2), problem([9, 4])).memory == 8 * 6 * 12
    assert schemes.create(wanted(2, 3), problem([9, 4])).memory == 8 * 6 * 13
