"""One row a scheme and fleet, as plain values."""

from collections.abc import Mapping, Sequence
from typing import Any

from codedfl.errors import ScenarioError
from codedfl.runs import final_score, target_name
from codedfl.scenario import Scenario
from codedfl.schemes import nominal
from codedfl.schemes.private import with_release
from codedfl.security.attacks.null import Null
from codedfl.security.attempts import GRAM
from codedfl.security.verdicts import verdict_table
from codedfl.studies.compare.measuring import GIVEN, SORTED, Measured, Measurements

BENCHMARK = "minibatch"
"""Speed-ups are against this scheme, as in the paper."""
_COSTS = (
    *("time_to_accuracy", "time_to_accuracy_band", "timing_draws", "seconds_per_epoch", "bits_sent", "bits_per_device"),
    *("device_macs", "macs_per_device", "survives_losses", "leakage", "epsilon", "delta", "privacy"),
)
"""Keys that a row takes over from a summary."""
_WORST_FIRST = ("falls", "leaks", "holds")
_KEPT = ("verdict", "attack", "view", "holder", "assumption", "relative_error", "auc")


def rows_of(measurements: Measurements) -> list[dict[str, Any]]:
    """Return the rows, fleet by fleet; None stands where there is nothing to say."""
    found, rows = measurements.found, []
    for fleet in measurements.fleets:
        base = (found[GIVEN, fleet, BENCHMARK].summary or {}).get("time_to_accuracy", {})
        for name in measurements.names:
            row = _row(found[GIVEN, fleet, name], found.get((SORTED, fleet, name)), base)
            attack = strongest(measurements.outcomes[name]) if name in measurements.outcomes else None
            rows.append({"fleet": fleet, **row, "attack": attack})
    return rows


def _row(found: Measured, by_label: Measured | None, base: Mapping[str, float | None]) -> dict[str, Any]:
    scenario, summary = found.scenario, found.summary or {}
    times, targets = summary.get("time_to_accuracy"), scenario.training.targets
    speedups = None if times is None else {name: _ratio(base.get(name), own) for name, own in times.items()}
    return {
        "devices": scenario.fleet.size,
        "scheme": scenario.scheme,
        "solver": scenario.training.solver,
        "predicted": found.predicted,
        "refused": found.refused,
        "refused_sorted": by_label.refused if by_label else None,
        "epochs": summary.get("epochs"),
        "final_accuracy": summary.get("final_accuracy"),
        "final_r2": summary.get("final_r2"),
        "metric": summary.get("metric"),
        "accuracy_iid": final_score(summary) if scenario.partition.kind == "iid" else None,
        "accuracy_sorted": final_score(by_label.summary) if by_label and by_label.summary else None,
        "speedup": speedups[target_name(targets[-1])] if speedups else None,
        "speedups": speedups,
        **{key: summary.get(key) for key in _COSTS},
        **_statements(scenario),
        **({"verdict": summary["verdict"]} if summary else {}),
        "scenario_id": scenario.id(),
    }


def _statements(scenario: Scenario) -> dict[str, Any]:
    """Return what a scheme says of its secrecy; None if its options do not even tell which scheme it is."""
    try:
        scheme = with_release(scenario, nominal(scenario))
        return {"verdict": scheme.verdict, "secrecy": [cell.to_table() for cell in verdict_table(scheme)]}
    except ScenarioError:
        return {"verdict": None, "secrecy": None}


def _ratio(base: float | None, own: float | None) -> float | None:
    return None if base is None or own is None else base / own


def strongest(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the worst verdict, and the attack and the view that it comes from.

    What counts are attacks on a device's Gram matrix in the scheme as it is; what they get under a further assumption
    is under ``assuming``. The null attacker does not count.
    """
    grams = [outcome for outcome in outcomes if outcome["asset"] == GRAM and outcome["attack"] != Null.name]
    real, assumed = ([outcome for outcome in grams if bool(outcome["assumption"]) == more] for more in (False, True))
    return {**_worst(real), "tried": len(real), "assuming": _worst(assumed) if assumed else None}


def _worst(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if not outcomes:
        return dict.fromkeys(_KEPT)
    found = min(outcomes, key=lambda outcome: (_WORST_FIRST.index(outcome["verdict"]), _error(outcome)))
    return {key: found[key] for key in _KEPT}


def _error(outcome: Mapping[str, Any]) -> float:
    error = outcome["relative_error"]
    return float("inf") if error is None else float(error)
