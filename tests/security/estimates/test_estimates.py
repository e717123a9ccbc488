"""Estimates against exact arithmetic, against counting on tiny codes, and against their laws."""

import math
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from itertools import combinations, product

import pytest
from benchmarks.level_formulas import PAPER_92, PAPER_128
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import CipherError
from codedfl.scenario import load
from codedfl.security.estimates.claimed import claimed_level
from codedfl.security.estimates.counting import ELIMINATIONS
from codedfl.security.estimates.error_code import any_light_word, any_light_word_work, brute_force
from codedfl.security.estimates.estimate import Estimate
from codedfl.security.estimates.lee_brickell import (
    Counting,
    best_lee_brickell,
    lee_brickell,
    lee_brickell_codeword,
    lee_brickell_work,
)
from codedfl.security.estimates.many_instances import one_out_of_many
from codedfl.security.estimates.parameters import DISTANCES, DecodingProblem, problem_of
from codedfl.security.estimates.prange import prange, prange_work
from codedfl.security.estimates.stern import best_stern, stern, stern_work
from codedfl.security.estimates.suite import estimates
from security.estimates.exact_fractions import NEAR, log2, sets_needed
from tiny import is_one_sentence

# --- the problem ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("preset", "problem"), [("paper-92", PAPER_92), ("paper-128", PAPER_128)])
def test_the_two_settings_are_those_of_the_presets_and_of_table_one(preset: str, problem: DecodingProblem) -> None:
    assert problem_of(load(preset)) == problem
    assert problem.w == {"paper-92": 60, "paper-128": 124}[preset]  # d(C_E) in Table I
    assert replace(problem, distance="mds").w == problem.w + 1
    assert problem.q == 4_294_967_296
    assert problem_of(load(preset).with_settings({"scheme": "sealed"})) is None


def test_a_problem_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        PAPER_92.t = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n": 2000}, ("k is 2000", "n - 1 = 1999")),
        ({"k": 0}, ("k is 0", "at least 1")),
        ({"t": 4001}, ("t is 4001", "n = 4000")),
        ({"beta": 65}, ("beta is 65", "t = 64")),
        ({"k": 3}, ("beta is 4", "k = 3")),
        ({"q_bits": 0}, ("q_bits is 0", "at least 1")),
        ({"distance": "best"}, ("'best'", "table, mds")),
    ],
)
def test_wrong_problems_are_refused_in_one_sentence(change: dict[str, object], words: tuple[str, ...]) -> None:
    with pytest.raises(CipherError) as refusal:
        replace(PAPER_92, **change)  # type: ignore[arg-type]
    assert is_one_sentence(str(refusal.value))
    assert all(word in str(refusal.value) for word in words)


# --- known answers at the paper's size, by exact fractions -----------------------------------------------------------

PAPER = pytest.mark.parametrize("problem", [PAPER_92, PAPER_128, replace(PAPER_92, distance="mds")])


@PAPER
def test_prange_exactly(problem: DecodingProblem) -> None:
    work = 2000**3 * sets_needed(4000, 2000, problem.w)
    assert prange(problem).bits == pytest.approx(log2(work), abs=NEAR)


@PAPER
def test_lee_brickell_exactly(problem: DecodingProblem) -> None:
    """Over 32-bit symbols one try of a symbol costs 2^32 and is not worth it; for a codeword a row costs nothing."""
    n, k, w, q = 4000, 2000, problem.w, 2**32
    error, word = lee_brickell(problem), lee_brickell_codeword(problem)
    assert (error.bits, error.choices) == (prange(problem).bits, {"p": 0})
    row = Fraction(w * q, q - 1) * (1 + Fraction(q - 2, q - 1))
    chance = Fraction(k * math.comb(n - k, w - 1), math.comb(n, w))
    assert word.bits == pytest.approx(log2((k**3 + k * row) / chance), abs=NEAR)
    assert word.choices == {"p": 1}


@pytest.mark.parametrize(("problem", "choice"), [(PAPER_92, (0, 0)), (PAPER_128, (1, 2))])
def test_stern_exactly(problem: DecodingProblem, choice: tuple[int, int]) -> None:
    """Every p up to 3 and l up to 8 in exact fractions."""
    n, k, w, q = 4000, 2000, problem.w, 2**32
    work = {}
    for p, l in product(range(4), range(9)):  # noqa: E741
        half = math.comb(1000, p)
        lists = l * (1001 - p + 2 * half * (q - 1) ** p)
        checks = Fraction(half**2 * (q - 1) ** (2 * p), q**l) * 2 * p * (w - 2 * p + 1)
        checks *= Fraction(q, q - 1) * (1 + Fraction(q - 2, q - 1))
        chance = Fraction(half**2 * math.comb(n - k - l, w - 2 * p), math.comb(n, w))
        work[p, l] = log2((k**3 + lists + checks) / chance)
    found = stern(problem)
    assert (found.choices["p"], found.choices["l"]) == min(work, key=work.__getitem__) == choice
    assert found.bits == pytest.approx(min(work.values()), abs=NEAR)


