"""Many instances, one of which is enough: Sendrier, "Decoding one out of many", PQCrypto 2011."""

import math

from codedfl.security.estimates.counting import log2_binomial
from codedfl.security.estimates.estimate import Estimate
from codedfl.security.estimates.parameters import DecodingProblem


def one_out_of_many(estimate: Estimate, problem: DecodingProblem, instances: int | None = None) -> Estimate:
    """Return the estimate with its work divided by sqrt(instances), for up to C(n, w) instances.

    Instances count if their errors are linearly independent; the d rows of a ciphertext have beta such errors, so
    beta is taken unless said otherwise. Shown for binary codes only; the paper takes it over F_q as the worst case
    (section V-C). Law: never more than the estimate itself.
    """
    count = problem.beta if instances is None else instances
    name = f"{estimate.name}, one out of many"
    choices = {**estimate.choices, "instances": count}
    if estimate.bits is None:
        return Estimate(name, None, choices, estimate.reason)
    if count < 1:
        return Estimate(name, None, choices, f"{count} instances: at least one is needed")
    if math.log2(count) > log2_binomial(problem.n, problem.w):
        return Estimate(name, None, choices, f"{count} instances exceed C(n, w), where the saving is not shown")
    return Estimate(name, estimate.bits - math.log2(count) / 2, choices, estimate.reason)
