"""One estimate: a number of bits, or the reason why there is none."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from codedfl.security.estimates.parameters import DecodingProblem


@dataclass(frozen=True)
class Estimate:
    """Work of one algorithm: log2 of operations in F_q, or None where it cannot be computed.

    choices: what the algorithm was tuned to, such as its p and l.
    reason: what is assumed, or why ``bits`` is None; never empty in the second case.
    """

    name: str
    bits: float | None
    choices: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""

    def __post_init__(self) -> None:
        if self.bits is None and not self.reason:
            raise ValueError(f"{self.name} is not evaluated and gives no reason")

    @property
    def shown(self) -> str:
        """The bits with one decimal, or "not evaluated"."""
        return "not evaluated" if self.bits is None else f"{self.bits:.1f}"


def obstacle(problem: DecodingProblem) -> str:
    """Return why information-set decoding has no work factor here; an empty text if it has one."""
    if problem.w < 1:
        return f"the weight is {problem.w}: there is no word to look for"
    if problem.w > problem.n - problem.k:
        return f"the weight {problem.w} exceeds n - k = {problem.n - problem.k}: every information set meets the word"
    return ""
