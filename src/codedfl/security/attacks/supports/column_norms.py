"""The support by column norms, and its dependence on the scale of the errors.

An error added to a column makes it longer on average, so the longest columns are suspects. Two measures of length:
relative to the column of the public G, or of the part that no codeword explains, which is thresholding, the simplest
sparse recovery (Schnass and Vandergheynst, "Average performance analysis for thresholding", IEEE Signal
Processing Letters 14, 2007).

Expected at the paper's size with errors as large as the data (noise 1): lengths alone find 8 % of the support at t = 64
and 13 % at t = 128, unexplained lengths about 77 % and 67 %. With errors ten times larger lengths alone find 95 %; what
unexplained lengths find does not depend on the scale.
"""

from typing import final

import numpy as np
from jaxtyping import Float64

from codedfl.security.attacks.supports.geometry import geometry_of
from codedfl.security.contract import Attack, Finding
from codedfl.security.views.kinds import ParcelView

COMBINATIONS = 64
"""Random combinations of rows whose unexplained part is measured: far above beta, far below d."""


@final
class ColumnNorms(Attack[ParcelView]):
    """Name the t columns of C that are longest against the same columns of G."""

    name = "column-norms"
    view_type = ParcelView
    aim = "the error support, by the lengths of columns"

    def run(self, view: ParcelView, rng: np.random.Generator) -> Finding:
        """Attack one parcel; nothing here is random."""
        seen = np.einsum("ij,ij->j", view.words, view.words, dtype=np.float64)
        public = np.einsum("ij,ij->j", view.G, view.G, dtype=np.float64)
        # a column of G that is zero carries no data: whatever is seen there is error
        return _longest(seen / np.maximum(public, np.finfo(np.float64).tiny * max(1.0, seen.max())), view.t)


@final
class UnexplainedNorms(Attack[ParcelView]):
    """Name the t columns where random row combinations of C are farthest from any codeword."""

    name = "unexplained-norms"
    view_type = ParcelView
    aim = "the error support, by the lengths of columns that no codeword explains"

    def run(self, view: ParcelView, rng: np.random.Generator) -> Finding:
        """Attack one parcel."""
        geometry = geometry_of(view.G)
        if geometry.redundancy == 0:
            return Finding(remark="no redundancy to exploit")
        mixed = geometry.combine(rng.standard_normal((view.words.shape[0], COMBINATIONS)), view.words)
        rest = geometry.free_part(mixed.T)
        lengths = np.einsum("ij,ij->i", rest, rest)
        return _longest(lengths / np.maximum(geometry.freedom, np.finfo(np.float64).eps), view.t)


def _longest(lengths: Float64[np.ndarray, "n"], t: int) -> Finding:
    if t == 0:
        return Finding(remark="the scheme has no error support")
    return Finding(support=np.sort(np.argpartition(lengths, -t)[-t:]))
