"""The support of an error matrix of small rank, by joint sparse recovery.

Tropp, Gilbert and Strauss, "Algorithms for simultaneous sparse approximation", Signal Processing 86 (2006), and its
rank-aware form, Davies and Eldar, "Rank awareness in joint sparse recovery", IEEE Trans. Inf. Theory 58 (2012). The
rows of C P span a space of dimension beta inside that of the t columns of P at the positions in error; greedy search
finds those columns, the more easily the larger beta is.

Expected at the paper's size (beta = 4, t = 64 and 128, float32): the support exactly, relative error below 1e-6.
It uses neither the symmetry of A nor that there are as many rows as columns.
"""

from typing import final

import numpy as np

from codedfl.security.attacks.supports.geometry import geometry_of
from codedfl.security.attacks.supports.pursuit import pursue
from codedfl.security.attacks.supports.syndrome import find_syndrome
from codedfl.security.contract import Attack, Finding
from codedfl.security.views.kinds import ParcelView


@final
class SubspaceMatching(Attack[ParcelView]):
    """Find the support of errors of any rank, then read A by least squares outside it."""

    name = "subspace-matching"
    view_type = ParcelView
    aim = "the error support, whatever the rank of the errors"

    def run(self, view: ParcelView, rng: np.random.Generator) -> Finding:
        """Attack one parcel."""
        geometry = geometry_of(view.G)
        if geometry.redundancy == 0:
            return Finding(remark="no redundancy to exploit")
        syndrome = find_syndrome(geometry, view.words, view.beta, rng)
        if syndrome.full:
            return Finding(remark=f"errors of rank {syndrome.rank} fill the whole space of syndromes")
        positions, rest = pursue(geometry, syndrome.right, view.t, syndrome.tilt)
        coordinates = geometry.coordinates(view.words)
        gram = geometry.messages(geometry.without(positions, view.words, coordinates))
        return Finding(gram, positions, remark=f"errors of rank {syndrome.rank}, {rest:.1e} of their space left over")
