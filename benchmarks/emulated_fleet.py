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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.measure import possible, show
from benchmarks.prediction_figure import Pair, measured_against_predicted
from codedfl.deploy.flare.kits import Kits, write_site
from codedfl.deploy.flare.names import need_flare
from codedfl.deploy.flare.processes import kits_of, running
from codedfl.deploy.flare.sites import read_site
from codedfl.deploy.server.fleet import make_fleet, train
from codedfl.progress import silent
from codedfl.report.figures import save
from codedfl.runs import Run, execute, model_difference
from codedfl.scenario import Scenario, load
from codedfl.schemes import SCHEMES
from codedfl.task.shared import SharedProblem
from codedfl.training.timing import band

FOLDER = Path("out/emulated-fleet")
LIMIT = 0.15
CLASSES = (8e6, 4e6, 2e6)
"""Multiplications a second of two devices each; replies take about 5, 10 and 20 seconds, and setup."""
EPOCHS = 15
SCALES = {"conventional": 0.12, "drop-slowest": 0.15, "code-based": 0.2, "sealed": 0.3, "sealed-coded": 0.6}
"""Real seconds for each of the scenario's, so that every training takes about a minute: the quicker a scheme, the more
what FLARE and computing take would count beside what is emulated."""
SOLVERS = {"drop-slowest": "nesterov"}
"""Conjugate gradients need gradients of all data, which not every scheme gives."""
OPTIONS: dict[str, dict[str, Any]] = {"drop-slowest": {"schemes.drop-slowest.wait_for": 4}}


def scenario(scheme: str) -> Scenario:
    """Return the paper's task and links, with a fleet that fits this machine."""
    common = {
        "scheme": scheme,
        "name": "emulated-fleet",
        "fleet.devices": [{"count": 2, "mac_rate": rate} for rate in CLASSES],
        "training.epochs": EPOCHS,
        "training.solver": SOLVERS.get(scheme, "conjugate-gradients"),
    }
    return load("paper").with_settings(common | OPTIONS.get(scheme, {}))


def main(folder: Path = FOLDER) -> dict[str, Any]:
    """Predict all, then measure all with the same processes."""
    if not possible(need_flare):
        return {}
    return {"classes": CLASSES, **measured_beside_predicted(scenario, SCALES, folder)}


def measured_beside_predicted(
    scenario: Callable[[str], Scenario], scales: Mapping[str, float], folder: Path
) -> dict[str, Any]:
    """Predict and measure schemes in their time scales, print what was found, and draw it."""
    chosen = {scheme: scenario(scheme) for scheme in scales}
    for name in ("predicted", "measured"):
        shutil.rmtree(folder / name, ignore_errors=True)
    began = time.monotonic()
    predicted = predictions(chosen, folder / "predicted")
    show("predicting all", time.monotonic() - began, unit="s")
    real = measurements(chosen, scales, folder / "measured")
    show("predicting and measuring all", time.monotonic() - began, unit="s")
    results = {scheme: compared(predicted[scheme], real[scheme], scales[scheme]) for scheme in scales}
    report(results, LIMIT)
    pairs = [Pair(scheme, predicted[scheme], real[scheme]) for scheme in scales]
    save(measured_against_predicted(pairs, limit=LIMIT), folder / "prediction.png")
    print(f"  figure: {folder / 'prediction.png'}")
    return results


def predictions(chosen: dict[str, Scenario], folder: Path) -> dict[str, Run]:
    """Run all in virtual time, with one thread as the processes have, so that models can be the same."""
    shared = SharedProblem(silent)
    with threadpool_limits(1):
        return {
            name: execute(each, folder / name, problem=shared.get(each), summed=False) for name, each in chosen.items()
        }


def measurements(chosen: dict[str, Scenario], scales: Mapping[str, float], folder: Path) -> dict[str, Run]:
    """Run all on processes of this machine, which stay while one training follows the other."""
    with tempfile.TemporaryDirectory(prefix="codedfl-bench-") as place:
        kits = make_fleet(Path(place) / "kits", next(iter(chosen.values())), schemes=tuple(SCHEMES))
        with running(kits_of(kits)):
            return {name: measured(kits, each, scales[name], folder / name) for name, each in chosen.items()}


def measured(kits: Kits, wanted: Scenario, scale: float, place: Path) -> Run:
    """Train on sites that emulate in a time scale."""
    for site in kits.sites:
        kit = kits.device(site)
        settings = {name: value for name, value in read_site(kit).items() if name != "folder"}
        write_site(kit, settings | {"emulation": {"time_scale": scale}})
    return train(kits, wanted, run=place, time_scale=scale, tries=1)


def compared(predicted: Run, real: Run, scale: float) -> dict[str, Any]:
    """Hold a measured run against its prediction."""
    own, taken = (float(run.epochs["time"][-1]) for run in (predicted, real))
    draws = band(np.concatenate([run.timings[:, -1] for run in predicted.repeats]).astype(np.float64))
    epochs = real.summary["epochs"]
    return {
        "time_scale": scale,
        "epochs": epochs,
        "predicted_seconds": own,
        "predicted_mean_seconds": draws.mean,
        "predicted_low_seconds": draws.low,
        "predicted_high_seconds": draws.high,
        "measured_seconds": taken,
        "measured_over_predicted": taken / own,
        "measured_over_mean": taken / draws.mean,
        "real_seconds": taken * scale,
        "overhead_seconds_an_epoch": (taken - own) * scale / epochs,
        "handovers": [run.summary["handovers"] for run in (predicted, real)],
        "same_parcels": bool(np.array_equal(predicted.epochs["d2d_bits"], real.epochs["d2d_bits"])),
        "accuracy": float(real.epochs["accuracy"][-1]),
        "model_difference": model_difference(real, predicted),
        "largest_accuracy_gap": float(abs(predicted.epochs["accuracy"] - real.epochs["accuracy"]).max()),
    }


def report(results: dict[str, dict[str, Any]], limit: float) -> None:
    """Print what was found: seconds of the scenario, but for those that are said to be real."""
    columns = ("epochs", "own draw", "mean", "95% of draws", "measured", "/ own", "/ mean", "hand-overs", "accuracy")
    print(
        f"  {'scheme':<14}"
        + "".join(f"{name:>16}" for name in (*columns, "and gap", "of the model", "real s", "ms an epoch"))
    )
    for scheme, row in results.items():
        cells = (
            row["epochs"],
            f"{row['predicted_seconds']:.1f}",
            f"{row['predicted_mean_seconds']:.1f}",
            f"{row['predicted_low_seconds']:.0f} to {row['predicted_high_seconds']:.0f}",
            f"{row['measured_seconds']:.1f}",
            f"{row['measured_over_predicted']:.3f}",
            f"{row['measured_over_mean']:.3f}",
            f"{' and '.join(map(str, row['handovers']))}{', same' if row['same_parcels'] else ''}",
            f"{row['accuracy']:.4f}",
            f"{row['largest_accuracy_gap']:.4f}",
            f"{row['model_difference']:.1e}",
            f"{row['real_seconds']:.1f}",
            f"{1e3 * row['overhead_seconds_an_epoch']:.0f}",
        )
        print(f"  {scheme:<14}" + "".join(f"{cell:>16}" for cell in cells))
    for scheme, row in results.items():
        show(f"{scheme}: measured beside predicted, own draw", abs(row["measured_over_predicted"] - 1), limit)
        show(f"{scheme}: measured beside predicted, mean of draws", abs(row["measured_over_mean"] - 1))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
