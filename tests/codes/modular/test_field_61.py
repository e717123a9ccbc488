"""The field of 2^61 - 1 elements: its prime, its limbs at their edges, and words that are no residues."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.cipher.seals import FIELD_61, Domain, FixedPoint, Pad, Seed
from codedfl.codes.modular.field_61_kernels import DEPTH, TOGETHER, product_61, reduce_61
from codedfl.codes.modular.vector_kernels import LANES

P = 2**61 - 1
# residues at which a limb of either factor is empty or full, or one carries into the other
edges = st.sampled_from(
    [sign % P * (1 << bit) % P + by for sign in (1, -1) for bit in (0, 30, 31, 60) for by in (0, 1)]
)
residues_61 = st.one_of(edges, st.just(P - 1), st.integers(0, P - 1))


def exact(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return ((left.astype(object) @ right.astype(object)) % P).astype(np.uint64)


def test_the_modulus_is_a_prime() -> None:
    """By the Lucas-Lehmer test: 2^q - 1 is prime if and only if it divides s_(q-2), s_0 = 4, s_(i+1) = s_i^2 - 2."""
    s = 4
    for _ in range(61 - 2):
        s = (s * s - 2) % P
    assert FIELD_61.modulus == P
    assert s == 0


@given(st.data(), st.integers(1, 5), st.integers(1, DEPTH + TOGETHER + 1), st.integers(1, 2 * LANES + 1))
@settings(max_examples=100)
def test_limbs_at_their_edges(data: st.DataObject, c: int, d: int, b: int) -> None:
    """Few residues are drawn and repeated, because many examples matter more."""
    few = [data.draw(st.lists(residues_61, min_size=1, max_size=11)) for _ in range(2)]
    left, right = (
        np.resize(np.array(values, np.uint64), shape) for values, shape in zip(few, ((c, d), (d, b)), strict=True)
    )
    np.testing.assert_array_equal(FIELD_61.product(left, right), exact(left, right))


@pytest.mark.parametrize("t", [P - 1, (2**31 - 2) * 2**30 + 2**30 - 1, (2**30 - 2) * 2**31 + 2**31 - 1])
def test_the_largest_terms_never_wrap(t: int) -> None:
    """Limbs that are all ones, or all but one: the largest sums there are, over many rows and five columns."""
    rows = 20 * DEPTH + TOGETHER + 1
    left, right = np.full((2, rows), t, np.uint64), np.full((rows, LANES + 1), t, np.uint64)
    expected = rows * t * t % P
    assert FIELD_61.product(left, right).tolist() == [[expected] * (LANES + 1)] * 2


@pytest.mark.parametrize("depth", [1, TOGETHER, DEPTH - 1, DEPTH, DEPTH + 1, 3 * DEPTH])
@pytest.mark.parametrize("first, last", [(0, LANES), (3, 3 + 2 * LANES), (5, 15), (7, 7), (13, 16)])
def test_ranges_of_columns_leave_the_others_alone(depth: int, first: int, last: int) -> None:
    rng = np.random.default_rng(9)
    left, right = (rng.integers(0, P, shape, dtype=np.uint64) for shape in ((3, depth), (depth, 17)))
    out = np.full((3, 17), 77, np.uint64)
    product_61(left, right, out, first, last)
    expected = np.full((3, 17), 77, np.uint64)
    expected[:, first:last] = exact(left, right[:, first:last])
    np.testing.assert_array_equal(out, expected)


def test_words_are_cut_to_61_bits_and_the_one_that_is_no_residue_is_counted() -> None:
    words = np.array([0, P - 1, P, P + 1, 2**64 - 1, 2**64 - 2], np.uint64)
    assert reduce_61(words) == 2
    assert words.tolist() == [0, P - 1, P, 0, P, P - 1]


def test_pads_are_residues_of_the_low_61_bits_of_a_stream_of_their_own() -> None:
    pad, other = (Pad(FIELD_61, Seed(bytes(32)), Domain(0, export)).residues(1000) for export in (0, 1))
    assert pad.max() < P
    assert np.array_equal(pad, Pad(FIELD_61, Seed(bytes(32)), Domain(0, 0)).residues(1000))
    assert not np.intersect1d(pad, other).size


def test_the_paper_leaves_39_bits_for_the_data() -> None:
    """(15/16) 2^60 / (16 * 2000) = 3.378e13 steps for a sum of 60: 60 * 2^39 = 3.299e13 fits, 2^40 does not."""
    found = FixedPoint.choose(FIELD_61, entry_bound=2.4, summands=25, dimension=2000, model_steps=16)
    assert found.data_bits == 39
