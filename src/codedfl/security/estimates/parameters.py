"""The decoding problem that an attacker of the paper's cipher is claimed to face.

Claimed, for nobody needs to solve it: one ciphertext and the public key give the data by linear algebra
(see ``codedfl.cipher``).
"""

from dataclasses import dataclass

from codedfl.cipher.mceliece.parameters import Parameters
from codedfl.errors import CipherError

__all__ = ["DISTANCES", "PAPER_92", "PAPER_128", "DecodingProblem"]

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
            _at_least_one(name, getattr(self, name))
        for small, large, limit in (("k", "n - 1", self.n - 1), ("t", "n", self.n), ("beta", "t", self.t)):
            _at_most(small, getattr(self, small), large, limit)
        _at_most("beta", self.beta, "k", self.k)
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

    @classmethod
    def of_cipher(cls, parameters: Parameters, *, q_bits: int = 32, distance: str = "table") -> "DecodingProblem":
        """Return the problem that goes with a cipher; ``q_bits`` is the width of its numbers."""
        return cls(parameters.n, parameters.k, parameters.t, parameters.beta, q_bits, distance)


def _at_least_one(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CipherError(f"{name} is {value!r} and must be a whole number of at least 1.")


def _at_most(small: str, value: int, large: str, limit: int) -> None:
    if value > limit:
        raise CipherError(f"{small} is {value} and must not exceed {large} = {limit}.")


PAPER_92 = DecodingProblem(n=4000, k=2000, t=64, beta=4, q_bits=32)
"""Table I, second row (t = 64, d(C_E) = 60): claimed 92 bits. Broken."""

PAPER_128 = DecodingProblem(n=4000, k=2000, t=128, beta=4, q_bits=32)
"""Table I, first row (t = 128, d(C_E) = 124): claimed 128 bits. Broken."""
