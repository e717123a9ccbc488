"""The security level that the paper claims (section V-E and Table I), by the formula that fits its two numbers.

The paper names its ingredients (plain information-set decoding over F_q, decoding one out of many, brute force over
beta symbols) but prints no formula. This one is fitted: it gives 92 and 128, as others do (docs/estimates.md). It says
what is *claimed*; linear algebra recovers the plaintext whatever the level (``codedfl.cipher.mceliece``).
"""

import math

from codedfl.security.estimates.prange import prange_work


def claimed_level(n: int, k: int, t: int, beta: int, q_bits: int) -> int:
    """Return the level in bits that the paper would claim for a [t, beta] error code over F_q, q = 2^q_bits.

    The attacker looks for a word of weight t - beta (Table I); beta independent ciphertexts save a factor sqrt(beta)
    (Sendrier, "Decoding one out of many", PQCrypto 2011); guessing beta symbols costs q^beta.
    """
    decoding = prange_work(n, k, t - beta) - math.log2(beta) / 2
    return math.floor(min(decoding, beta * q_bits))
