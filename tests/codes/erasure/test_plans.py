"""Amplifications, bounds and gains of plans for small codes, by hand."""

import numpy as np
import pytest

from codedfl.codes.erasure import DECODERS
from codedfl.codes.erasure.contract import ErasureDecoder, checked_positions
from codedfl.codes.erasure.inactivation import Inactivation
from codedfl.codes.erasure.least_squares import LeastSquares
from codedfl.codes.erasure.peeling import Peeling
from codedfl.codes.mdpc import MdpcCode
from codedfl.errors import CodeError
from codes.erasure.bordered import bordered

SINGLE, DOUBLE = np.finfo(np.float32).eps, np.finfo(np.float64).eps
every_decoder = pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS.keys())
precisions = pytest.mark.parametrize(("dtype", "unit"), [(np.float32, SINGLE), (np.float64, DOUBLE)])


@every_decoder
def test_nothing_erased_amplifies_nothing(decoder: ErasureDecoder) -> None:
    code, _ = bordered([[2.0]], [[1.0, 3.0]])
    plan = decoder.prepare(code, np.array([], dtype=np.int64))
    assert (plan.amplification, plan.error_bound) == (0, 0)
    assert plan.error_gain == pytest.approx(1)  # messages are words times an orthogonal matrix


@every_decoder
@pytest.mark.parametrize("weight", [0.5, 3.0])
def test_one_symbol_of_one_check(decoder: ErasureDecoder, weight: float) -> None:
    """2 x + weight y = 0 restores x within weight / 2."""
    code, erased = bordered([[2.0]], [[weight]])
    plan = decoder.prepare(code, erased)
    assert plan.amplification == weight / 2
    assert plan.decode(np.array([[np.nan, 4.0]])).tolist() == [[-2 * weight, 4]]


@precisions
def test_the_bound_of_least_squares(dtype: type, unit: float) -> None:
    """n + 3 = 7 roundings of a term, and 2 * 2 in float64 times the condition, which is 8; |x1| / 8 adds up to 3."""
    code, erased = bordered([[1, 0], [0, 0.125]], [[0.5, 0.25], [0.125, 0.25]])
    plan = LeastSquares().prepare(code, erased, dtype)
    assert plan.amplification == pytest.approx(3)
    assert plan.error_bound == pytest.approx((7 * unit + 2 * 2 * DOUBLE * 8) * 3)


@precisions
def test_the_bound_of_peeling(dtype: type, unit: float) -> None:
    """x0 + y0 + 3 y1 = 0, 2 x1 + x0 = 0: 1 + 3 = 4, and (1 + 4) / 2; three and more roundings of two terms."""
    code, erased = bordered([[1, 0], [1, 2]], [[1, 3], [0, 0]])
    for decoder, terms in ((Peeling(), 2), (Inactivation(), code.n)):
        plan = decoder.prepare(code, erased, dtype)
        assert plan.amplification == 4
        assert plan.error_bound == pytest.approx((terms + 3) * unit * 4)


@pytest.mark.parametrize(("extra", "terms"), [([0.0, 0.0], 1), ([4.0, 1.0], 3)])
def test_the_longest_check_of_peeling_counts(extra: list[float], terms: int) -> None:
    """Two checks of one symbol each in one round: one has a single term, the other up to three."""
    code, erased = bordered([[1, 0], [0, 1]], [[1, 0, 0, 0], [0, 1, *extra]])
    plan = Peeling().prepare(code, erased, np.float32)
    assert plan.amplification == 1 + sum(extra)
    assert plan.error_bound == pytest.approx((terms + 3) * SINGLE * plan.amplification)


@precisions
def test_the_bound_of_inactivation_where_the_inactive_symbol_is_worst(dtype: type, unit: float) -> None:
    """x0 + x1 + y0 = 0 and x0 + 3 x1 + y1 = 0; x0 is inactive, and x1 = -(x0 + y1) / 3 comes from the second check.

    A unit in x0 changes the first check by 2/3 out of terms of 4/3: condition 2. So x0 = -3/2 y0 + 1/2 y1, within 2;
    the round makes 1 + 2/3 of ones. The bound takes 1 + 2 (1 + 2 * 5/3 * 2^-52 / unit) for x0, and less for x1.
    """
    code, erased = bordered([[1, 1], [1, 3]], [[1, 0], [0, 1]])
    plan = Inactivation().prepare(code, erased, dtype)
    assert plan.inactive.tolist() == [0]
    assert plan.amplification == pytest.approx(2)
    assert plan.error_bound == pytest.approx((4 + 3) * unit * (1 + 2 * (1 + 2 * 5 / 3 * DOUBLE / unit)))


