"""Finding 7: the audit attacks device 0 of `coded-padded` only; the least hidden device is far worse."""

import numpy as np
import pytest

from codedfl import schemes
from codedfl.scenario import load
from codedfl.security.audit import attack_scenario
from codedfl.task import Problem


@pytest.mark.parametrize("alpha", [2, 19])
def test_the_least_hidden_device_is_attacked(alpha: int) -> None:
    """The best combination by the pseudo-inverse of the code, device by device, is what the audit must reach."""
    options = {"scheme": "coded-padded", "schemes.coded-padded.alpha": alpha, "features.dimension": 40}
    chosen = load("paper-quick").with_settings(options)
    problem = Problem.build(chosen)
    code = schemes.create(chosen, problem).code  # type: ignore[attr-defined]
    signed = np.array([[code._integer(i, j) for j in range(code.N)] for i in range(code.N)], dtype=float)
    weights = np.linalg.pinv(signed / np.abs(signed).max(axis=1, keepdims=True))
    weights = weights @ (signed / np.abs(signed).max(axis=1, keepdims=True))
    grams = np.stack([shard.gram.astype(float) for shard in problem.shards])
    missed = np.tensordot(weights, grams, axes=1) - grams
    errors = np.linalg.norm(missed, axis=(1, 2)) / np.linalg.norm(grams, axis=(1, 2))
    found = attack_scenario(chosen, problem, names=["server-replies"])
    (best,) = (entry for entry in found if "at best" in entry.assumption)
    assert errors.min() < 0.5 * errors[0]
    assert best.score.relative_error == pytest.approx(errors.min(), rel=1e-2)
    assert best.device == errors.argmin()
