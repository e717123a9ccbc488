import numpy as np
import pytest
import scipy.sparse

from codedfl.codes.erasure import DECODERS
from codedfl.codes.erasure.diagnosis import draw_support
from codedfl.codes.graph import progressive_edge_growth
from codedfl.codes.mdpc import MdpcCode, draw_parity_check
from codedfl.errors import CodeError


def test_report_of_a_small_code():
    code = MdpcCode.build(60, 30, 5, seed=3)
    report = code.report()
    dense = code.H.toarray()
    assert (report.n, report.k) == (60, 30)
    assert report.check_degrees == {10: 30} and report.variable_degrees == {5: 60}
    assert report.condition_generator == pytest.approx(np.linalg.cond(code.G), rel=1e-9)
    assert report.condition_parity == pytest.approx(np.linalg.cond(dense), rel=1e-9)
    assert report.condition_square == pytest.approx(np.linalg.cond(dense[:, code.parity]), rel=1e-9)
    assert report.residual <= 4 * 90 * np.finfo(float).eps
    assert report.four_cycles == code.graph.four_cycles() and report.girth == code.graph.girth()


def test_generator_is_dense():
    code = MdpcCode.build(60, 30, 5, seed=3)
    assert np.count_nonzero(code.G) == code.G.size
    # no column shows a single message symbol
    assert np.all((np.abs(code.G) > 1e-6).sum(axis=0) > 1)


@pytest.mark.parametrize("k", [5, 20, 55])
def test_any_rate(k):
    code = MdpcCode.build(60, k, 3, seed=1)
    report = code.report()
    assert code.G.shape == (k, 60)
    assert report.condition_generator == pytest.approx(np.linalg.cond(code.G), rel=1e-6)


def test_seed_decides():
    first, again, other = (MdpcCode.build(40, 20, 4, seed=s) for s in (7, 7, 8))
    assert np.array_equal(first.G, again.G) and (first.H != again.H).nnz == 0
    assert not np.array_equal(first.G, other.G)


def test_weights():
    uniform = np.abs(MdpcCode.build(40, 20, 4, seed=1).H.data)
    assert uniform.min() >= 0.5 and uniform.max() <= 1.5
    signs = MdpcCode.build(40, 20, 5, seed=1, weights="signs").H.data
    assert set(signs) == {-1.0, 1.0}
    ones = MdpcCode.build(40, 20, 5, seed=1, weights="ones")
    assert set(ones.H.data) == {1.0}
    # the checks of a column-regular 0/1 matrix add up to the vector of all ones: every word sums to zero
    assert np.abs(ones.G.sum(axis=1)).max() <= 1e-12 < np.abs(MdpcCode.build(40, 20, 5, seed=1).G.sum(axis=1)).max()
    custom = MdpcCode.build(40, 20, 4, seed=1, weights=lambda rng, size: rng.uniform(2, 3, size)).H.data
    assert custom.min() >= 2 and custom.max() <= 3