@pytest.mark.parametrize(("problem", "least", "most"), [(PAPER_92, 78, 79), (PAPER_128, 140, 141)])
def test_any_light_word_exactly(problem: DecodingProblem, least: int, most: int) -> None:
    """The k + beta positions of the set fall one by one: four of them into the support, in any order."""
    chance = Fraction(math.comb(2004, 4))
    for drawn in range(4):
        chance *= Fraction(problem.t - drawn, 4000 - drawn)
    for drawn in range(2000):
        chance *= Fraction(4000 - problem.t - drawn, 3996 - drawn)
    rows = Fraction(2004 * (problem.t - 3) * 2**32, 2**32 - 1) * (1 + Fraction(2**32 - 2, 2**32 - 1))
    bits = any_light_word(problem).bits
    assert bits == pytest.approx(log2((2004**3 + rows) / chance), abs=NEAR)
    assert least < bits < most


def test_brute_force_and_its_assumption() -> None:
    """Section V-B: at least 2^128 possibilities for beta = 4."""
    assert brute_force(PAPER_92).bits == 128
    assert "one operation" in brute_force(PAPER_92).reason


def test_one_out_of_many_saves_the_root_of_the_instances() -> None:
    plain = prange(PAPER_92)
    saved = one_out_of_many(plain, PAPER_92)
    assert plain.bits is not None
    assert saved.bits == plain.bits - 1  # sqrt(4)
    assert saved.choices["instances"] == 4
    assert one_out_of_many(plain, PAPER_92, 1 << 20).bits == plain.bits - 10


def test_the_claimed_level_is_the_least_that_the_paper_looks_at() -> None:
    """Plain sets with one out of many, against guessing, rounded down."""
    for problem, claimed in ((PAPER_92, 92), (PAPER_128, 128)):
        found = {estimate.name: estimate.bits for estimate in estimates(problem)}
        least = min(found["Prange, one out of many"], found["brute force"])  # type: ignore[type-var]
        level = claimed_level(problem.n, problem.k, problem.t, problem.beta, problem.q_bits)
        assert math.floor(least) == level == claimed  # type: ignore[arg-type]


# --- tiny codes, by counting ---------------------------------------------------------------------------------------


def supports(n: int, w: int) -> list[set[int]]:
    return [set(chosen) for chosen in combinations(range(n), w)]


def share(hit: int, of: int) -> Fraction:
    return Fraction(hit, of)


def symbols_until(weight: int, q: int) -> Fraction:
    """Expected symbols of a random word until so many are nonzero: E_r = 1 + E_r / q + E_(r-1) (q - 1) / q."""
    expected = Fraction(0)
    for _ in range(weight):
        expected = (1 + expected * Fraction(q - 1, q)) / (1 - Fraction(1, q))
    return expected


def mean_cost_of_a_multiple(q: int) -> Fraction:
    """Adding f times a symbol: one addition, and a multiplication unless f = 1; the mean over f = 1..q-1."""
    return Fraction(sum(1 if factor == 1 else 2 for factor in range(1, q)), q - 1)


def additions(w: int, q: int, rows: int) -> Fraction:
    return symbols_until(w - rows + 1, q) * rows * mean_cost_of_a_multiple(q)


def coefficient_vectors(k: int, q: int, rows: int) -> list[tuple[int, ...]]:
    return [vector for vector in product(range(q), repeat=k) if sum(x != 0 for x in vector) == rows]


