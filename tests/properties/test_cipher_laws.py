"""The algebraic laws of the cipher over random sizes, supports, precisions and decoders."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cipher.seals.rounding import Tracked, bound, tracked, worst
from codedfl.cipher.mceliece.parameters import Parameters
from codedfl.cipher.mceliece.private_key import KeyPair, generate_keys
from codedfl.cipher.mceliece.public_key import encrypt
from codedfl.codes.erasure import DECODERS
from codedfl.errors import CipherError

LAWS = settings(max_examples=40)
USEFUL = {"float32": 1e-2, "float64": 1e-11}
"""A bound is of use if it is below this share of the plaintext; it must be, whenever decoding "
"amplifies little."""


@dataclass(frozen=True)
class Case:
    keys: KeyPair
    dtype: str
    decoder: str
    rng: np.random.Generator

    def plaintext(self, rows: int) -> np.ndarray:
        scale = 10.0 ** self.rng.integers(-3, 4)
        return (scale * self.rng.standard_normal((rows, self.keys.public.parameters.k))).astype(self.dtype)

    def encrypted(self, A: np.ndarray, support: int) -> Tracked:
        M = self.keys.public.parameters.M
        C = encrypt(self.keys.public, A, self.keys.private.support(support % M), seed=self.rng.bytes(32))
        return tracked(self.keys, C, A)

    def holds(self, item: Tracked) -> None:
        """The decrypted matrix is the exact one up to the derived bound, and the bound says something."""
        limit = bound(self.keys.private, item, self.decoder)
        assert (worst(self.keys.private, item, self.decoder) <= limit).all()
        if self.keys.private.plan(self.decoder, self.dtype).amplification < 30:
            size = np.abs(item.message.words).max()
            assert limit.max() < USEFUL[self.dtype] * size


@dataclass(frozen=True)
class Recipe:
    """Everything that defines a case; keys are made inside the test."""

    parameters: Parameters
    dtype: str
    decoder: str
    seed: bytes

    def case(self) -> Case:
        try:
            keys = generate_keys(self.parameters, dtype=self.dtype, decoder=self.decoder, seed=self.seed)
            keys.private.plan(self.decoder, self.dtype)
        except CipherError:  # a set that only float64 restores, or none of a hundred that peeling restores
            assume(False)
        return Case(keys, self.dtype, self.decoder, np.random.default_rng(list(self.seed)))


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    checks, k = draw(st.integers(12, 32)), draw(st.integers(4, 32))
    t_tot = draw(st.integers(4, checks // 3))
    t = draw(st.integers(2, t_tot))
    parameters = Parameters(
        n=checks + k,
        k=k,
        degree=draw(st.integers(3, 5)),
        t_tot=t_tot,
        t=t,
        M=1 if t == t_tot else 2,
        beta=draw(st.integers(1, min(t, k, 4))),
        noise=draw(st.sampled_from([0.1, 1.0, 100.0])),
    )
    dtype, decoder = draw(st.sampled_from(["float32", "float64"])), draw(st.sampled_from(sorted(DECODERS)))
    return Recipe(parameters, dtype, decoder, draw(st.binary(min_size=16, max_size=16)))


@LAWS
@given(recipes(), st.integers(1, 20), st.integers(0, 1))
def test_decryption_undoes_encryption(recipe: Recipe, rows: int, support: int) -> None:
    case = recipe.case()
    case.holds(case.encrypted(case.plaintext(rows), support))


@LAWS
@given(recipes(), st.integers(1, 20), st.integers(1, 5))
def test_decryption_commutes_with_left_multiplication(recipe: Recipe, rows: int, c: int) -> None:
    case = recipe.case()
    theta_T = case.rng.standard_normal((c, rows)).astype(case.dtype)
    case.holds(theta_T @ case.encrypted(case.plaintext(rows), 0))


@LAWS
@given(recipes(), st.integers(1, 20))
def test_decryption_commutes_with_sums(recipe: Recipe, rows: int) -> None:
    case = recipe.case()
    first, second = case.encrypted(case.plaintext(rows), 0), case.encrypted(case.plaintext(rows), 1)
    case.holds(first + second)


@LAWS
@given(recipes(), st.integers(1, 20))
def test_decryption_commutes_with_sums_of_encoded_data(recipe: Recipe, rows: int) -> None:
    case = recipe.case()
    B = case.plaintext(rows)
    encoded = tracked(case.keys, case.keys.public.encode(B), B)
    C = case.encrypted(case.plaintext(rows), 0)
    case.holds(C + encoded)
    case.holds(encoded + C)


@LAWS
@given(recipes(), st.integers(1, 12), st.integers(1, 4))
def test_decryption_of_summed_replies(recipe: Recipe, rows: int, c: int) -> None:
    """What the server does in an epoch: replies of devices with and without received data, summed."""
    case = recipe.case()
    theta_T = case.rng.standard_normal((c, rows)).astype(case.dtype)
    B = case.plaintext(rows)
    alone = tracked(case.keys, case.keys.public.encode(B), B)
    held = alone + case.encrypted(case.plaintext(rows), 0) + case.encrypted(case.plaintext(rows), 1)
    case.holds(theta_T @ held + theta_T @ alone)


@LAWS
@given(recipes(), st.integers(1, 12))
def test_a_second_error_matrix_changes_nothing(recipe: Recipe, rows: int) -> None:
    """Data that is handed on gets a fresh error matrix on top of the first."""
    case = recipe.case()
    A = case.plaintext(rows)
    once = case.encrypted(A, 0).message
    last = case.keys.public.parameters.M - 1
    twice = case.keys.public.add_error(once, case.keys.private.support(last), seed=case.rng.bytes(32))
    case.holds(tracked(case.keys, twice, A))


@LAWS
@given(recipes(), st.integers(1, 20), st.integers(0, 1))
def test_errors_lie_exactly_on_the_support(recipe: Recipe, rows: int, support: int) -> None:
    case = recipe.case()
    public, p = case.keys.public, case.keys.public.parameters
    chosen = case.keys.private.support(support % p.M)
    encoded = public.encode(case.plaintext(rows))
    E = public.add_error(encoded, chosen, seed=case.rng.bytes(32)).words - encoded.words
    assert np.flatnonzero(np.abs(E).any(axis=0)).tolist() == chosen.positions.tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bounds_are_neither_broken_nor_loose(dtype: str) -> None:
    """At a fixed size the bound is a small part of the data, and the error not far below the bound."""
    parameters = Parameters(n=80, k=40, degree=6, t_tot=12, t=6, M=2, beta=4)
    recipe = Recipe(parameters, dtype, "least-squares", b"a fixed seed for")
    case = recipe.case()
    item = case.encrypted(case.rng.standard_normal((40, 40)).astype(dtype), 1)
    limit, actual = bound(case.keys.private, item, case.decoder), worst(case.keys.private, item, case.decoder)
    assert (actual <= limit).all()
    assert limit.max() < (2e-3 if dtype == "float32" else 4e-12)
    # worst case against random signs costs the square root of the number of terms, in each of three products
    assert limit.max() < 1000 * actual.max()
