"""Two runs, of which one had one device more: the difference of their sums is that device's Gram matrix.

Whoever opens sums only still reads a device that joins or leaves between two runs on the same data (the differencing
attack of statistical databases: Denning, "Cryptography and data security", 1982, section 6.3).

Expected for ``one-shot``: relative error of the rounding to steps, below 1e-6.
"""

from typing import final

import numpy as np

from codedfl.security.contract import Attack, Finding
from codedfl.security.views.kinds import TwoRunsView


@final
class TwoRuns(Attack[TwoRunsView]):
    """Subtract."""

    name = "two-runs"
    view_type = TwoRunsView
    aim = "the Gram matrix of a device that took part in one of two runs"

    def run(self, view: TwoRunsView, rng: np.random.Generator) -> Finding:
        """Attack two sums; nothing here is random."""
        return Finding(gram=np.asarray(view.with_device.astype(np.float64) - view.without))
