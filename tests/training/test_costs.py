"""What each device spends: rounds, hand-overs, uploads and relays, counted by hand and against runs."""

import numpy as np
import pytest

from codedfl.network import RoundCosts, TransferCosts
from codedfl.schemes import SERVER
from codedfl.training import History, StageRecord
from codedfl.training.costs import LINKS, add_transfers, mean_and_largest, nothing, spent_in


def asked(devices: list[int], down: int, macs: int, up: int) -> RoundCosts:
    each = np.ones(len(devices), np.int64)
    return RoundCosts(np.array(devices), down * each, macs * each, up * each, quorum=len(devices), server_macs=0)


def listed(spent: dict[str, np.ndarray]) -> dict[str, list[int]]:
    return {name: values.tolist() for name, values in spent.items()}


def test_rounds_count_for_those_who_are_asked_as_often_as_they_are() -> None:
    history = History()
    everyone, two = asked([0, 1, 2], 10, 100, 1), asked([0, 2], 1000, 7, 5)
    history.add_round(everyone)
    history.add_round(everyone, two)
    history.add_round(two)
    spent = spent_in(history, 4)
    assert listed(spent) == {
        "down": [2020, 20, 2020, 0],
        "up": [12, 2, 12, 0],
        "d2d": [0, 0, 0, 0],
        "macs": [214, 200, 214, 0],
    }


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        (TransferCosts(0, 1, 3, 50, 800, 20), {"down": [3, 0], "up": [0, 0], "d2d": [800, 0], "macs": [50, 20]}),
        (
            TransferCosts(0, 1, 3, 50, 800, 20, relayed=True),
            {"down": [3, 800], "up": [800, 0], "d2d": [0, 0], "macs": [50, 20]},
        ),
        (
            TransferCosts(1, SERVER, 3, 50, 800, 0),
            {"down": [0, 3], "up": [0, 800], "d2d": [0, 0], "macs": [0, 50]},
        ),
    ],
    ids=["to a device", "relayed", "to the server"],
)
def test_parcels(costs: TransferCosts, expected: dict[str, list[int]]) -> None:
    spent = nothing(2)
    add_transfers(spent, [costs])
    assert listed(spent) == expected
    assert {link: int(spent[link].sum()) for link in LINKS} == costs.bits()


def test_hand_overs_and_stages_of_a_training_count() -> None:
    history = History()
    history.add_round(asked([0, 1], 1, 1, 1))
    parcel = TransferCosts(0, 1, 0, 5, 30, 2)
    history.stages += [StageRecord(0, [parcel, parcel]), StageRecord(1, [parcel], retires=True)]
    history.stages += [StageRecord(1, [parcel])]
    assert listed(spent_in(history, 2)) == {"down": [1, 1], "up": [1, 1], "d2d": [120, 0], "macs": [21, 9]}


def test_mean_and_largest() -> None:
    assert mean_and_largest(np.array([1, 2, 6])) == {"mean": 3.0, "largest": 6.0}
