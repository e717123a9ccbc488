"""One row of the plaintext and the support, from one row of a parcel.

Tropp and Gilbert, "Signal recovery from random measurements via orthogonal matching pursuit", IEEE Trans. Inf. Theory
53 (2007). A row a G + e, after P removes the codewords, is a sum of t columns of P with t far below n - k; adding one
column at a time, always the one that explains most of the residual, finds them.

Expected at the paper's size (t = 64 and 128, float32): the support exactly, the row to below 1e-6; so even a caught
fragment of a parcel gives its support away.
"""

from collections.abc import Callable
from typing import final

import numpy as np
from jaxtyping import Float64, Int

from codedfl.security.attacks.supports.geometry import KeyGeometry, geometry_of
from codedfl.security.attacks.supports.pursuit import pursue
from codedfl.security.contract import Attack, Finding
from codedfl.security.views.kinds import RowView

Search = Callable[[KeyGeometry, Float64[np.ndarray, "n"], int, float], tuple[Int[np.ndarray, "t"], str]]
"""Takes P times a word (of length one), the expected number of errors and the relative rounding; returns the positions
of the errors and a remark."""


@final
class SingleRow(Attack[RowView]):
    """Find the errors of one word as the sparsest explanation of its syndrome."""

    name = "single-row"
    view_type = RowView
    aim = "one row of the Gram matrix from one word"

    def run(self, view: RowView, rng: np.random.Generator) -> Finding:
        """Attack one word; nothing here is random."""
        return read_row(view, _greedily)


def read_row(view: RowView, search: Search) -> Finding:
    """Search the error positions of one word, erase them, and read the message by least squares."""
    geometry = geometry_of(view.G)
    words = view.word[None, :]
    coordinates = geometry.coordinates(words)
    if geometry.redundancy == 0:
        return Finding(gram=geometry.messages(coordinates), remark="no redundancy to exploit: the word as it is")
    syndrome = geometry.free_part((view.word * geometry.weights)[:, None])[:, 0]
    length, rounding = float(np.linalg.norm(syndrome)), geometry.rounding(words)
    if length <= rounding:
        return Finding(geometry.messages(coordinates), np.array([], dtype=np.int64), remark="no error to be seen")
    positions, remark = search(geometry, syndrome / length, view.t, rounding / length)
    gram = geometry.messages(geometry.without(positions, words, coordinates))
    return Finding(gram, positions, remark=remark)


def _greedily(
    geometry: KeyGeometry, syndrome: Float64[np.ndarray, "n"], expected: int, rounding: float
) -> tuple[Int[np.ndarray, "t"], str]:
    positions, rest = pursue(geometry, syndrome[:, None], expected, rounding)
    return positions, f"{rest:.1e} of the error left over"
