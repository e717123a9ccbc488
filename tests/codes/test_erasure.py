from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse

from codedfl.codes.erasure import DECODERS
from codedfl.codes.erasure.diagnosis import decodable, draw_support
from codedfl.codes.erasure.inactivation import Inactivation
from codedfl.codes.erasure.least_squares import LeastSquares
from codedfl.codes.erasure.peeling import Peeling
from codedfl.codes.erasure.schedule import run, run_adjoint, schedule
from codedfl.codes.mdpc import MdpcCode
from codedfl.errors import CodeError, UndecodableError
from codes.tolerance import restored_tolerance


@pytest.fixture(scope="module")
def code():
    return MdpcCode.build(60, 30, 4, seed=2)


def stalling(code, size):
    """A set on which peeling stalls though its columns are independent."""
    rng = np.random.default_rng(0)
    while True:
        erased = np.sort(rng.choice(code.n, size, replace=False))
        if schedule(code.H, erased, inactivate=False).stuck.size and decodable(code, erased):
            return erased


def test_registry_names():
    assert list(DECODERS) == ["peeling", "inactivation", "least-squares"]
    assert all(name == decoder.name for name, decoder in DECODERS.items())


def test_peeling_names_the_stopping_set_and_the_way_out(code):
    erased = stalling(code, 20)
    stuck = schedule(code.H, erased, inactivate=False).stuck
    with pytest.raises(UndecodableError, match=rf"stalls with {stuck.size} of 20 .*positions {stuck[0]}, {stuck[1]}"):
        Peeling().prepare(code, erased)
    # a stopping set: every check touches it never or at least twice
    touches = (code.H[:, stuck] != 0).sum(axis=1)
    assert not np.any(touches == 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_others_restore_where_peeling_stalls(code, dtype):
    erased = stalling(code, 20)
    words = code.encode(np.random.default_rng(1).standard_normal((3, code.k)))
    plans = [decoder.prepare(code, erased, dtype) for decoder in (Inactivation(), LeastSquares())]
    assert 0 < plans[0].inactive.size < 20
    for plan in plans:
        damaged = words.copy()
        damaged[:, erased] = np.nan
        assert np.abs(plan.decode(damaged) - words).max() <= restored_tolerance(plan, words)


def test_rounds_have_an_adjoint(code):
    rng = np.random.default_rng(5)
    rounds = schedule(code.H, np.arange(12), inactivate=True).rounds
    x, u = rng.standard_normal((2, code.n, 1))
    for step in rounds:
        x[step.targets] = 0
    forward, backward = x.copy(), u.copy()
    run(rounds, forward)
    run_adjoint(rounds, backward)
    assert float((u.T @ forward).item()) == pytest.approx(float((backward.T @ x).item()), rel=1e-9)


def test_dependent_positions_are_found_exactly():
    # columns 0 and 1 are proportional, 2 is independent of them, 3 and 4 and 5 are dependent together
    H = np.array(
        [
            [1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.5],
            [0.5, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
            [0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.5],
            [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0],
        ]
    )
    code = MdpcCode.from_parity_check(scipy.sparse.csr_matrix(H), rng=np.random.default_rng(0))
    pair = decodable(code, np.array([0, 1, 2]))
    assert not pair and pair.rank == 2 and list(pair.dependent) == [0, 1]
    triple = decodable(code, np.array([0, 3, 4, 5]))
    assert not triple and list(triple.dependent) == [3, 4, 5]
    assert decodable(code, np.array([0, 2, 3, 4]))
    for decoder in (Inactivation(), LeastSquares()):
        with pytest.raises(UndecodableError, match=r"2 of 3 erased positions .* dependent .positions 0, 1."):
            decoder.prepare(code, np.array([0, 1, 2]))
    assert decodable(code, np.arange(6)).rank == 4


@pytest.mark.parametrize("name", DECODERS)
def test_a_symbol_that_no_check_holds_cannot_be_restored(name):
    """Also when all others are, and it is the last one left."""
    H = np.array([[1.0, 1.0, 0.0, 1.0], [0.0, 1.0, 0.0, 2.0]])
    code = MdpcCode.from_parity_check(scipy.sparse.csr_matrix(H), rng=np.random.default_rng(0))
    DECODERS[name].prepare(code, np.array([0]))
    with pytest.raises(UndecodableError, match=r"positions? 2"):
        DECODERS[name].prepare(code, np.array([0, 2]))


def test_single_precision_is_refused_where_no_digit_would_be_left():
    H = np.array([[1.0, 1.0, 1.0, 0.0], [1.0, 1.0 + 1e-9, 0.0, 1.0]])
    code = MdpcCode.from_parity_check(scipy.sparse.csr_matrix(H), rng=np.random.default_rng(0))
    with pytest.raises(UndecodableError, match=r"no correct digit in float32 .*: decode in float64 or"):
        LeastSquares().prepare(code, np.array([0, 1]), np.float32)
    assert LeastSquares().prepare(code, np.array([0, 1]), np.float64).condition > 1e9


def test_draw_support_redraws_bad_sets(code):
    rng = np.random.default_rng(3)
    for decoder in DECODERS.values():
        for _ in range(20):
            support = draw_support(code, 15, rng, decoder)
            assert support.size == np.unique(support).size == 15
            decoder.prepare(code, support)
    assert draw_support(code, 0, rng, Peeling()).size == 0


def test_draw_support_gives_up_with_a_sentence(code):
    with pytest.raises(UndecodableError, match="None of 7 random sets of 30 positions could be restored by peeling"):
        draw_support(code, 30, np.random.default_rng(0), Peeling(), attempts=7)
    with pytest.raises(CodeError, match="support of 31 positions cannot be restored: choose a size between 0 and 30"):
        draw_support(code, 31, np.random.default_rng(0), Peeling())


def test_positions_must_be_whole_numbers(code):
    from codedfl.codes.erasure.contract import checked_positions

    with pytest.raises(CodeError, match="type float64 are no indices: give whole numbers"):
        checked_positions(code, [0.5])


def test_long_lists_of_positions_are_cut():
    from codedfl.codes.erasure.contract import describe

    assert describe(range(8)) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert describe(range(10)) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"


def bordered(E, *known):
    """The code of the checks [E | known]: symbols x are erased, and E x + known y = 0."""
    H = scipy.sparse.csr_matrix(np.hstack([E, *known]))
    return MdpcCode.from_parity_check(H, rng=np.random.default_rng(0)), np.arange(E.shape[1])


def nearly_dependent(size, gap, rng):
    """Small integers, the last column within gap of the sum of the others."""
    while True:
        E = rng.integers(-3, 4, (size, size)).astype(float)
        if np.linalg.matrix_rank(E) == size and E.all():
            E[:, -1] = E[:, :-1].sum(axis=1) + gap * E[:, -1]
            return E


def inverse(E):
    """In fractions, by elimination."""
    size = len(E)
    rows = [[Fraction(float(x)) for x in row] + [Fraction(i == j) for j in range(size)] for i, row in enumerate(E)]
    for k in range(size):
        pivot = next(i for i in range(k, size) if rows[i][k])
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for i in range(size):
            if i != k:
                rows[i] = [x - rows[i][k] * y for x, y in zip(rows[i], rows[k], strict=True)]
    return [row[size:] for row in rows]


@pytest.mark.parametrize("decoder", [Inactivation(), LeastSquares()], ids=lambda decoder: decoder.name)
@pytest.mark.parametrize(("dtype", "bits"), [(np.float32, 6), (np.float32, 12), (np.float64, 20), (np.float64, 34)])
def test_bounds_hold_where_erasures_are_ill_conditioned(decoder, dtype, bits):
    """Codewords of few bits are exact in both precisions, so that all of the error is the decoder's.

    The erased symbols are -E^-1 y, so that the largest effect of errors of 1 is the largest absolute row sum of E^-1.
    """
    rng = np.random.default_rng(bits)
    for size in (2, 3, 5):
        E = nearly_dependent(size, 2.0**-bits, rng)
        code, erased = bordered(E, np.eye(size))
        plan = decoder.prepare(code, erased, dtype)
        assert decodable(code, erased).condition > 2.0 ** (bits - 2)
        x = rng.integers(-7, 8, (200, size)).astype(float)
        x[:, -1] = rng.choice([-7, 7], 200)
        words = np.hstack([x, -x @ E.T])
        assert np.array_equal(words, words.astype(dtype)), "no bit is lost"
        scale = np.abs(words).max(axis=1)
        error = np.abs(plan.decode(words) - words).max(axis=1)
        assert (error <= plan.error_bound * scale).all()
        exact = float(max(sum(map(abs, row)) for row in inverse(E)))
        assert plan.amplification >= exact * (1 - plan.error_bound)
        if isinstance(decoder, LeastSquares):
            assert plan.amplification == pytest.approx(exact, rel=plan.error_bound)


@pytest.mark.parametrize("decoder", [Inactivation(), LeastSquares()], ids=lambda decoder: decoder.name)
@pytest.mark.parametrize("bits", [20, 34])
def test_decoders_err_with_the_condition_where_nothing_is_amplified(decoder, bits):
    """E x + E W y = 0, so x = -W y: errors grow by the row sums of W alone, whatever the condition of E.

    W and y are small integers and E W has few bits, so all of the error is that of the solve in float64. It is far
    beyond the roundings of the products, n + 3 a term, and only the term with the condition bounds it.
    """
    rng = np.random.default_rng(bits)
    excess = []
    for size in (2, 3, 5):
        E = nearly_dependent(size, 2.0**-bits, rng)
        W = rng.choice([-3.0, -1.0, 2.0], (size, size))
        code, erased = bordered(E, E @ W)
        plan = decoder.prepare(code, erased, np.float64)
        y = rng.choice([-7.0, 7.0], (200, size))
        words = np.hstack([-y @ W.T, y])
        error = (np.abs(plan.decode(words) - words).max(axis=1) / np.abs(words).max(axis=1)).max()
        products = (code.n + 3) * np.finfo(np.float64).eps * np.abs(W).sum(axis=1).max()
        excess.append(error / products)
        assert error <= plan.error_bound
    # the few numbers of inactivation may happen to be exact; least squares rounds all
    assert (max if isinstance(decoder, Inactivation) else min)(excess) > 100


UNIT = 2.0**-23
"""The spacing of float32 at 1."""


@pytest.mark.parametrize("decoder", [Inactivation(), LeastSquares()], ids=lambda decoder: decoder.name)
@pytest.mark.parametrize("bits", [1, 8, 15])
def test_bounds_of_dense_solutions_are_met_up_to_the_number_of_roundings(decoder, bits):
    """x0 + x1 = 0 and x0 + (1 + 1/D) x1 + p y1 + q y2 = 0 with D = 2^bits: x1 = -D (p y1 + q y2).

    p = 1.5 + 0.49 units and q = 1.5 - 0.49 units are both cast to 1.5. So for y = (1, -1) the restored x1 is 0 and off
    by 0.98 D units, where amplification is 3 D. The bound grants every term n + 3 = 7 units of its size, or 21 D
    units, and 14 more for the way from one x to the other: at most 7 (3 + 2/D) / 0.98 times the error, 22 for large D.
    Coefficients are cast to within a unit.
    """
    D = 2.0**bits
    p, q = 1.5 + 0.49 * UNIT, 1.5 - 0.49 * UNIT
    code, erased = bordered(np.array([[1.0, 1.0], [1.0, 1 + 1 / D]]), np.array([[0.0, 0.0], [p, q]]))
    plan = decoder.prepare(code, erased, np.float32)
    true = D * (p - q)
    words = np.array([[true, -true, 1.0, -1.0]])
    error = np.abs(plan.decode(words).astype(float) - words).max()
    assert error == pytest.approx(0.98 * D * UNIT, rel=1e-3)
    assert error <= plan.error_bound <= 1.001 * 7 * (3 + 2 / D) / 0.98 * error
    assert plan.error_bound >= (1 - UNIT) * 21 * D * UNIT


def test_of_two_checks_for_a_symbol_the_less_amplifying_one_is_taken():
    """x0 + y0 = 0 and x1 + y1 = 0 restore x0 and x1 within 1 and a rounding, 2 in all; then x2 can be had twice.

    x2 + 2 x0 = 0 makes 4 of it, x2 + x1 + 2.5 y2 = 0 makes 2 + 2.5.
    """
    E = np.array([[1.0, 0, 0], [0, 1, 0], [2, 0, 1], [0, 1, 1]])
    known = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 2.5]])
    code, erased = bordered(E, known)
    first, second = schedule(code.H, erased, inactivate=False).rounds
    assert first.targets.tolist() == [0, 1]
    assert (second.targets.tolist(), second.checks.tolist()) == ([2], [2])
    assert Peeling().prepare(code, erased).amplification == 4


