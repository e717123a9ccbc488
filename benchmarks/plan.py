"""What ``codedfl plan`` predicts at full size, against trainings on the real data: time and bits, and what it takes."""

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import show
from codedfl.runs import execute
from codedfl.scenario import Scenario, load
from codedfl.schemes import SCHEMES
from codedfl.studies.plan import Shapes, predict, probe, spent_by_device
from codedfl.task import Problem
from codedfl.training.costs import LINKS

EPOCHS = {"gradient-descent": 30, "conjugate-gradients": 6}
NAMES = ("conventional", "minibatch", "code-based", "sealed", "sealed-coded")
DRAWS = 100
LIMIT = 0.1
"""How far a prediction may be off."""


def main() -> dict[str, Any]:
    """Predict, then train, every scheme with every solver it serves."""
    paper = load("paper").with_settings({"timing.draws": DRAWS, "training.targets": []})
    hollow = Shapes.of_data(paper).hollow(paper)
    problem = Problem.build(paper)
    results = {}
    for name in NAMES:
        began = time.perf_counter()
        chosen = paper.with_settings({"scheme": name})
        costs = probe(chosen, hollow)
        predicted = predict(costs, chosen, epochs=max(EPOCHS.values()), draws=DRAWS)
        show(f"{name}: prediction", time.perf_counter() - began, unit="s")
        for solver, epochs in EPOCHS.items():
            if solver == "conjugate-gradients" and not SCHEMES[name].exact:
                continue
            wanted = chosen.with_settings({"training.solver": solver, "training.epochs": epochs})
            found = _against(wanted, problem, predicted[:, epochs - 1])
            spent = spent_by_device(costs, wanted, epochs)
            bits = {link: int(spent[link].sum()) for link in LINKS}
            found["same_bits"] = bits == found.pop("bits_sent")
            show(f"{name}, {solver}: |predicted / simulated - 1|, mean", abs(found["ratio"] - 1), LIMIT)
            show(f"{name}, {solver}: the same in the run's own draw", abs(found["ratio_of_own_draw"] - 1), LIMIT)
            show(f"{name}, {solver}: predicted", found["predicted"], unit="s")
            show(f"{name}, {solver}: simulated", found["simulated"], unit="s")
            show(f"{name}, {solver}: links with other bits than predicted", float(not found["same_bits"]), 0)
            results[f"{name}, {solver}"] = found
    return results


def _against(wanted: Scenario, problem: Problem, predicted: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run = execute(wanted, Path(folder) / "run", problem=lambda: problem)
    simulated = float(run.timings[:, -1].mean())
    return {
        "predicted": float(predicted.mean()),
        "simulated": simulated,
        "ratio": float(predicted.mean()) / simulated,
        "ratio_of_own_draw": float(predicted[0]) / run.summary["virtual_seconds"],
        "bits_sent": run.summary["bits_sent"],
    }


if __name__ == "__main__":
    main()