def test_casts_are_kept_and_protected():
    code = MdpcCode.build(40, 20, 4, seed=1)
    single = code.generator(np.float32)
    assert single.dtype == np.float32 and code.generator(np.float32) is single
    for array in (single, code.G, code.H.data, code.unscrambler()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_given_matrices_are_left_alone():
    H = scipy.sparse.csr_matrix(np.array([[1.0, 2.0, 3.0]]))
    code = MdpcCode.from_parity_check(H, rng=np.random.default_rng(0))
    G, information = code.G.copy(), code.information.copy()
    MdpcCode(H, G, information)
    H.data[0], G[0, 0], information[0] = 5, 5, 0
    assert code.H[0, 0] == 1


def test_entries_that_are_stored_in_parts_are_added():
    parts = np.array([0.25, 0.75, 2.0, 1.0, -1.0, 3.0]), np.array([0, 0, 1, 2, 2, 3]), np.array([0, 6])
    given = scipy.sparse.csr_matrix(parts, shape=(1, 4)), scipy.sparse.csr_matrix([[1.0, 2.0, 0.0, 3.0]])
    codes = [MdpcCode.from_parity_check(H, rng=np.random.default_rng(0)) for H in given]
    assert codes[0].H.nnz == codes[1].H.nnz == 3
    assert given[0].data.tolist() == [0.25, 0.75, 2.0, 1.0, -1.0, 3.0], "what was given is left alone"
    assert np.array_equal(codes[0].G, codes[1].G)


def test_syndrome_tells_codewords():
    code = MdpcCode.build(40, 20, 4, seed=1)
    word = code.encode(np.ones((1, 20)))
    # row weight 8, so nine roundings of products bounded by the row sums of |H|
    bound = 9 * np.finfo(float).eps * abs(code.H).sum(axis=1).max() * np.abs(word).max() * 20
    assert np.abs(code.syndrome(word)).max() <= bound
    word[0, 0] += 1
    assert np.abs(code.syndrome(word)).max() >= 0.5 - bound


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"n": 10, "k": 10, "degree": 2}, "length 10 cannot have dimension 10: choose k between 1 and 9"),
        ({"n": 10, "k": 12, "degree": 2}, "dimension 12"),
        ({"n": 10, "k": 0, "degree": 2}, "dimension 0"),
        ({"n": 10, "k": 5, "degree": 6}, "degree 6 does not fit 5 checks"),
        ({"n": 10, "k": 5, "degree": 2, "weights": "gauss"}, "'gauss' are unknown: use signed-uniform, ones, signs"),
        (
            {"n": 10, "k": 5, "degree": 2, "construction": "qc"},
            "'qc' is unknown: use one of peg, configuration",
        ),
        ({"n": 10, "k": 5, "degree": 2, "weights": lambda r, s: np.zeros(s)}, "20 zero"),
        ({"n": 10, "k": 5, "degree": 2, "weights": lambda r, s: np.full(s, np.nan)}, "20 not finite"),
        ({"n": 10, "k": 5, "degree": 2, "weights": lambda r, s: np.ones(3)}, r"it gave shape \(3,\)"),
        ({"n": 8, "k": 4, "degree": 4, "weights": lambda r, s: np.ones(s)}, "rank 1 over the reals"),
    ],
)
def test_impossible_codes(arguments, sentence):
    with pytest.raises(CodeError, match=sentence):
        MdpcCode.build(**arguments, seed=0)


def test_matrices_that_do_not_fit():
    code = MdpcCode.build(12, 6, 3, seed=0)
    with pytest.raises(CodeError, match="take both from the same code"):
        MdpcCode(code.H, code.G[:5], code.information[:5])
    with pytest.raises(CodeError, match="H holds 1 infinite or missing entries"):
        MdpcCode.from_parity_check(scipy.sparse.csr_matrix([[1.0, np.nan]]), rng=np.random.default_rng(0))
    with pytest.raises(CodeError, match="leaves no message"):
        MdpcCode.from_parity_check(scipy.sparse.csr_matrix(np.eye(3)), rng=np.random.default_rng(0))
    with pytest.raises(CodeError, match="Messages have 5 columns: this code needs 6"):
        code.encode(np.ones((1, 5)))
    with pytest.raises(CodeError, match="Words have 5 columns: this code needs 12"):
        code.syndrome(np.ones((1, 5)))


def test_graph_of_irregular_checks_is_refused():
    H = scipy.sparse.csr_matrix(np.array([[1.0, 1.0, 0.0, 2.0], [0.0, 1.0, 1.0, 1.0]]))
    code = MdpcCode.from_parity_check(H, rng=np.random.default_rng(0))
    with pytest.raises(CodeError, match="Column weights of H run from 1 to 2"):
        _ = code.graph


def test_decodes_to_the_promised_precision():
    # a tenth of the paper's size at its rate and share of erasures; benchmarks/codes.py repeats it in full
    code = MdpcCode.build(400, 200, 13, seed=1)
    rng = np.random.default_rng(0)
    erased = draw_support(code, 26, rng, DECODERS["peeling"])
    messages = rng.standard_normal((10, code.k))
    words = code.encode(messages)
    words[:, erased] = np.nan
    for dtype, promised in ((np.float32, 1e-5), (np.float64, 1e-11)):
        found = DECODERS["least-squares"].prepare(code, erased, dtype).message(words)
        assert np.linalg.norm(found - messages) <= promised * np.linalg.norm(messages)


