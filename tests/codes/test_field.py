from itertools import product

import numpy as np
import pytest

from codedfl.codes.field import field, prime_power
from codedfl.errors import CodeError

ORDERS = [2, 3, 4, 5, 7, 8, 9, 16, 25, 27]


@pytest.mark.parametrize("q", ORDERS)
def test_field_axioms(q):
    plus, times = field(q).plus, field(q).times
    elements = np.arange(q)
    for table, one in ((plus, 0), (times, 1)):
        assert np.array_equal(table, table.T)
        assert np.array_equal(table[one], elements)
        assert np.array_equal(table[table], table[:, table])
    assert not times[0].any()
    assert all(sorted(row) == list(elements) for row in plus)
    assert all(sorted(row) == list(elements) for row in times[1:])
    for a, b in product(range(q), repeat=2):
        assert np.array_equal(times[plus[a, b]], plus[times[a], times[b]])


def test_prime_powers():
    found = [q for q in range(-1, 33) if prime_power(q)]
    assert found == [2, 3, 4, 5, 7, 8, 9, 11, 13, 16, 17, 19, 23, 25, 27, 29, 31, 32]
    assert prime_power(243) == (3, 5)


@pytest.mark.parametrize("q", [0, 1, 6, 12, 257])
def test_no_such_field(q):
    with pytest.raises(CodeError, match=f"no table field of {q} elements: choose a prime power up to 256"):
        field(q)
