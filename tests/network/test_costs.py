"""Costs of a round: its parts alone, and a key that tells different costs apart."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from codedfl.network import RoundCosts

COSTS = RoundCosts(
    asked=np.array([2, 0]),
    down_bits=np.array([64, 32]),
    macs=np.array([5, 7]),
    up_bits=np.array([16, 8]),
    quorum=2,
    server_macs=9,
    least=1,
    deadline=2.5,
    standing=True,
)


def listed(costs: RoundCosts) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(costs).items()}


def test_computing_alone_sends_nothing() -> None:
    assert listed(COSTS.computing) == listed(COSTS) | {"down_bits": [0, 0], "up_bits": [0, 0]}
    assert COSTS.computing.down_bits.dtype == COSTS.computing.up_bits.dtype == np.int64


def test_uploads_alone_neither_receive_nor_compute() -> None:
    assert listed(COSTS.uploads) == listed(COSTS) | {"down_bits": [0, 0], "macs": [0, 0]}
    assert COSTS.uploads.down_bits.dtype == COSTS.uploads.macs.dtype == np.int64


@pytest.mark.parametrize("name", [each.name for each in fields(RoundCosts)])
def test_costs_that_differ_in_anything_have_another_key(name: str) -> None:
    value = getattr(COSTS, name)
    assert COSTS.key() == replace(COSTS).key() == replace(COSTS, asked=COSTS.asked.copy()).key()
    change: dict[str, Any] = {name: not value if isinstance(value, bool) else value + 1}
    assert COSTS.key() != replace(COSTS, **change).key()
