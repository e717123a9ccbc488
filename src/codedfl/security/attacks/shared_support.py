"""A support that is issued twice: its earlier holder knows the error positions of the later one.

Known positions are erasures, not errors. A parcel is then A G on the other n - t positions, and least squares on those
gives A as long as n - t >= k. No private key is needed: this is the server's own decoding without its sparse checks.

Expected at the paper's size (t = 64 or 128, float32): relative error below 1e-6.
"""

from typing import final

import numpy as np

from codedfl.security.attacks.supports.geometry import geometry_of
from codedfl.security.contract import Attack, Finding
from codedfl.security.views.kinds import SharedSupportView


@final
class SharedSupport(Attack[SharedSupportView]):
    """Solve least squares outside the known positions; without redundancy, read the words as they are."""

    name = "shared-support"
    view_type = SharedSupportView
    aim = "the Gram matrix of a device that was given the attacker's own support"

    def run(self, view: SharedSupportView, rng: np.random.Generator) -> Finding:
        """Attack one parcel."""
        geometry = geometry_of(view.G)
        coordinates = geometry.coordinates(view.words)
        erased = view.positions.size
        if erased and geometry.redundancy:
            coordinates = geometry.without(view.positions, view.words, coordinates)
            remark = f"{erased} of {geometry.n} positions left out"
        else:
            remark = "no position could be left out: words read as they are"
        gram = geometry.messages(coordinates)
        if gram.shape[0] == gram.shape[1]:
            gram = (gram + gram.T) / 2
        return Finding(gram=gram, remark=remark)
