"""Finding 10: cohorts that change (`drop-slowest`, `deadline`) tell single gradients: 0.32 where guessing gives 1.0.

So do two runs with one device more.
"""

import pytest

from codedfl.scenario import load
from codedfl.security.audit import attack_scenario
from codedfl.task import Problem
from schemes.residues import fleet


@pytest.mark.parametrize("inner", ["drop-slowest", "conventional"])
def test_differencing_sums_over_changing_cohorts(inner: str) -> None:
    """Six devices alike, of which five reply in time, and digits with 40 features; the same cohort tells nothing."""
    changes = {
        "scheme": "secagg", "schemes.secagg.inner": inner, "schemes.drop-slowest.wait_for": 5,
        "features.dimension": 40, "fleet.devices": fleet(*[1e6] * 6),
    }  # fmt: skip
    chosen = load("paper-quick").with_settings(changes)
    found = attack_scenario(chosen, Problem.build(chosen), names=["differencing"], epochs=40)
    (outcome,) = (entry for entry in found if entry.adversary == "server")
    assert outcome.asset == "gradient"
    assert outcome.score.guess_error > 0.5
    if inner == "drop-slowest":
        assert outcome.score.relative_error <= 0.4 * outcome.score.guess_error
    else:
        assert outcome.score.verdict == "holds"


def test_two_runs_with_one_device_more_tell_its_gram_matrix() -> None:
    changes = {"scheme": "one-shot", "features.dimension": 40, "fleet.devices": fleet(*[1e6] * 5)}
    chosen = load("paper-quick").with_settings(changes)
    (outcome,) = attack_scenario(chosen, Problem.build(chosen), names=["two-runs"], epochs=4)
    assert (outcome.score.verdict, outcome.device) == ("falls", 4)
    assert outcome.score.relative_error < 1e-6
