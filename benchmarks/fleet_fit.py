"""A fleet fitted to some runs predicts the time of others: other seeds, and schemes that it was not fitted on.

Runs and held-out runs are simulated on the fleet of ``paper-quick``, and on one whose devices differ in every number.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import show
from codedfl.runs import directory
from codedfl.scenario import Scenario, load
from codedfl.studies.fleet_fit import fit_fleet

UNLIKE = [
    {"count": 6, "mac_rate": 25e6, "down_rate": 4e6, "up_rate": 3e6, "d2d_rate": 8e6, "loss": 0.2},
    {"count": 6, "mac_rate": 5e6, "setup_seconds": 5e-3, "d2d_rate": 3e6, "loss": 0.05},
    {"count": 6, "mac_rate": 2e6, "setup_ratio": 1.5, "up_rate": 1e6, "d2d_rate": 2e6, "d2d_loss": 0.3},
]
FITTED_ON = (("conventional", 1), ("conventional", 2), ("sealed-coded", 1))
HELD_OUT = ("conventional", "minibatch", "sealed", "sealed-coded", "secagg", "drop-slowest", "code-based")
EPOCHS, SEED, LIMIT = 100, 9, 0.1


def main() -> dict[str, Any]:
    """Fit, and compare the mean time of held-out runs with the mean that the fitted fleet predicts."""
    results = {}
    for name, changes in {
        "paper-quick": {},
        "unlike devices": {"fleet.devices": UNLIKE, "schemes.drop-slowest.wait_for": 14},
    }.items():
        with tempfile.TemporaryDirectory() as folder:
            results[name] = _errors(name, load("paper-quick").with_settings(changes), Path(folder))
    return results


def _errors(name: str, truth: Scenario, folder: Path) -> dict[str, Any]:
    truth = truth.with_settings({"training.epochs": EPOCHS, "timing.draws": 200, "timing.repeats": 2})
    runs = [_run(truth, scheme, seed, folder / f"{scheme}-{seed}") for scheme, seed in FITTED_ON]
    fitted = fit_fleet(runs).to_table()
    predicting = truth.with_settings({"fleet": fitted["fleet"], "links": fitted["links"]})
    found = {}
    for scheme in HELD_OUT:
        held = _run(truth, scheme, SEED, folder / f"held-{scheme}")
        predicted = _run(predicting, scheme, 0, folder / f"predicted-{scheme}")
        seconds, expected = _ends(held), float(_ends(predicted).mean())
        error, spread = abs(expected / seconds.mean() - 1), float(seconds.std() / seconds.mean())
        about = f"{expected:.4g} s for {seconds.mean():.4g} s of {len(seconds)} runs"
        show(f"{name}, {scheme}: {about} that vary by {100 * spread:.1f}%; error", error, LIMIT)
        found[scheme] = {"seconds": float(seconds.mean()), "predicted": expected, "error": error, "spread": spread}
    return found


def _ends(run: directory.Run) -> np.ndarray:
    """Return how long each draw of a run took; each is a run of its own."""
    return np.concatenate([each.timings[:, -1] for each in run.repeats]).astype(np.float64)


def _run(scenario: Scenario, scheme: str, seed: int, path: Path) -> directory.Run:
    changes = {"scheme": scheme, "timing.seed": seed, "training.solver": "gradient-descent"}
    return directory.execute(scenario.with_settings(changes), path)


if __name__ == "__main__":
    main()
