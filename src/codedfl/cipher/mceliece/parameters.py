"""The numbers that define one instance of the cipher, all of them public."""

from dataclasses import dataclass
from typing import final

from codedfl.codes.mdpc import CONSTRUCTIONS, WEIGHTS
from codedfl.errors import CipherError

FAMILIES = ("auto", "partition", "affine", "greedy")
"""Layouts of supports: smallest overlap found, disjoint blocks, hyperplanes of AG(m, q), greedy drawing."""


@final
@dataclass(frozen=True)
class Parameters:
    """Sizes of code, error and supports, in the paper's symbols.

    n, k: length and dimension of the code; A has k columns.
    degree: nonzeros in a column of H; the paper gives those in a row, degree * n / (n - k).
    t_tot: size of the set of positions that may ever carry errors.
    t, M: size and number of the supports inside it.
    beta: rank of an error matrix.
    weights, construction: how ``codedfl.codes`` draws the parity-check matrix.
    family: how the supports are laid out in the t_tot positions.
    noise: root mean square of an error column against that of the data column it hides.
    """

    n: int
    k: int
    degree: int
    t_tot: int
    t: int
    M: int
    beta: int
    weights: str = "signed-uniform"
    construction: str = "peg"
    family: str = "auto"
    noise: float = 1.0

    def __post_init__(self) -> None:
        for name in ("n", "k", "degree", "t_tot", "t", "M", "beta"):
            at_least_one(name, getattr(self, name))
        at_most("k", self.k, "n - 1", self.n - 1)
        at_most("degree", self.degree, "n - k", self.n - self.k)
        at_most("t_tot", self.t_tot, "n - k", self.n - self.k)
        at_most("t", self.t, "t_tot", self.t_tot)
        at_most("beta", self.beta, "t", self.t)
        at_most("beta", self.beta, "k", self.k)
        for name, choices in (("weights", WEIGHTS), ("construction", CONSTRUCTIONS), ("family", FAMILIES)):
            if getattr(self, name) not in choices:
                raise CipherError(f"{name} is {getattr(self, name)!r}: choose from {', '.join(choices)}.")
        if not isinstance(self.noise, float | int) or not 0 < self.noise < float("inf"):
            raise CipherError(f"noise is {self.noise!r} and must be a positive finite number, such as 1.0.")


def at_least_one(name: str, value: object) -> None:
    """Refuse a value that is no whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CipherError(f"{name} is {value!r} and must be a whole number of at least 1.")


def at_most(small: str, value: int, large: str, limit: int) -> None:
    """Refuse a value above its limit."""
    if value > limit:
        raise CipherError(f"{small} is {value} and must not exceed {large} = {limit}.")


PAPER_92 = Parameters(n=4000, k=2000, degree=45, t_tot=256, t=64, M=16, beta=4)
"""Section VI: claimed 92 bits with 16 supports (text; Table I prints M = 4). Broken: see the package."""

PAPER_128 = Parameters(n=4000, k=2000, degree=45, t_tot=256, t=128, M=4, beta=4)
"""Section VI: claimed 128 bits with 4 supports (text; Table I prints M = 16). Broken: see the package."""
