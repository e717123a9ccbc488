"""Membership from sums and from released models on MNIST with 1000 features, by the number of points."""

from typing import Any

import numpy as np

from benchmarks.measure import show
from codedfl.scenario import load
from codedfl.security.attacks.loss_threshold import LossThreshold
from codedfl.security.attacks.membership import Decomposition
from codedfl.security.scoring import area_under_curve
from codedfl.security.views.kinds import MembershipView, ModelView
from codedfl.task import Problem

SUMMED = 12_000
RELEASED = (1_000, 4_000, 12_000)
OUTSIDERS = 4_000


def main() -> dict[str, Any]:
    """Tell members from test images, all of them candidates."""
    problem = Problem.build(load("paper").with_settings({"features.dimension": 1000}))
    x, y = (np.concatenate(parts) for parts in zip(*((s.x, s.y) for s in problem.shards), strict=True))
    x, y = x.astype(np.float64), y.astype(np.float64)
    outside = problem.x_test[:OUTSIDERS].astype(np.float64)
    labels = np.eye(problem.shape[1])[problem.y_test[:OUTSIDERS]]
    results: dict[str, Any] = {"sum": _from_sum(x[:SUMMED], outside)}
    show(f"sum of {SUMMED} points, decomposition: AUC", results["sum"])
    for points in RELEASED:
        model = _ridge(x[:points], y[:points], float(np.max(problem.ridge)))
        view = ModelView(model, np.concatenate([x[:points], outside]), np.concatenate([y[:points], labels]))
        results[f"model_{points}"] = area = _area(LossThreshold().run(view, np.random.default_rng(0)), points)
        show(f"released model of {points} points, loss threshold: AUC", area)
    return results


def _from_sum(inside: np.ndarray, outside: np.ndarray) -> float:
    view = MembershipView(inside.T @ inside, np.concatenate([inside, outside]))
    return _area(Decomposition().run(view, np.random.default_rng(0)), len(inside))


def _area(finding: Any, inside: int) -> float:
    return area_under_curve(finding.membership, np.arange(len(finding.membership)) < inside)


def _ridge(x: np.ndarray, y: np.ndarray, ridge: float) -> np.ndarray:
    return np.asarray(np.linalg.solve(x.T @ x + ridge * len(x) * np.eye(x.shape[1]), x.T @ y))