@precisions
def test_the_bound_of_inactivation_where_a_round_is_worst(dtype: type, unit: float) -> None:
    """4 x0 + x1 + y0 = 0 and 4 x0 - x1 + y1 = 0; x0 is inactive, and x1 = -4 x0 - y0 comes from the first check.

    A unit in x0 changes the second check by 8 out of terms of 8: condition 1. So x0 = -(y0 + y1) / 8, within 1/4;
    the round makes 1 + 4 + 1 = 6 of ones, so that x0 counts 1 + (1 + 6 * 2^-52 / unit) / 4, and x1 two and four times
    that.
    """
    code, erased = bordered([[4, 1], [4, -1]], [[1, 0], [0, 1]])
    plan = Inactivation().prepare(code, erased, dtype)
    assert (plan.inactive.tolist(), plan.rounds[0].checks.tolist()) == ([0], [0])
    assert plan.amplification == pytest.approx(1 + 4 * 1.25 + 1 - 1)
    inactive = 1 + 0.25 * (1 + 6 * DOUBLE / unit)
    assert plan.error_bound == pytest.approx((4 + 3) * unit * (2 + 4 * inactive))


def test_two_inactive_symbols_are_as_uncertain_as_the_worse_of_them() -> None:
    """Every check holds all of x0, x1 and x2, with weights 2^k: so x2 = -(x0 + x1) - y2 comes from the last of them.

    Units in x0 and x1 leave (1, 8) - (1, 1) and (4, 1) - (1, 1) in the others, or 7 and 3 once each: terms are
    (1 + 1, 4 + 1) and (8 + 1, 1 + 1), of norm sqrt(4 + 25 + 81 + 4), and the least singular value is 3.
    """
    code, erased = bordered([[1, 4, 1], [8, 1, 1], [1, 1, 1]], np.diag([9.0, 9.0, 1.0]).tolist())
    plan = Inactivation().prepare(code, erased)
    assert (plan.inactive.tolist(), plan.rounds[0].checks.tolist()) == ([0, 1], [2])
    x0, x1 = (9 + 1) / 7, (9 + 1) / 3
    assert plan.amplification == pytest.approx(1 + 1 + (1 + x0) + (1 + x1) - 1)
    inner = 4 * np.sqrt(114) / 3
    inactive = [1 + each * (1 + inner) for each in (x0, x1)]
    assert plan.error_bound == pytest.approx((code.n + 3) * DOUBLE * (1 + 1 + sum(inactive)))


@every_decoder
def test_the_gain_is_the_norm_of_the_decoding_map(decoder: ErasureDecoder) -> None:
    """Against the map of unit words; 64 random signs estimate it within a few percent."""
    code = MdpcCode.build(40, 20, 3, seed=4)
    erased = np.array([1, 5, 17])
    plan = decoder.prepare(code, erased)
    units = plan.decode(np.eye(40))[:, code.information] * np.linalg.norm(code.G, axis=0)[:, None]
    exact = np.sqrt((units**2).sum(axis=0).mean())
    assert plan.error_gain == pytest.approx(exact, rel=0.05)
    assert exact > 1.1


@pytest.mark.parametrize("words", [np.zeros((1, 2)), np.zeros((1, 4)), np.zeros((3, 1))])
def test_words_of_another_shape_are_refused(words: np.ndarray) -> None:
    code, erased = bordered([[2.0]], [[1.0, 3.0]])
    with pytest.raises(CodeError, match="do not fit: this code needs rows of 3"):
        Peeling().prepare(code, erased).decode(words)


def test_positions_in_any_form_are_sorted() -> None:
    code, _ = bordered([[2.0]], [[1.0, 3.0]])
    assert checked_positions(code, []).tolist() == []
    assert checked_positions(code, 2).tolist() == [2]
    assert checked_positions(code, [2, 0, 1]).tolist() == [0, 1, 2]
    assert checked_positions(code, np.array([[1], [0]], np.uint8)).dtype == np.int64
    for wrong, sentence in (([0, 3], "position 3 lies"), ([1, 1], "position 1 is given twice"), ([-1], "position -1")):
        with pytest.raises(CodeError, match=sentence):
            checked_positions(code, wrong)
