"""Estimates that use more of the error code than one word of it: guessing, and taking any word."""

import math

from codedfl.security.estimates.counting import addition_per_symbol, elimination_bits, log2_binomial, log2_sum
from codedfl.security.estimates.estimate import Estimate
from codedfl.security.estimates.parameters import DecodingProblem


def brute_force(problem: DecodingProblem) -> Estimate:
    """Estimate guessing beta symbols: q^beta guesses, each counted as one operation (paper, section V-B).

    beta + 1 rows of a ciphertext have dependent errors, so some combination of them carries none.
    """
    return Estimate("brute force", float(problem.beta * problem.q_bits), reason="a guess counts as one operation")


def any_light_word_work(n: int, k: int, t: int, beta: int, q: int, *, elimination: str = "k^3") -> float:
    """Return log2 of (elimination + tries) C(n, k + beta) / (C(t, beta) C(n - t, k)), in dimension k + beta.

    Take an information set of the code that key and ciphertext span. If just beta of its positions lie in the error
    support, their systematic rows are words of the error code: an MDS code has a word that vanishes on all but one of
    them, of weight t - beta + 1. The other k positions avoid the support. tries: all k + beta rows, each checked over
    (t - beta + 1) q/(q - 1) symbols.
    """
    dimension = k + beta
    sets = log2_binomial(n, dimension) - log2_binomial(t, beta) - log2_binomial(n - t, k)
    tries = dimension * (t - beta + 1) * q / (q - 1) * addition_per_symbol(q)
    return sets + log2_sum(elimination_bits(n, dimension, elimination), math.log2(tries))


def any_light_word(problem: DecodingProblem, *, elimination: str = "k^3") -> Estimate:
    """Estimate Lee and Brickell's algorithm (1988, p = 1) for any one of the C(t, beta - 1) lightest error words.

    Section V-A looks for a light word of the code spanned by the public key and the ciphertext, as for interleaved
    codes in Elleuch, Wachter-Zeh and Zeh, "A public-key cryptosystem from interleaved Goppa codes" (2018), but
    Table I counts one such word. Every choice of beta - 1 zeros gives one, so the chance per set is larger.
    """
    name = "Lee-Brickell, any light word"
    n, k, t, beta = problem.n, problem.k, problem.t, problem.beta
    if n - t < k:
        return Estimate(name, None, reason=f"n - t = {n - t} is less than k = {k}: no set avoids the errors")
    if k + beta == n:
        return Estimate(name, None, reason=f"k + beta = {n} is the whole length: every word is a codeword")
    bits = any_light_word_work(n, k, t, beta, problem.q, elimination=elimination)
    return Estimate(name, bits, {"p": 1}, "takes the error code for MDS, as it is with probability near 1")
