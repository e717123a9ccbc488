"""All estimates for one problem."""

from codedfl.security.decoding.error_code import any_light_word, brute_force
from codedfl.security.decoding.estimate import Estimate
from codedfl.security.decoding.lee_brickell import lee_brickell, lee_brickell_codeword
from codedfl.security.decoding.many_instances import one_out_of_many
from codedfl.security.decoding.prange import prange
from codedfl.security.decoding.stern import stern
from codedfl.security.parameters import DecodingProblem

__all__ = ["estimates"]


def estimates(problem: DecodingProblem, *, elimination: str = "k^3") -> tuple[Estimate, ...]:
    """Return every estimate, those that cannot be computed included, always in the same order.

    The default elimination is the one that fits the paper's two levels (``fits``).
    """
    found = [brute_force(problem)]
    for algorithm in (prange, lee_brickell, lee_brickell_codeword, stern):
        estimate = algorithm(problem, elimination=elimination)
        found += [estimate, one_out_of_many(estimate, problem)]
    return (*found, any_light_word(problem, elimination=elimination))
