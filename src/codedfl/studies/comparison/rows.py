"""One row a scheme and fleet, as plain values."""

from collections.abc import Mapping, Sequence
from typing import Any

from codedfl.schemes import SCHEMES
from codedfl.studies.compare import BENCHMARK, row_of
from codedfl.studies.comparison.measuring import IID, SORTED, Field, Found

__all__ = ["KEYS", "rows_of"]

KEYS = (
    "fleet",
    "devices",
    "scheme",
    "solver",
    "predicted",
    "refused",
    "refused_sorted",
    "epochs",
    "final_accuracy",
    "metric",
    "accuracy_iid",
    "accuracy_sorted",
    "time_to_accuracy",
    "time_to_accuracy_band",
    "timing_draws",
    "speedup",
    "speedups",
    "seconds_per_epoch",
    "bits_sent",
    "bits_per_device",
    "device_macs",
    "macs_per_device",
    "survives_losses",
    "leakage",
    "verdict",
    "attack",
    "scenario_id",
)
"""What every row has; None where there is nothing to say."""


def rows_of(field: Field, fleets: Sequence[str], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows, fleet by fleet."""
    rows = []
    for fleet in fleets:
        summary = field.found[IID, fleet, BENCHMARK].summary
        base = {} if summary is None else summary["time_to_accuracy"]
        for name in names:
            iid, label_sorted = (field.found[partition, fleet, name] for partition in (IID, SORTED))
            rows.append(_row(fleet, iid, label_sorted, base, field.attacked.get(name)))
    return rows


def _row(
    fleet: str, iid: Found, label_sorted: Found, base: Mapping[str, float | None], attack: Mapping[str, Any] | None
) -> dict[str, Any]:
    row = dict.fromkeys(KEYS) | {
        "fleet": fleet,
        "devices": iid.scenario.fleet.size,
        "scheme": iid.scenario.scheme,
        "solver": iid.scenario.training.solver,
        "predicted": iid.predicted,
        "refused": iid.refused,
        "refused_sorted": label_sorted.refused,
        "verdict": SCHEMES[iid.scenario.scheme].verdict,
        "attack": None if attack is None else dict(attack),
        "scenario_id": iid.scenario.id(),
    }
    if label_sorted.summary is not None:
        row["accuracy_sorted"] = label_sorted.summary["final_accuracy"]
    if iid.summary is None:
        return row
    more = {key: iid.summary[key] for key in ("metric", "timing_draws", "bits_per_device", "macs_per_device")}
    return row | row_of(iid.scenario, iid.summary, base) | more | {"accuracy_iid": iid.summary["final_accuracy"]}
