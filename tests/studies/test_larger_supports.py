"""The study of larger erasure sets: rates, supports and levels against other ways to compute them."""

import numpy as np
import pytest

from codedfl.cipher.mceliece.parameters import PAPER_92, PAPER_128, Parameters
from codedfl.codes.bounds import least_overlap
from codedfl.codes.constant_weight import family
from codedfl.studies import larger_supports as study

SMALL = Parameters(n=80, k=40, degree=7, t_tot=12, t=4, M=4, beta=2)


def test_rows_do_not_depend_on_the_workers_but_on_the_seed() -> None:
    one, two, other = (
        study.larger_supports((12, 20, 30), parameters=SMALL, many=SMALL, trials=500, seed=seed, workers=workers)
        for seed, workers in ((1, 1), (1, 2), (2, 2))
    )
    assert one == two != other
    assert [row["peeling"] for row in one] == sorted(row["peeling"] for row in one)
    assert all(row["inactivation"] <= row["peeling"] for row in one)
    assert one[-1]["peeling"] > 0.5 > one[-1]["inactivation"]


@pytest.mark.parametrize(("length", "t"), [(256, 64), (512, 128)])
def test_the_largest_supports_exist_and_overlap_by_no_larger_share(length: int, t: int) -> None:
    """The paper's size gives the paper's t, twice the size twice that, and a family is found that meets the bound."""
    assert study._largest_support(PAPER_92, length) == t
    found = family(length, t, PAPER_92.M)
    assert found.overlap == least_overlap(length, t, PAPER_92.M) <= 13 * t // 64
    assert all(least_overlap(length, t + more, PAPER_92.M) * 64 > 13 * (t + more) for more in range(1, 40))


def test_at_full_size_inactivation_allows_128_bits_with_16_supports() -> None:
    first, last = study.larger_supports((256, 512), trials=16, seed=0)
    assert (first["t"], first["overlap"], first["level"], first["supports"]) == (64, 13, 92, PAPER_128.M)
    assert (last["t"], last["overlap"], last["level"]) == (128, 26, 128)
    assert last["peeling"] == 1 and last["inactivation"] == 0
    assert 1 < first["condition"] < last["condition"] < 10
    assert np.isfinite([value for row in (first, last) for value in row.values()]).all()