def normalised(vectors: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """One of each line: the first nonzero coefficient is 1 (the field is prime here)."""
    return [vector for vector in vectors if next(x for x in vector if x) == 1]


@pytest.mark.parametrize(("n", "k", "w"), [(9, 4, 3), (8, 3, 1), (8, 5, 3), (10, 2, 5)])
def test_prange_by_counting(n: int, k: int, w: int) -> None:
    hit = sum(support.isdisjoint(range(k)) for support in supports(n, w))
    assert prange_work(n, k, w) == pytest.approx(log2(k**3 / share(hit, math.comb(n, w))), abs=NEAR)


@pytest.mark.parametrize("codeword", [False, True])
@pytest.mark.parametrize("exactly", [False, True])
@pytest.mark.parametrize(
    ("n", "k", "w", "q", "p"), [(9, 4, 3, 3, 1), (9, 4, 3, 3, 2), (8, 3, 3, 5, 3), (7, 3, 2, 2, 1)]
)
def test_lee_brickell_by_counting(n: int, k: int, w: int, q: int, p: int, codeword: bool, exactly: bool) -> None:
    wanted = {p} if exactly else set(range(int(codeword), p + 1))
    hit = sum(len(support & set(range(k))) in wanted for support in supports(n, w))
    work = Fraction(k**3)
    for rows in wanted - {0}:
        vectors = coefficient_vectors(k, q, rows)
        work += len(normalised(vectors) if codeword else vectors) * additions(w, q, rows)
    found = lee_brickell_work(n, k, w, q, p, Counting(codeword=codeword, exactly=exactly))
    assert found == pytest.approx(log2(work / share(hit, math.comb(n, w))), abs=NEAR)


@pytest.mark.parametrize(
    ("n", "k", "w", "q", "p", "l"),
    [(10, 4, 4, 3, 1, 2), (10, 5, 3, 3, 1, 1), (10, 4, 4, 3, 2, 3), (9, 4, 2, 5, 1, 0), (9, 4, 3, 3, 0, 0)],
)
def test_stern_by_counting(n: int, k: int, w: int, q: int, p: int, l: int) -> None:  # noqa: E741
    left, right, zero = set(range(k // 2)), set(range(k // 2, k)), set(range(k, k + l))
    hit = sum(len(s & left) == len(s & right) == p and not s & zero for s in supports(n, w))
    first, second = (len(coefficient_vectors(len(part), q, p)) for part in (left, right))
    lists = l * (Fraction(k, 2) - p + 1 + first + second)
    collisions = Fraction(first * second, q**l)
    checks = collisions * symbols_until(w - 2 * p + 1, q) * 2 * p * mean_cost_of_a_multiple(q)
    work = (k**3 + lists + checks) / share(hit, math.comb(n, w))
    assert stern_work(n, k, w, q, p, l) == pytest.approx(log2(work), abs=NEAR)


def systematic(rows: list[list[int]], places: tuple[int, ...], prime: int) -> list[list[int]] | None:
    """The same code with the identity on the given places, or None if they are no information set."""
    rows = [list(row) for row in rows]
    for number, place in enumerate(places):
        pivot = next((r for r in range(number, len(rows)) if rows[r][place]), None)
        if pivot is None:
            return None
        rows[number], rows[pivot] = rows[pivot], rows[number]
        inverse = pow(rows[number][place], -1, prime)
        rows[number] = [x * inverse % prime for x in rows[number]]
        for other in range(len(rows)):
            if other != number and (factor := rows[other][place]):
                rows[other] = [(x - factor * y) % prime for x, y in zip(rows[other], rows[number], strict=True)]
    return rows


@pytest.mark.parametrize(("n", "k", "t", "beta"), [(9, 3, 5, 2), (10, 3, 5, 3), (9, 4, 4, 1), (10, 4, 5, 2)])
def test_any_light_word_by_searching_a_code(n: int, k: int, t: int, beta: int) -> None:
    """Every set of k + beta positions is tried: a try succeeds if a systematic row is a word of the error code.

    Both codes are Reed-Solomon-like over F_10007 (powers of distinct elements), the error code on the first t places.
    """
    prime = 10007
    public = [[pow(3 + 7 * place, row, prime) * (place * place + 5) % prime for place in range(n)] for row in range(k)]
    errors = [[pow(2 + 5 * place, row, prime) * (place < t) for place in range(n)] for row in range(beta)]
    sets = list(combinations(range(n), k + beta))
    found = 0
    for places in sets:
        rows = systematic(public + errors, places, prime) or []
        found += any(sum(x != 0 for x in row) <= t - beta + 1 and not any(row[t:]) for row in rows)
    work = ((k + beta) ** 3 + (k + beta) * additions(t - beta + 1, prime, 1)) / share(found, len(sets))
    assert any_light_word_work(n, k, t, beta, prime) == pytest.approx(log2(work), abs=NEAR)


# --- nothing is dropped, nothing is raised ---------------------------------------------------------------------------

NAMES = [
    "brute force",
    "Prange",
    "Prange, one out of many",
    "Lee-Brickell",
    "Lee-Brickell, one out of many",
    "Lee-Brickell, light codeword",
    "Lee-Brickell, light codeword, one out of many",
    "Stern",
    "Stern, one out of many",
    "Lee-Brickell, any light word",
]


@st.composite
def problems(draw: st.DrawFn) -> DecodingProblem:
    n = draw(st.integers(2, 30))
    k, t = draw(st.integers(1, n - 1)), draw(st.integers(1, n))
    beta = draw(st.integers(1, min(t, k)))
    return DecodingProblem(n, k, t, beta, draw(st.sampled_from([1, 2, 8, 32, 64])), draw(st.sampled_from(DISTANCES)))


@given(problems(), st.sampled_from(list(ELIMINATIONS)))
def test_every_problem_gets_every_estimate(problem: DecodingProblem, elimination: str) -> None:
    found = estimates(problem, elimination=elimination)
    assert [estimate.name for estimate in found] == NAMES
    for estimate in found:
        assert (estimate.bits is None) == (estimate.shown == "not evaluated")
        if estimate.bits is None:
            assert is_one_sentence(estimate.reason)
        else:
            assert math.isfinite(estimate.bits)
            assert estimate.shown == f"{estimate.bits:.1f}"


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (DecodingProblem(10, 6, 9, 1, 8), "the weight 8 exceeds n - k = 4"),
        (DecodingProblem(10, 6, 2, 2, 8), "the weight is 0"),
    ],
)
def test_what_cannot_be_computed_says_so(problem: DecodingProblem, reason: str) -> None:
    found = {estimate.name: estimate for estimate in estimates(problem)}
    for name in NAMES[1:9]:
        assert found[name].shown == "not evaluated"
        assert found[name].reason.startswith(reason)
    assert found["brute force"].bits == 8 * problem.beta


def test_an_error_code_that_fills_the_length_says_so() -> None:
    assert "n - t = 1 is less than k = 6" in any_light_word(DecodingProblem(10, 6, 9, 1, 8)).reason
    assert "k + beta = 10" in any_light_word(DecodingProblem(10, 6, 4, 4, 8)).reason


def test_more_instances_than_words_are_not_evaluated() -> None:
    problem = DecodingProblem(10, 5, 3, 2, 8)  # w = 1: ten words at most
    plain = prange(problem)
    assert one_out_of_many(plain, problem, 10).bits is not None
    assert "11 instances exceed C(n, w)" in one_out_of_many(plain, problem, 11).reason
    assert one_out_of_many(plain, problem, 0).shown == "not evaluated"


def test_an_estimate_without_bits_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="no reason"):
        Estimate("a", None)


