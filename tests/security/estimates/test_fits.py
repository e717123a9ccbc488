"""Every formula for the paper's level, by exact arithmetic."""

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from benchmarks.level_formulas import fits

from codedfl.security.estimates.counting import ELIMINATIONS
from security.estimates.exact_fractions import NEAR, log2, sets_needed


def exact_eliminations(n: int, k: int) -> dict[str, Fraction]:
    """The cost terms by name, in exact numbers; Strassen's k^(log2 7) to forty digits."""
    with localcontext() as context:
        context.prec = 40
        strassen = Fraction(Decimal(k) ** (Decimal(7).ln() / Decimal(2).ln()))
    whole = {
        "1": 1,
        "k^3": k**3,
        "(n-k)^3": (n - k) ** 3,
        "(n-k)^2 (n+k)": (n - k) ** 2 * (n + k),
        "k^2 n": k**2 * n,
        "(n-k)^2 n": (n - k) ** 2 * n,
        "n^3": n**3,
    }
    halves = {"k^3 / 3": Fraction(k**3, 3), "(n-k)^2 (n+k) / 2": Fraction((n - k) ** 2 * (n + k), 2)}
    return {**{name: Fraction(cost) for name, cost in whole.items()}, **halves, "k^2.81": strassen}


def exact_level(elimination: Fraction, t: int, saving: bool, mds: bool, capped: bool) -> int:
    """Whole bits by counting the binary digits of the work; the square root of beta = 4 is 2."""
    work = elimination * sets_needed(4000, 2000, t - 4 + mds) / (2 if saving else 1)
    digits = (work.numerator // work.denominator).bit_length() - 1
    return min(digits, 128) if capped else digits


def test_every_fit_is_what_exact_arithmetic_gives() -> None:
    costs = exact_eliminations(4000, 2000)
    assert set(costs) == set(ELIMINATIONS)
    for fit in fits():
        choice = (fit.one_out_of_many, fit.distance == "mds", fit.capped)
        assert fit.levels == tuple(exact_level(costs[fit.elimination], t, *choice) for t in (64, 128))
        assert fit.off == (fit.levels[0] - 92, fit.levels[1] - 128)


def test_the_eliminations_are_what_their_names_say_off_the_half_rate_too() -> None:
    """At n = 2k several terms agree; at n = 1000, k = 300 none do."""
    for name, cost in exact_eliminations(1000, 300).items():
        assert ELIMINATIONS[name](1000, 300) == pytest.approx(log2(cost), abs=NEAR)


def test_fits_are_all_there_and_the_nearest_comes_first() -> None:
    found = fits()
    assert len(found) == len(set(found)) == len(ELIMINATIONS) * 2 * 2 * 2
    distances = [fit.distance_to_claims for fit in found]
    assert distances == sorted(distances)
    assert [sum(map(abs, fit.off)) for fit in found] == distances


def test_which_formulas_give_both_levels() -> None:
    """Ours is not the only one; all that fit are capped by guessing."""
    exact = {(fit.elimination, fit.one_out_of_many, fit.distance, fit.capped) for fit in fits() if fit.off == (0, 0)}
    assert exact == {
        ("k^3", True, "table", True),
        ("(n-k)^3", True, "table", True),
        ("k^2.81", False, "mds", True),
        ("k^3 / 3", False, "mds", True),
    }
    assert not any(fit.levels[1] == 128 for fit in fits() if not fit.capped)


def test_a_fit_as_a_table() -> None:
    table = fits()[0].to_table()
    assert list(table) == ["elimination", "one_out_of_many", "distance", "capped", "bits", "levels", "off"]
