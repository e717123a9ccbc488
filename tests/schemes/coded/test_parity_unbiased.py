"""The gradient of parity data and timely replies is the plaintext one on average, and a wrong weight is noticed.

Hotelling's test on many independent gradients, each with generators, chosen points and delays of its own. For normal
gradients the chance to reject a right mean is ALARM; by the central limit theorem means of so many are nearly normal.
Seeds are fixed, so the outcome is always the same.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from codedfl import schemes
from codedfl.engines import VirtualEngine
from codedfl.engines.virtual import move
from codedfl.network import DelayModel
from codedfl.schemes import Work
from codedfl.schemes.coded.parity import Batch, Parity, ParityDevice, ParityServer
from codedfl.task import Problem
from tiny import plain_gradient, problem, scenario

ALARM = 1e-6
DRAWS = 800
FLEET = [
    {"count": 2, "mac_rate": 1e3},
    {"count": 2, "mac_rate": 3e2, "setup_seconds": 0.1},
    {"count": 1, "mac_rate": 40},
]
CHOSEN = scenario(
    {
        "scheme": "parity",
        "schemes.parity": {"parts": 1, "redundancy": 0.3},
        "fleet.devices": FLEET,
        "links.down_rate": 2e4,
        "links.up_rate": 1e4,
        "links.loss": 0.3,
    }
)
GIVEN = problem([12, 10, 14, 9, 15], features=3, outputs=2)
MODEL = np.random.default_rng(5).standard_normal((3, 2))


def made(rows: str = "summed") -> Parity:
    scheme = schemes.create(CHOSEN.with_settings({"schemes.parity.rows": rows}), GIVEN)
    assert isinstance(scheme, Parity)
    return scheme


def gradients(scheme: Parity, batches: Sequence[Batch], draws: int, given: Problem = GIVEN) -> np.ndarray:
    """One gradient for each seed of generators and draw of delays, through the engine, until the deadline."""
    delays = DelayModel.create(CHOSEN.fleet, CHOSEN.links)
    found = []
    for seed in range(draws):
        devices = [ParityDevice(i, shard, [batches[i]], seed) for i, shard in enumerate(given.shards)]
        server = ParityServer(scheme.public, scheme.allocations, [batches])
        for stage in server.set_up():
            for transfer in stage.transfers:
                move(devices, transfer, server.receive)
        engine = VirtualEngine(devices, delays, seed=0, draw=seed)
        answer = engine.ask(dataclasses.replace(server.ask(2, MODEL), least=0), offline=False)
        found.append(server.combine(2, {reply.device: reply.message for reply in answer.replies}, Work()).ravel())
    return np.stack(found)


def is_mean(values: np.ndarray, expected: np.ndarray) -> bool:
    """Hotelling's T^2 = n (mean - mu)^T S^-1 (mean - mu), which is p (n - 1) / (n - p) times F(p, n - p)."""
    n, p = values.shape
    away = values.mean(axis=0) - expected
    statistic = n * away @ np.linalg.solve(np.cov(values.T), away)
    return bool(statistic <= p * (n - 1) / (n - p) * scipy.stats.f.isf(ALARM, p, n - p))


EXPECTED = plain_gradient(GIVEN.shards, MODEL)[0].ravel()


@pytest.mark.parametrize("rows", ["summed", "own"])
def test_the_mean_is_the_plaintext_gradient(rows: str) -> None:
    scheme = made(rows)
    (batches,) = scheme.batches
    assert any(0 < batch.load < batch.points for batch in batches), "some work on a part"
    assert any(0.2 < batch.chance < 0.9 for batch in batches), "some are often late"
    assert is_mean(gradients(scheme, batches, DRAWS), EXPECTED)


@pytest.mark.parametrize("wrong", ["weights left out", "late points left out", "a tenth too small a chance"])
def test_wrong_weights_are_noticed(wrong: str) -> None:
    scheme = made()
    (batches,) = scheme.batches
    factors = {"weights left out": 0.0, "late points left out": np.inf, "a tenth too small a chance": 0.9}
    changed = [replace(batch, chance=min(1.0, batch.chance * factors[wrong])) for batch in batches]
    assert not is_mean(gradients(scheme, changed, DRAWS), EXPECTED)


@pytest.mark.parametrize("rows", ["summed", "own"])
def test_the_variance_of_the_parity_gradient(rows: str) -> None:
    """Nobody works: E ||error||^2 = (||X||^2 ||R||^2 + ||X^T R||^2) / c, for each block of rows, R = X Theta - Y.

    The mean over draws is held within six of its standard deviations.
    """
    given = GIVEN
    points, own = given.samples, [10, 8, 12, 8, 12]
    firsts = np.cumsum([0, *own])
    batches = [
        Batch(slice(0, shard.samples), 0, 0.0, *((0, 50) if rows == "summed" else (int(firsts[i]), own[i])))
        for i, shard in enumerate(given.shards)
    ]
    blocks = [given.shards] if rows == "summed" else [(shard,) for shard in given.shards]
    expected = 0.0
    for block, count in zip(blocks, [50] if rows == "summed" else own, strict=True):
        x, y = np.concatenate([shard.x for shard in block]), np.concatenate([shard.y for shard in block])
        r = x @ MODEL - y
        expected += (np.sum(x**2) * np.sum(r**2) + np.sum((x.T @ r) ** 2)) / count
    scheme = made()
    found = []
    for seed in range(DRAWS):
        devices = [ParityDevice(i, shard, [batches[i]], seed) for i, shard in enumerate(given.shards)]
        server = ParityServer(scheme.public, scheme.allocations, [batches])
        server.ask(1, MODEL)
        for transfer in server.set_up()[0].transfers:
            move(devices, transfer, server.receive)
        away = server.combine(1, {}, Work()).ravel() - EXPECTED
        found.append(np.sum(away**2) * points**2)
    assert abs(np.mean(found) - expected) <= 6 * np.std(found) / np.sqrt(DRAWS)
    assert np.std(found) / np.sqrt(DRAWS) < 0.05 * expected, "six deviations say something"
