"""Scores of attacks against the truth. No attack imports this module.

``verdict`` is one word: *falls* (the attacker reaches its goal), *leaks* (it learns something), or *holds* (it does no
better than chance).
"""

import math
from dataclasses import dataclass, field

import numpy as np
import scipy
from jaxtyping import Bool, Float, Int

from codedfl.security.contract import Finding

FALLS_BELOW = 1e-2
"""Relative error at which a recovered Gram matrix is as useful to an attacker as the true one."""
FALLS_ABOVE = 0.9
"""Area under the curve from which membership counts as revealed."""
SIGMAS = 4.0
"""Standard deviations above chance that count as a leak."""


@dataclass(frozen=True, eq=False)
class Truth:
    """The truth that the attacker does not know."""

    gram: Float[np.ndarray, "rows columns"] | None = field(default=None, repr=False)
    support: Int[np.ndarray, "t"] | None = field(default=None, repr=False)
    members: Bool[np.ndarray, "m"] | None = field(default=None, repr=False)
    length: int = 0
    """Length n of the words that the support lies in."""
    guess_error: float = 1.0
    """Relative error of the best guess without the view; 1 is the zero matrix."""


@dataclass(frozen=True)
class Score:
    """The score of one attack; what was not attacked is None."""

    relative_error: float | None
    support_found: float | None
    """Share of the true support among the positions named."""
    support_recovered: bool | None
    auc: float | None
    verdict: str
    remark: str = ""
    guess_error: float | None = None
    """Relative error of the best guess without the view, where a matrix was attacked."""


def relative_error(found: Float[np.ndarray, "rows columns"], true: Float[np.ndarray, "rows columns"]) -> float:
    """Return the Frobenius norm of the difference against that of the truth; infinite where it is not a number."""
    difference = float(np.linalg.norm(np.subtract(found, true, dtype=np.float64)))
    size = float(np.linalg.norm(true.astype(np.float64)))
    if size == 0:
        return 0.0 if difference == 0 else math.inf
    return difference / size if math.isfinite(difference) else math.inf


def area_under_curve(scores: Float[np.ndarray, "m"], members: Bool[np.ndarray, "m"]) -> float:
    """Return the chance that a member scores above a non-member, ties counting half (Mann-Whitney)."""
    inside, outside = int(members.sum()), int((~members).sum())
    ranks = scipy.stats.rankdata(scores)
    return float((ranks[members].sum() - inside * (inside + 1) / 2) / (inside * outside))


def score(finding: Finding, truth: Truth) -> Score:
    """Compare a finding with the truth."""
    error = guess = found = recovered = auc = None
    verdicts = []
    if finding.gram is not None and truth.gram is not None:
        error = relative_error(finding.gram, truth.gram)
        guess = truth.guess_error
        verdicts.append(_verdict_of_error(error, guess))
    if finding.support is not None and truth.support is not None:
        hits = int(np.isin(finding.support, truth.support).sum())
        recovered = hits == truth.support.size == finding.support.size
        if truth.support.size:  # where there are no errors, to find none is no success
            found = hits / truth.support.size
            verdicts.append("falls" if recovered else _verdict_of_hits(hits, finding.support.size, truth))
    if finding.membership is not None and truth.members is not None:
        auc = area_under_curve(finding.membership, truth.members)
        verdicts.append(_verdict_of_auc(auc, truth.members))
    worst = next((word for word in ("falls", "leaks", "holds") if word in verdicts), "holds")
    return Score(error, found, recovered, auc, worst, finding.remark, guess)


def _verdict_of_error(error: float, guess: float) -> str:
    if error <= FALLS_BELOW and error < guess:
        return "falls"
    return "leaks" if error < 0.95 * guess else "holds"


def _verdict_of_hits(hits: int, named: int, truth: Truth) -> str:
    """Compare the hits with those of random positions: a hypergeometric distribution."""
    assert truth.support is not None  # noqa: S101 - the caller has looked
    by_chance = scipy.stats.hypergeom(truth.length, truth.support.size, named)
    return "leaks" if hits > by_chance.mean() + SIGMAS * max(by_chance.std(), 0.5) else "holds"


def _verdict_of_auc(auc: float, members: Bool[np.ndarray, "m"]) -> str:
    if auc >= FALLS_ABOVE:
        return "falls"
    inside, outside = int(members.sum()), int((~members).sum())
    deviation = math.sqrt((inside + outside + 1) / (12 * inside * outside))  # of Mann-Whitney under chance
    return "leaks" if auc > 0.5 + SIGMAS * deviation else "holds"