def test_the_scrambler_is_uniform_on_the_orthogonal_group():
    """E S_ij = 0 and E S_ij S_kl = 1/k for (i, j) = (k, l), else 0; means of N values up to 1, six deviations."""
    H, rng, count = scipy.sparse.csr_matrix([[1.0, 2.0, 3.0, 4.0]]), np.random.default_rng(0), 1000
    codes = [MdpcCode.from_parity_check(H, rng=rng) for _ in range(count)]
    entries = np.array([code.G[:, code.information].ravel() for code in codes])
    assert np.abs(entries.mean(axis=0)).max() <= 6 / np.sqrt(count)
    assert np.abs(entries.T @ entries / count - np.eye(9) / 3).max() <= 6 / np.sqrt(count)


def test_matrices_of_different_codes():
    code = MdpcCode.build(12, 6, 3, seed=0)
    with pytest.raises(CodeError, match=r"G of shape \(6, 11\) does not generate"):
        MdpcCode(code.H, code.G[:, :11], code.information)
    with pytest.raises(CodeError, match=r"of H of shape \(5, 12\): take both"):
        MdpcCode(code.H[:5], code.G, code.information)


@pytest.mark.parametrize(("n", "k", "degree"), [(4, 1, 2), (4, 3, 1), (2, 1, 1), (7, 5, 2)])
def test_the_smallest_and_the_largest_dimension(n, k, degree):
    code = MdpcCode.build(n, k, degree, seed=1)
    assert (code.n, code.k, code.m, code.G.shape, code.H.shape) == (n, k, n - k, (k, n), (n - k, n))
    assert sorted([*code.information, *code.parity]) == list(range(n))


