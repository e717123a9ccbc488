"""Two parcels under the same pad: their difference is the difference of the data.

The two-time pad: what was sealed twice with the same key stream is not sealed (Mason, Watkins, Eisner and Stubblefield,
"A natural language approach to automated cryptanalysis of two-time pads", CCS 2006). Under fresh pads the difference
is as uniform as each parcel.
"""

from typing import final

import numpy as np

from codedfl.security.contract import Attack, Finding
from codedfl.security.views.kinds import PairView


@final
class ReusedPad(Attack[PairView]):
    """Subtract, and read the difference as data."""

    name = "reused-pad"
    view_type = PairView
    aim = "the difference of two Gram matrices, if they were sealed with the same pad"

    def run(self, view: PairView, rng: np.random.Generator) -> Finding:
        """Attack two parcels; nothing here is random."""
        difference = view.first.astype(np.float64) - view.second
        difference -= view.modulus * np.rint(difference / view.modulus)
        return Finding(gram=np.asarray(difference * view.step))
