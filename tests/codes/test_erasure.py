import numpy as np
import pytest
import scipy.sparse

from codedfl.codes import DECODERS, MdpcCode, decodable, draw_support
from codedfl.codes.erasure import Inactivation, LeastSquares, Peeling
from codedfl.codes.erasure.schedule import run, run_adjoint, schedule
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
