"""Security of the paper's cipher: what is claimed, what the claimed problem would cost, and what attacks really get.

The level is *claimed* (``claimed_level``), the cost of the decoding problem behind it is *estimated* (``estimates``),
and the cipher is *broken*: linear algebra recovers the data without decoding anything.
"""

from codedfl.security.estimates import Estimate, Fit, estimates, fits, one_out_of_many
from codedfl.security.estimates.claimed import claimed_level, prange_bits
from codedfl.security.estimates.parameters import DecodingProblem

__all__ = [
    "DecodingProblem",
    "Estimate",
    "Fit",
    "claimed_level",
    "estimates",
    "fits",
    "one_out_of_many",
    "prange_bits",
]
