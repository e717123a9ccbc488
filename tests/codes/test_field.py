from itertools import product

import numpy as np
import pytest

from codedfl.codes import field as fields
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


@pytest.mark.parametrize(
    ("q", "power"),
    [
        *((prime, (prime, 1)) for prime in (2, 3, 5, 101, 251)),
        *((4, (2, 2)), (9, (3, 2)), (121, (11, 2)), (169, (13, 2)), (125, (5, 3)), (256, (2, 8)), (289, (17, 2))),
        *((q, None) for q in (-4, 0, 1, 6, 15, 18, 45, 100, 143, 255)),
    ],
)
def test_the_prime_and_its_exponent(q, power):
    assert prime_power(q) == power


@pytest.mark.parametrize(
    ("q", "powers"),
    [
        (4, [2, 3]),  # x^2 = 1 + x
        (8, [2, 4, 5]),  # x^3 = 1 + x^2
        (9, [3, 4]),  # x^2 = 1 + x; 1 and 2 alone have roots
        (16, [2, 4, 8, 9]),  # x^4 = 1 + x^3
        (25, [5, 11]),  # x^2 = 1 + 2x; 1 and 1 + x have roots, as have all multiples of x
        (27, [3, 9, 19]),  # x^3 = 1 + 2x^2; 1 and 1 + x^2 have roots
    ],
)
def test_the_polynomial_is_the_first_without_a_factor(q, powers):
    """The powers of x, whose digit in the second place is 1; the order of the elements decides about results."""
    times, p, found = field(q).times, powers[0], [1]
    for _ in powers:
        found.append(int(times[found[-1], p]))
    assert found[1:] == powers


def test_the_largest_field(monkeypatch):
    monkeypatch.setattr(fields, "LARGEST", 13)
    field.cache_clear()
    assert field(13).times[7, 5] == 35 % 13
    with pytest.raises(CodeError, match="no table field of 16 elements: choose a prime power up to 13"):
        field(16)


@pytest.mark.parametrize("q", [0, 1, 6, 12, 257])
def test_no_such_field(q):
    with pytest.raises(CodeError, match=f"no table field of {q} elements: choose a prime power up to 256"):
        field(q)
