"""What a scheme takes on a fleet that it was not trained on.

A scheme that gives the gradient of all data in every epoch, whoever replies first, trains the same model on every
fleet and partition, up to rounding. So its accuracies are those of a run on another fleet with the same solver; its
times, bits and multiplications on this fleet follow from shapes (``codedfl.studies.plan``).
"""

from typing import Any

from codedfl import schemes
from codedfl.runs import Run, times_to_targets
from codedfl.runs.sums import leakage_table
from codedfl.scenario import Scenario
from codedfl.studies.plan import predict, probe, spent_by_device
from codedfl.task import Problem
from codedfl.training.costs import LINKS, mean_and_largest


def predictable(scenario: Scenario) -> bool:
    """Tell whether the model depends neither on the fleet nor on the partition; that of noisy sums depends on both."""
    scheme = schemes.nominal(scenario)
    return scheme.exact and not (scheme.follows_timing or scenario.fleet.last_epochs or scenario.private)


def predicted_summary(scenario: Scenario, problem: Problem, known: Run) -> dict[str, Any]:
    """Return what the summary of a run would say, given hollow data and a run of the scheme on another fleet."""
    costs = probe(scenario, problem)
    scores, epochs = known.epochs["accuracy"], int(known.summary["epochs"])
    seconds = predict(costs, scenario, epochs=epochs, draws=scenario.timing.draws)
    means, bands = times_to_targets(scenario.training.targets, [(scores, seconds)])
    spent = spent_by_device(costs, scenario, epochs)
    return {
        "epochs": epochs,
        **{name: known.summary[name] for name in ("final_accuracy", "final_r2", "metric")},
        "time_to_accuracy": means,
        "time_to_accuracy_band": bands,
        "timing_draws": len(seconds),
        "seconds_per_epoch": float(seconds[:, -1].mean() / epochs),
        "bits_sent": {link: int(spent[link].sum()) for link in LINKS},
        "device_macs": int(spent["macs"].sum()),
        "bits_per_device": {link: mean_and_largest(spent[link]) for link in LINKS},
        "macs_per_device": mean_and_largest(spent["macs"]),
        "survives_losses": costs.scheme.survives_losses,
        "leakage": leakage_table(scenario, costs.scheme),
        "verdict": costs.scheme.verdict,
        **dict.fromkeys(("epsilon", "delta", "privacy")),
        "scenario_id": scenario.id(),
    }
