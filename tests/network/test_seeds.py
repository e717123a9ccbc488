"""Seeds with an address: the random numbers of numpy's own spawned seeds, which results depend on."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codedfl.network import DelayModel
from codedfl.network.delays import RandomBook, addressed_seed
from codedfl.scenario import Fleet, Links

PARTS = st.integers(0, 2**32 - 1)


@given(st.integers(0, 2**200), st.lists(PARTS, min_size=1, max_size=3))
@example(0, [0, 0])
@example(2**32 - 1, [1, 2**32 - 1])
@example(2**128 - 1, [5])
@example(2**128, [5])
def test_numbers_are_those_of_a_spawned_seed(seed: int, address: list[int]) -> None:
    found, wanted = addressed_seed(seed, *address), np.random.SeedSequence(seed, spawn_key=tuple(address))
    assert found.generate_state(8, np.uint64).tolist() == wanted.generate_state(8, np.uint64).tolist()
    assert np.random.PCG64(found).state == np.random.PCG64(wanted).state


@pytest.mark.parametrize("given", [(-1, 0), (0, -1), (0, 2**32)])
def test_other_numbers_are_refused(given: tuple[int, int]) -> None:
    with pytest.raises(OverflowError):
        addressed_seed(*given)


class Noted(RandomBook):
    """Notes the epoch and stream of all numbers that are read."""

    def __init__(self) -> None:
        self.read: list[tuple[int, int]] = []

    def logarithms(
        self, seed: int, epochs: Sequence[int], stream: int, first: int, draws: int, columns: int
    ) -> np.ndarray:
        self.read += [(epoch, stream) for epoch in epochs]
        return super().logarithms(seed, epochs, stream, first, draws, columns)


def test_streams_are_those_of_runs_that_are_resumed() -> None:
    """A run of an earlier version goes on with the same numbers: the addresses are a format."""
    book, everyone = Noted(), np.arange(2)
    delays = DelayModel.create(Fleet.from_table({"devices": [{"count": 2, "mac_rate": 1.0}]}), Links(), book)
    where = {"seed": 3, "first": 0, "draws": 1}
    for question in range(3):
        delays.chance(epoch=4, question=question, **where)
    assert book.read == [(4, 0), (4, 1), (4, 2), (4, 7), (4, 8), (4, 9), (4, 10), (4, 11), (4, 12)]
    book.read.clear()
    delays.handover_chance(epoch=4, **where)
    assert book.read == [(4, 3), (4, 4), (4, 5), (4, 6)]
    book.read.clear()
    for stage in (0, 2):
        delays.stage_chance(stage=stage, senders=everyone, relayed_to=everyone, **where)
    assert sorted(book.read) == [(0, each) for each in (16, 17, 18, 22, 23, 24, 2**30, 2**30 + 2)]
