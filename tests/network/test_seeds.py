"""Seeds with an address: the random numbers of numpy's own spawned seeds, which results depend on."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codedfl.network.delays import addressed_seed

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
