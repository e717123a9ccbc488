"""Membership from the released model alone: a model fits the points that it was trained on better than others.

The score is minus the squared error of a candidate's targets (Yeom, Giacomelli, Fredrikson and Jha, "Privacy risk in
machine learning: analyzing the connection to overfitting", CSF 2018). What it tells follows from how many points there
are for each feature, not from the scheme: with as many features as points the model fits all members exactly.

Expected on MNIST with 1000 features and 4,000 points: area under the curve 0.68.
"""

from typing import final

import numpy as np

from codedfl.security.contract import Attack, Finding
from codedfl.security.views.kinds import ModelView


@final
class LossThreshold(Attack[ModelView]):
    """Score minus the loss of each candidate."""

    name = "loss-threshold"
    view_type = ModelView
    aim = "who is in the data, by how well the released model fits"

    def run(self, view: ModelView, rng: np.random.Generator) -> Finding:
        """Score every candidate by itself; nothing here is random."""
        errors = view.candidates.astype(np.float64) @ view.model - view.targets
        return Finding(membership=-np.einsum("ij,ij->i", errors, errors))
