"""The decoding problem that an attacker of the paper's cipher is claimed to face.

No attacker needs to solve it: one ciphertext and the public key give the data by linear algebra
(``codedfl.cipher.mceliece``).
"""

from dataclasses import dataclass
from typing import Any

from codedfl.cipher.mceliece.parameters import at_least_one, at_most
from codedfl.errors import CipherError, UsageError
from codedfl.scenario import Scenario

DISTANCES = ("table", "mds")
"""Table I counts the distance of the error code as t - beta; an MDS code has t - beta + 1, and ours is one."""


@dataclass(frozen=True)
class DecodingProblem:
    """Find a word of weight w in the code that the public key and one ciphertext span (paper, section V-A).

    n, k: length and dimension of the public code.
    t, beta: length and dimension of the error code; t is the size of an error support.
    q_bits: bits of a symbol; the paper takes 32-bit reals for elements of F_q, q = 2^32 (section V-E).
    distance: how the weight w of the lightest word of the error code is counted, one of ``DISTANCES``.
    """

    n: int
    k: int
    t: int
    beta: int
    q_bits: int
    distance: str = "table"

    def __post_init__(self) -> None:
        for name in ("n", "k", "t", "beta", "q_bits"):
            at_least_one(name, getattr(self, name))
        for small, large, limit in (("k", "n - 1", self.n - 1), ("t", "n", self.n), ("beta", "t", self.t)):
            at_most(small, getattr(self, small), large, limit)
        at_most("beta", self.beta, "k", self.k)
        if self.distance not in DISTANCES:
            raise CipherError(f"distance is {self.distance!r}: choose from {', '.join(DISTANCES)}.")

    @property
    def w(self) -> int:
        """Weight of the word to be found: t - beta as in Table I, or t - beta + 1 if the error code is MDS."""
        return self.t - self.beta + (self.distance == "mds")

    @property
    def q(self) -> int:
        """Size of the field."""
        return 1 << self.q_bits


def problem_of(scenario: Scenario) -> DecodingProblem | None:
    """Return the problem that the level claimed for a scenario rests on; None where none is claimed."""
    if scenario.scheme != "code-based":
        return None
    options: Any = scenario.options()
    if scenario.features.kind == "none":
        raise UsageError(
            f"the level that '{scenario.name}' claims depends on the number of features, which its data file "
            "decides; set features.kind = 'rbf' and features.dimension"
        )
    return DecodingProblem(options.n, scenario.features.dimension, options.t, options.beta, q_bits=32)