@pytest.mark.parametrize("length", [1, 4, 18])
def test_the_bound_of_peeling_is_met_up_to_the_number_of_roundings(length):
    """A chain r x_{j-1} + x_j + y_j = 0 with r = 2 + 0.98 units, which is cast to 2: peeling restores x_1, x_2, ...

    For x_j = (-1)^j all symbols are about 1, and the errors D_j = 2 D_{j-1} + 0.98 units grow to 0.98 (2^(l-1) - 1)
    units; y = r - 1 is cast to within 0.02 units. Errors of 1 in all y grow to A_j = 2 A_{j-1} + 1 = 2^l - 1. The bound
    adds the rounding of every restored symbol, a_j = 2 (a_{j-1} + 1) + 1 = 2^(l+1) - 3, and grants 2 + 3 units a term.
    """
    r = 2 + 0.98 * UNIT
    E = np.eye(length) + r * np.eye(length, k=-1)
    code, erased = bordered(E, np.eye(length))
    plan = Peeling().prepare(code, erased, np.float32)
    signs = np.hstack([np.zeros(length), (-1.0) ** np.arange(length)])[None]
    reached = np.abs(plan.decode(signs)[:, :length]).max()
    assert reached == 2**length - 1
    assert plan.amplification == 2 ** (length + 1) - 3
    x = (-1.0) ** np.arange(length)
    words = np.hstack([x, -E @ x])[None]
    error = np.abs(plan.decode(words).astype(float) - words)[:, :length].max()
    scale = np.abs(words).max()
    terms = min(length, 2)
    assert plan.error_bound == pytest.approx((terms + 3) * UNIT * plan.amplification)
    assert error <= plan.error_bound * scale
    if length == 18:
        assert plan.error_bound * scale <= 21 * error
