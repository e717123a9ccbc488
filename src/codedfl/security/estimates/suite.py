"""All estimates for one decoding problem, in operations in F_q.

They say how hard *that problem* is, and nothing about the cipher, which linear algebra breaks without decoding
(``codedfl.security.attacks``). Reused and partial eliminations are not counted, so the true cost may be lower.
"""

from codedfl.security.estimates.error_code import any_light_word, brute_force
from codedfl.security.estimates.estimate import Estimate
from codedfl.security.estimates.lee_brickell import lee_brickell, lee_brickell_codeword
from codedfl.security.estimates.many_instances import one_out_of_many
from codedfl.security.estimates.parameters import DecodingProblem
from codedfl.security.estimates.prange import prange
from codedfl.security.estimates.stern import stern


def estimates(problem: DecodingProblem, *, elimination: str = "k^3") -> tuple[Estimate, ...]:
    """Return every estimate in a fixed order; one that cannot be computed has no bits and a reason.

    The default elimination is the one that fits the paper's two levels (docs/estimates.md).
    """
    found = [brute_force(problem)]
    for algorithm in (prange, lee_brickell, lee_brickell_codeword, stern):
        estimate = algorithm(problem, elimination=elimination)
        found += [estimate, one_out_of_many(estimate, problem)]
    return (*found, any_light_word(problem, elimination=elimination))
