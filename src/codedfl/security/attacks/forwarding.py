"""Forwarding without a fresh error: the earlier senders subtract their own parcels.

A device v that holds two foreign parcels may forward without a support of its own (section IV-B): it sends
A_v G + C_1 + C_2. The senders of C_1 and C_2 know these words to the last bit, errors included, so together they
obtain A_v G, a codeword without error. The paper counts the foreign errors as protection; they do not protect against
those who drew them. A device that received one forwarded sum counts as having two errors, too; its single sender knows
that sum and needs nobody else.

Expected at the paper's size (float32): relative error about 1e-6, the rounding of the sum times the condition of G.
"""

from typing import final

import numpy as np

from codedfl.security.attacks.supports.geometry import geometry_of
from codedfl.security.contract import Attack, Finding
from codedfl.security.views.kinds import ForwardView


@final
class Forwarding(Attack[ForwardView]):
    """Subtract the sent parcels and decode the rest; under a fresh pad the rest is noise."""

    name = "forwarding"
    view_type = ForwardView
    aim = "the Gram matrix of a device that forwards, by those who sent to it"

    def run(self, view: ForwardView, rng: np.random.Generator) -> Finding:
        """Attack one forwarded parcel."""
        rest = view.forwarded.astype(np.float64)
        for parcel in view.sent:
            rest -= parcel
        geometry = geometry_of(view.G)
        gram = geometry.messages(geometry.coordinates(rest))
        if gram.shape[0] == gram.shape[1]:
            gram = (gram + gram.T) / 2
        return Finding(gram=gram, remark=f"parcels taken away: {len(view.sent)}")
