"""What each scheme would take on a fleet, before any training, and what if the fleet were another."""

from codedfl.studies.plan.costs import DRAWS, CostCounter, Costs, default_draws, predict, probe, spent_by_device
from codedfl.studies.plan.planning import PRIVACY, Offer, Plan, Prediction, plan
from codedfl.studies.plan.shapes import Shapes

__all__ = [
    "DRAWS",
    "PRIVACY",
    "CostCounter",
    "Costs",
    "Offer",
    "Plan",
    "Prediction",
    "Shapes",
    "default_draws",
    "plan",
    "predict",
    "probe",
    "spent_by_device",
]
