"""Codes whose erased symbols obey given checks."""

import numpy as np
import scipy.sparse

from codedfl.codes.mdpc import MdpcCode


def bordered(E: list[list[float]], known: list[list[float]]) -> tuple[MdpcCode, np.ndarray]:
    """The code of the checks [E | known] and the positions of E: symbols x are erased, and E x + known y = 0."""
    H = scipy.sparse.csr_matrix(np.hstack([np.array(E, float), np.array(known, float)]))
    return MdpcCode.from_parity_check(H, rng=np.random.default_rng(0)), np.arange(len(E[0]))
