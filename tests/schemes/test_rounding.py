"""How rounding errors relate to the size of gradients, where one device publishes larger bounds than all others."""

from dataclasses import replace

import numpy as np
import pytest

from codedfl.schemes import Public
from codedfl.schemes.rounding import Rounding

PUBLIC = Public((10,) * 3, 4, 2, np.dtype("float64"), largest_feature=8.0, claims=((1.0, 1.0), (1.0, 1.0), (8.0, 1.0)))


def test_uniform_steps_of_both_sums_count_against_the_size_that_is_typical() -> None:
    """By hand: 30 rows of typical features up to 1 sum up to 30; sqrt(d) = 2 times the error of a Gram matrix."""
    assert Rounding(0.0, 0.0, uniform=(0.0, 3.0)).at_typical(PUBLIC) == pytest.approx(3 / 30)
    assert Rounding(0.0, 0.0, uniform=(6.0, 0.0)).at_typical(PUBLIC) == pytest.approx(2 * 6 / 30)
    assert Rounding(0.0, 0.0, joint=6.0).at_typical(PUBLIC) == pytest.approx(2 * 6 / 30)
    assert Rounding(0.0, 0.0, joint=1.5, uniform=(4.5, 3.0)).at_typical(PUBLIC) == pytest.approx((3 + 2 * 6) / 30)


def test_where_all_publish_the_same_nothing_is_added() -> None:
    alike = replace(PUBLIC, claims=((8.0, 1.0),) * 3)
    assert Rounding(0.0, 0.0, joint=1.5, uniform=(4.5, 3.0)).at_typical(alike) == 0
