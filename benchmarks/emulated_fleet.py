"""Prediction against reality: an emulated fleet of real processes beside what virtual time says of the same scenario.

    python -m benchmarks.emulated_fleet [FOLDER]

A server and six devices of three speed classes run as FLARE processes of this machine. Devices compute for real and
sleep for the rest of what the delay model says they take; messages and parcels really go through FLARE. Measured is
the wall clock, FLARE and computing included, divided by the time scale. Predicted is virtual time: in the run's own
timing draw, whose random numbers the emulated devices meet too, and as the mean over draws, which is what `codedfl
plan` says before anything runs. The figure goes to FOLDER (out/emulated-fleet); without FLARE nothing is measured.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.measure import show
from codedfl.compare import SharedProblem
from codedfl.engines.flare.names import need_flare
from codedfl.engines.flare.processes import kits_of, running
from codedfl.errors import MissingExtraError
from codedfl.figures import Pair, measured_against_predicted, save
from codedfl.fleet import make_fleet, train
from codedfl.progress import silent
from codedfl.runs import Run, execute
from codedfl.scenario import Scenario, load
from codedfl.timing import band

FOLDER = Path("out/emulated-fleet")
TIME_SCALE = 0.25
"""Real seconds for each of the scenario's: what FLARE takes for an epoch must stay small beside an emulated one."""
LIMIT = 0.15
CLASSES = (8e6, 4e6, 2e6)
"""Multiplications a second of two devices each; replies take about 5, 10 and 20 seconds, and setup."""
EPOCHS = 15
SOLVERS = {"drop-slowest": "nesterov"}
"""Conjugate gradients need gradients of all data, which not every scheme gives."""
SCHEMES: dict[str, dict[str, Any]] = {
    "conventional": {},
    "drop-slowest": {"schemes.drop-slowest.wait_for": 4, "timing.repeats": 5},
    "code-based": {},
    "sealed": {},
    "sealed-coded": {},
}


def scenario(scheme: str) -> Scenario:
    """Return the paper's task and links, with a fleet that fits this machine."""
    common = {
        "scheme": scheme,
        "name": "emulated-fleet",
        "fleet.devices": [{"count": 2, "mac_rate": rate} for rate in CLASSES],
        "training.epochs": EPOCHS,
        "training.solver": SOLVERS.get(scheme, "conjugate-gradients"),
    }
    return load("paper").with_settings(common | SCHEMES[scheme])


def main(folder: Path = FOLDER) -> dict[str, Any]:
    """Predict all, then measure all with the same processes."""
    try:
        need_flare()
    except MissingExtraError as error:
        print(f"  not measured: {error}")
        return {}
    chosen = {scheme: scenario(scheme) for scheme in SCHEMES}
    for name in ("predicted", "measured"):
        shutil.rmtree(folder / name, ignore_errors=True)
    began = time.monotonic()
    predicted = predictions(chosen, folder / "predicted")
    show("predicting all", time.monotonic() - began, unit="s")
    measured = measurements(chosen, folder / "measured")
    show("predicting and measuring all", time.monotonic() - began, unit="s")
    results = {scheme: compared(predicted[scheme], measured[scheme]) for scheme in SCHEMES}
    report(results)
    pairs = [Pair(scheme, predicted[scheme], measured[scheme]) for scheme in SCHEMES]
    save(measured_against_predicted(pairs, limit=LIMIT), folder / "prediction.png")
    print(f"  figure: {folder / 'prediction.png'}")
    return {"time_scale": TIME_SCALE, "classes": CLASSES, **results}


def predictions(chosen: dict[str, Scenario], folder: Path) -> dict[str, Run]:
    """Run all in virtual time, with one thread as the processes have, so that models can be the same."""
    shared = SharedProblem(silent)
    with threadpool_limits(1):
        return {name: execute(each, folder / name, problem=shared.get(each)) for name, each in chosen.items()}


def measurements(chosen: dict[str, Scenario], folder: Path) -> dict[str, Run]:
    """Run all on processes of this machine, which stay while one training follows the other."""
    with tempfile.TemporaryDirectory(prefix="codedfl-bench-") as place:
        kits = make_fleet(Path(place) / "kits", next(iter(chosen.values())), time_scale=TIME_SCALE)
        with running(kits_of(kits)):
            return {
                name: train(kits, each, run=folder / name, time_scale=TIME_SCALE, tries=1)
                for name, each in chosen.items()
            }


def compared(predicted: Run, measured: Run) -> dict[str, Any]:
    """Hold a measured run against its prediction."""
    own, real = float(predicted.epochs["time"][-1]), float(measured.epochs["time"][-1])
    draws = band(np.concatenate([run.timings[:, -1] for run in predicted.repeats]).astype(np.float64))
    accuracy = [run.epochs["accuracy"] for run in (predicted, measured)]
    return {
        "epochs": measured.summary["epochs"],
        "predicted_seconds": own,
        "predicted_mean_seconds": draws.mean,
        "predicted_low_seconds": draws.low,
        "predicted_high_seconds": draws.high,
        "measured_seconds": real,
        "measured_over_predicted": real / own,
        "measured_over_mean": real / draws.mean,
        "real_seconds": real * TIME_SCALE,
        "largest_epoch_gap_seconds": float(
            abs(np.diff(measured.epochs["time"]) - np.diff(predicted.epochs["time"])).max()
        ),
        "mean_overhead_real_seconds": (real - own) * TIME_SCALE / measured.summary["epochs"],
        "handovers": [run.summary["handovers"] for run in (predicted, measured)],
        "accuracy": float(accuracy[1][-1]),
        "largest_accuracy_gap": float(abs(accuracy[0] - accuracy[1]).max()),
    }


def report(results: dict[str, dict[str, Any]]) -> None:
    """Print what was found."""
    print(f"  seconds of the scenario; one of them takes {TIME_SCALE:g} real ones")
    print(
        f"  {'scheme':<14}{'epochs':>7}{'own draw':>10}{'mean':>9}{'95% of draws':>18}{'measured':>10}"
        f"{'/ own':>8}{'/ mean':>8}{'hand-overs':>12}{'accuracy':>10}{'gap':>9}{'ms an epoch':>13}"
    )
    for scheme, row in results.items():
        draws = f"{row['predicted_low_seconds']:.1f} to {row['predicted_high_seconds']:.1f}"
        moved = " and ".join(str(count) for count in row["handovers"])
        print(
            f"  {scheme:<14}{row['epochs']:>7}{row['predicted_seconds']:>10.1f}{row['predicted_mean_seconds']:>9.1f}"
            f"{draws:>18}{row['measured_seconds']:>10.1f}{row['measured_over_predicted']:>8.3f}"
            f"{row['measured_over_mean']:>8.3f}{moved:>12}{row['accuracy']:>10.4f}{row['largest_accuracy_gap']:>9.4f}"
            f"{1e3 * row['mean_overhead_real_seconds']:>13.0f}"
        )
    for scheme, row in results.items():
        show(f"{scheme}: measured beside predicted, own draw", abs(row["measured_over_predicted"] - 1), LIMIT)
        show(f"{scheme}: measured beside predicted, mean of draws", abs(row["measured_over_mean"] - 1))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
