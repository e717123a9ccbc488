"""The support of an error matrix whose rank equals the number of its positions.

Metzner and Kapturowski, "A general decoding technique applicable to replicated file disagreement location and
concatenated code decoding", IEEE Trans. Inf. Theory 36 (1990). The rows of C P span the space of the columns of P at
the positions in error, and no other column lies in it; so a position is in error exactly if its column does.

Expected at the paper's size with errors of rank t = 64 or 128, float32: the support exactly, relative error below 1e-6.
Raising the rank of the errors from beta to t, the obvious repair of the paper's cipher, therefore repairs nothing.
"""

from typing import final

import numpy as np

from codedfl.security.attacks.supports.geometry import geometry_of
from codedfl.security.attacks.supports.syndrome import find_syndrome
from codedfl.security.contract import Attack, Finding
from codedfl.security.views.kinds import ParcelView, View


@final
class MetznerKapturowski(Attack[ParcelView]):
    """Find the support of errors of full rank, then read A by least squares outside it."""

    name = "metzner-kapturowski"
    view_type = ParcelView
    aim = "the error support, if the errors have full rank"

    def suits(self, view: View) -> bool:
        """Require errors of full rank."""
        return isinstance(view, ParcelView) and view.beta >= view.t

    def run(self, view: ParcelView, rng: np.random.Generator) -> Finding:
        """Attack one parcel."""
        geometry = geometry_of(view.G)
        if geometry.redundancy == 0:
            return Finding(remark="no redundancy to exploit")
        syndrome = find_syndrome(geometry, view.words, view.t, rng)
        if syndrome.full:
            return Finding(remark=f"errors of rank {syndrome.rank} fill the whole space of syndromes")
        inside = np.einsum("ij,ij->i", syndrome.right, syndrome.right)
        # a space turned by an angle still holds 1 - sine of each of its unit vectors
        held = (1 - min(syndrome.tilt, 0.5)) ** 2
        positions = np.flatnonzero(inside >= held * geometry.freedom)
        if positions.size != syndrome.rank:
            # if the errors are nearly of lower rank, the space lacks a direction or two: take columns mostly inside it
            positions = np.flatnonzero(inside > geometry.freedom / 2)
            if positions.size != view.t:
                remark = f"errors of rank {syndrome.rank} span the columns of {positions.size} positions: rank below t"
                return Finding(remark=remark)
        coordinates = geometry.coordinates(view.words)
        return Finding(geometry.messages(geometry.without(positions, view.words, coordinates)), positions)
