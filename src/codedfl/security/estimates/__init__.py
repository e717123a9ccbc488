"""Estimates for the decoding problem that the paper's security level rests on.

They say how hard *that problem* is, in operations in F_q. They say nothing about the cipher, which linear algebra
breaks without decoding anything (see ``codedfl.cipher``). One algorithm a file (``prange``, ``lee_brickell``,
``stern``, ``error_code``), each citing its source; ``estimates`` gives them all, and those that cannot be computed are
in the list as "not evaluated". Re-used eliminations and partial ones are not counted, so the true cost may be lower.
"""

from codedfl.security.estimates.counting import ELIMINATIONS, to_bit_operations
from codedfl.security.estimates.differences import Difference, Reconstruction, reconstructions
from codedfl.security.estimates.estimate import Estimate
from codedfl.security.estimates.everything import estimates
from codedfl.security.estimates.fitting import Fit, fits
from codedfl.security.estimates.many_instances import one_out_of_many

__all__ = [
    "ELIMINATIONS",
    "Difference",
    "Estimate",
    "Fit",
    "Reconstruction",
    "estimates",
    "fits",
    "one_out_of_many",
    "reconstructions",
    "to_bit_operations",
]