@pytest.mark.parametrize("name", ["signed-uniform", "signs", "ones"])
def test_weights_are_drawn_edge_by_edge_from_a_stream_of_their_own(name):
    code = MdpcCode.build(30, 15, 4, seed=9, weights=name)
    rng, expected = np.random.default_rng([9, 1]), np.zeros((15, 30))
    values = rng.uniform(0.5, 1.5, 120) if name == "signed-uniform" else np.ones(120)
    if name != "ones":
        values *= rng.choice([-1.0, 1.0], 120)
    graph = progressive_edge_growth(30, 15, 4, seed=9)
    for edge, check in enumerate(graph.checks.ravel()):
        expected[check, edge // 4] = values[edge]
    assert np.array_equal(code.H.toarray(), expected)
    assert np.array_equal(draw_parity_check(30, 15, 4, seed=9, weights=name).toarray(), expected)
    assert np.array_equal(code.graph.checks, graph.checks)


def test_the_scrambler_is_what_triangularises_a_normal_matrix():
    """S^T times the draws is upper triangular with a positive diagonal, which determines S."""
    H = scipy.sparse.csr_matrix(np.ones((1, 7)))
    for seed in range(5):
        code = MdpcCode.from_parity_check(H, rng=np.random.default_rng(seed))
        drawn = np.random.default_rng(seed).standard_normal((6, 6))
        triangle = code.G[:, code.information].T @ drawn
        assert np.abs(np.tril(triangle, -1)).max() <= 1e-13
        assert (np.diag(triangle) > 0).all()


@pytest.mark.parametrize(
    ("law", "sentence"),
    [
        (lambda r, s: np.r_[np.nan, np.ones(s - 1)], r"it gave shape \(20,\), 1 not finite, 0 zero"),
        (lambda r, s: np.r_[np.ones(s - 2), 0, np.inf], r"it gave shape \(20,\), 1 not finite, 1 zero"),
        (lambda r, s: np.r_[0, np.ones(s - 1)], r"it gave shape \(20,\), 0 not finite, 1 zero"),
        (lambda r, s: np.ones((s, 1)), r"must give 20 finite numbers other than 0: it gave shape \(20, 1\)"),
    ],
)
def test_one_weight_that_is_no_number_is_one_too_many(law, sentence):
    with pytest.raises(CodeError, match=sentence):
        draw_parity_check(10, 5, 2, seed=0, weights=law)


@pytest.mark.parametrize("entries", [[[1.0, np.inf, -np.inf]], [[np.nan, 1.0, np.nan]]])
def test_entries_that_are_no_numbers_are_counted(entries):
    with pytest.raises(CodeError, match="H holds 2 infinite or missing entries: give real numbers"):
        MdpcCode.from_parity_check(scipy.sparse.csr_matrix(entries), rng=np.random.default_rng(0))


@pytest.mark.parametrize("shape", [(0, 3), (3, 3), (4, 3)])
def test_matrices_that_leave_no_message(shape):
    with pytest.raises(CodeError, match="leaves no message: give fewer rows than columns"):
        MdpcCode.from_parity_check(scipy.sparse.csr_matrix(np.eye(*shape)), rng=np.random.default_rng(0))


@pytest.mark.parametrize(("times", "accepted"), [(2.9, False), (3.0, False), (3.1, True)])
def test_rows_are_independent_above_the_rounding_of_the_decomposition(times, accepted):
    """Three columns, so that 3 * 2^-52 of the largest is counted as zero."""
    H = scipy.sparse.csr_matrix(np.array([[1.0, 0, 0.5], [0, times * np.finfo(float).eps, 0]]))
    if accepted:
        assert MdpcCode.from_parity_check(H, rng=np.random.default_rng(0)).parity.tolist() == [0, 1]
    else:
        with pytest.raises(
            CodeError, match="The 2 rows of H have rank 1 over the reals, so it is no code of dimension 1"
        ):
            MdpcCode.from_parity_check(H, rng=np.random.default_rng(0))


def test_a_code_by_hand():
    """2 c0 + c1 - c2 = 0: c0 has the largest weight, so that messages stand at 1 and 2 up to a rotation."""
    code = MdpcCode.from_parity_check(scipy.sparse.csr_matrix([[2.0, 1.0, -1.0]]), rng=np.random.default_rng(0))
    assert (code.information.tolist(), code.parity.tolist()) == ([1, 2], [0])
    assert np.allclose(code.G[:, 0], (code.G[:, 2] - code.G[:, 1]) / 2, rtol=0, atol=1e-15)
    single = code.encode(np.array([[1, 2]], np.float32))
    assert single.dtype == np.float32
    assert np.allclose(single @ [2, 1, -1], 0, atol=1e-6)
    found = code.syndrome(np.array([[1, 2, 3], [0, 0, 5]], np.float32))
    assert (found.dtype, found.tolist()) == (np.float32, [[1], [-5]])


def test_the_report_of_a_code_that_is_made_by_hand():
    """A second check of zeros is no check: both squares are singular. G H^T is (3, 1), of norm sqrt(10)."""
    H = scipy.sparse.csr_matrix((np.ones(4), (np.zeros(4, int), np.arange(4))), shape=(2, 4))
    code = MdpcCode(H, np.array([[1.0, 0, 1, 1], [1, -1, 0, 1]]), np.array([0, 1]))
    report = code.report()
    assert report.condition_square == report.condition_parity == np.inf
    assert report.residual == pytest.approx(np.sqrt(10) / (np.sqrt(6) * 2))
    assert (report.girth, report.four_cycles) == (None, 0)
    assert (report.check_degrees, report.variable_degrees) == ({0: 1, 4: 1}, {1: 4})


def test_the_report_of_one_check():
    """One row has one singular value; a message of one symbol is sent twice, up to signs."""
    report = MdpcCode.build(2, 1, 1, seed=1, weights="ones").report()
    assert (report.condition_square, report.condition_parity, report.condition_generator) == (1, 1, 1)
    assert (report.girth, report.four_cycles, report.check_degrees) == (None, 0, {2: 1})


def test_a_check_of_zeros_beside_two_others_makes_the_square_singular():
    H = scipy.sparse.csr_matrix(np.array([[1.0, 1, 1, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]))
    report = MdpcCode(H, np.array([[1.0, -1, 0, 0, 0], [0, 0, 0, 1, -1]]), np.array([1, 4])).report()
    assert report.condition_square == report.condition_parity == np.inf
