"""One row of the plaintext and the support, from one row of a parcel.

Tropp and Gilbert, "Signal recovery from random measurements via orthogonal matching pursuit", IEEE Trans. Inf. Theory
53 (2007). A row a G + e, after P removes the codewords, is a sum of t columns of P with t far below n - k; adding one
column at a time, always the one that explains most of the residual, finds them.

Expected at the paper's size (t = 64 and 128, float32): the support exactly, the row to below 1e-6; so even a caught
fragment of a parcel gives its support away.
"""

from typing import final

import numpy as np

from codedfl.security.attacks.supports.geometry import geometry_of
from codedfl.security.attacks.supports.pursuit import pursue
from codedfl.security.contract import Attack, Finding
from codedfl.security.views.kinds import RowView


@final
class SingleRow(Attack[RowView]):
    """Find the errors of one word as the sparsest explanation of its syndrome."""

    name = "single-row"
    view_type = RowView
    aim = "one row of the Gram matrix from one word"

    def run(self, view: RowView, rng: np.random.Generator) -> Finding:
        """Attack one word; nothing here is random."""
        geometry = geometry_of(view.G)
        words = view.word[None, :]
        coordinates = geometry.coordinates(words)
        if geometry.redundancy == 0:
            return Finding(gram=geometry.messages(coordinates), remark="no redundancy to exploit: the word as it is")
        space = geometry.free_part((view.word * geometry.weights)[:, None])
        length, rounding = float(np.linalg.norm(space)), geometry.rounding(words)
        if length <= rounding:
            return Finding(geometry.messages(coordinates), np.array([], dtype=np.int64), remark="no error to be seen")
        positions, rest = pursue(geometry, space / length, view.t, rounding / length)
        gram = geometry.messages(geometry.without(positions, words, coordinates))
        return Finding(gram, positions, remark=f"{rest:.1e} of the error left over")
