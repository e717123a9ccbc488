"""Which check restores which symbol, and which symbols are declared inactive: small cases by hand."""

import numpy as np
import pytest
import scipy.sparse

from codedfl.codes.erasure.schedule import growths, run, run_adjoint, schedule


def checks(*rows: list[float]) -> scipy.sparse.csr_matrix:
    return scipy.sparse.csr_matrix(np.array(rows, float))


def test_a_chain_is_peeled_round_by_round() -> None:
    """2 x0 + y = 0, then x0 - 4 x1 = 0 and x0 + x2 + 3 y = 0."""
    H = checks([2, 0, 0, 1], [1, -4, 0, 0], [1, 0, 1, 3])
    found = schedule(H, np.arange(3), inactivate=False)
    assert [(step.targets.tolist(), step.checks.tolist()) for step in found.rounds] == [([0], [0]), ([1, 2], [1, 2])]
    assert found.rounds[0].rows.toarray().tolist() == [[0, 0, 0, -0.5]]
    assert found.rounds[1].rows.toarray().tolist() == [[0.25, 0, 0, 0], [-1, 0, 0, -3]]
    assert [step.rows.nnz for step in found.rounds] == [1, 3]
    assert (found.inactive.size, found.stuck.size) == (0, 0)
    symbols = np.array([[0.0], [0.0], [0.0], [8.0]])
    run(found.rounds, symbols)
    assert symbols.ravel().tolist() == [-4, -1, -20, 8]
    start = np.array([0.0, 0, 0, 1])
    assert growths(found.rounds, start).tolist() == [1.5, 1 + 0.25 * 1.5, 1 + 1.5 + 3, 1]
    assert start.tolist() == [0, 0, 0, 1], "what is given is left alone"
    single = found.rounds[0].cast(np.dtype(np.float32))
    assert (single.rows.dtype, single.targets.tolist(), single.checks.tolist()) == (np.float32, [0], [0])


def test_the_adjoint_of_a_chain() -> None:
    """x0 = -y / 2, x1 = x0 / 4, x2 = -x0 - 3 y: so <u, x> = u0 x0 + u1 x1 + u2 x2 + u3 y is -111.75 y for these u."""
    H = checks([2, 0, 0, 1], [1, -4, 0, 0], [1, 0, 1, 3])
    rounds = schedule(H, np.arange(3), inactivate=False).rounds
    covectors = np.array([[1.0], [10.0], [100.0], [1000.0]])
    run_adjoint(rounds, covectors)
    assert covectors[3, 0] == -0.5 - 10 / 8 + (0.5 - 3) * 100 + 1000


def test_nothing_erased_needs_no_round() -> None:
    found = schedule(checks([1, 2, 3]), np.array([], dtype=np.int64), inactivate=True)
    assert (found.rounds, found.inactive.size, found.stuck.size) == ([], 0, 0)
    assert found.inactive.dtype == np.int64


@pytest.mark.parametrize(("weight", "taken"), [(3.0, 3), (5.0, 2)])
def test_the_less_amplifying_check_counts_the_errors_of_what_it_uses(weight: float, taken: int) -> None:
    """x0 and x1 are restored within 1 and a rounding of 1; x2 then within 3 * 2 = 6, or within 2 + weight."""
    H = checks([1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 0], [3, 0, 1, 0, 0, 0], [0, 1, 1, 0, 0, weight])
    first, second = schedule(H, np.arange(3), inactivate=False).rounds
    assert first.targets.tolist() == [0, 1]
    assert second.checks.tolist() == [taken]


@pytest.mark.parametrize(("weight", "taken"), [(3.0, 0), (5.0, 1)])
def test_the_weight_of_a_symbol_divides_the_errors_of_its_check(weight: float, taken: int) -> None:
    """4 x + 12 y = 0 restores x within 3, x + 2 z = 0 within 2; with 5 x that is 12 / 5; with 20 y it is more."""
    H = checks([4, 12 - 2 * weight, 0], [1, 0, 2]) if taken == 0 else checks([weight, 12, 0], [1, 0, 2])
    assert schedule(H, np.array([0]), inactivate=False).rounds[0].checks.tolist() == [taken]


@pytest.mark.parametrize(("weight", "taken"), [(1.0, 1), (3.0, 0)])
def test_an_inactive_symbol_counts_like_a_known_one(weight: float, taken: int) -> None:
    """x0 is inactive; 3 x0 + x1 = 0 restores x1 within 3, and x0 + x1 + weight y = 0 within 1 + weight."""
    found = schedule(checks([3, 1, 0], [1, 1, weight]), np.arange(2), inactivate=True)
    assert found.inactive.tolist() == [0]
    assert [step.checks.tolist() for step in found.rounds] == [[taken]]
    assert found.stuck.size == 0


def test_the_symbol_in_most_of_the_checks_with_fewest_unknowns_becomes_inactive() -> None:
    """Checks of two unknowns hold x4 twice; those of four hold x0 most, and one check holds no erased symbol."""
    H = checks(
        [0, 0, 0, 1, 1, 1],
        [0, 0, 1, 0, 1, 2],
        [1, 1, 1, 1, 0, 3],
        [1, 1, 2, 1, 0, 4],
        [0, 0, 0, 0, 0, 5],
    )
    found = schedule(H, np.arange(5), inactivate=True)
    assert found.inactive.tolist() == [4, 0]
    assert [step.targets.tolist() for step in found.rounds] == [[2, 3], [1]]
    stopped = schedule(H, np.arange(5), inactivate=False)
    assert (stopped.rounds, stopped.stuck.tolist(), stopped.inactive.size) == ([], [0, 1, 2, 3, 4], 0)


def test_symbols_of_no_check_become_inactive_at_last() -> None:
    found = schedule(checks([1, 0, 1], [2, 0, 0]), np.array([1, 2]), inactivate=True)
    assert found.inactive.tolist() == [1]
    assert [step.targets.tolist() for step in found.rounds] == [[2]]