def test_an_unknown_elimination_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="no elimination is counted as 'k'"):
        prange(PAPER_92, elimination="k")


# --- laws ------------------------------------------------------------------------------------------------------------


@given(problems())
def test_prange_is_the_case_without_choices_of_the_others(problem: DecodingProblem) -> None:
    """So neither of them is ever dearer, at any field size."""
    plain = prange(problem).bits
    for other in (lee_brickell(problem).bits, stern(problem).bits):
        assert (plain is None) == (other is None)
        if plain is not None and other is not None:
            assert other <= plain + NEAR


@given(problems())
def test_many_instances_never_cost_more(problem: DecodingProblem) -> None:
    found = {estimate.name: estimate.bits for estimate in estimates(problem)}
    for name in NAMES[1:9:2]:
        with_many = found[f"{name}, one out of many"]
        if with_many is not None:
            assert found[name] is not None
            assert with_many <= found[name]  # type: ignore[operator]


@given(problems())
def test_heavier_errors_are_harder_to_find(problem: DecodingProblem) -> None:
    """A set is the less likely to hold at most p errors, the more there are."""
    if problem.t == problem.n:
        return
    for algorithm in (prange, lee_brickell):
        lighter, heavier = algorithm(problem).bits, algorithm(replace(problem, t=problem.t + 1)).bits
        if lighter is not None and heavier is not None:
            assert lighter <= heavier + NEAR


def test_heavier_words_are_harder_to_find_at_the_papers_size() -> None:
    """For "exactly p" this holds only where w is well above p n / k, as it is here."""
    for algorithm in (lee_brickell_codeword, stern, any_light_word):
        bits = [algorithm(replace(PAPER_92, t=t)).bits for t in (20, 21, 40, 64, 65, 128, 256)]
        assert None not in bits
        assert bits == sorted(bits)  # type: ignore[type-var]


@given(problems())
def test_the_field_does_not_enter_plain_sets(problem: DecodingProblem) -> None:
    assert prange(problem) == prange(replace(problem, q_bits=problem.q_bits + 1))


@given(problems(), st.booleans())
def test_both_are_tuned_over_every_choice(problem: DecodingProblem, codeword: bool) -> None:
    """The searches pass over choices and end early; looking everywhere finds nothing better."""
    n, k, w, q = problem.n, problem.k, problem.w, problem.q
    if not 1 <= w <= n - k:
        return
    how = Counting(codeword=codeword)
    powers = [lee_brickell_work(n, k, w, q, p, how) for p in range(int(codeword), min(w, k) + 1)]
    assert best_lee_brickell(n, k, w, q, how)[0] == pytest.approx(min(powers), abs=NEAR)
    everything = (
        stern_work(n, k, w, q, p, l)
        for p in range(min(w // 2, k // 2) + 1)
        for l in range(n - k - w + 2 * p + 1)  # noqa: E741
    )
    assert best_stern(n, k, w, q)[0] == pytest.approx(min(everything), abs=NEAR)
