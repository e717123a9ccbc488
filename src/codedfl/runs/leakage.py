"""What each party of a run sees: by its scheme, and by the sums before and after the training."""

from typing import Any

from codedfl import schemes
from codedfl.runs.sums import sum_scenario
from codedfl.scenario import Scenario


def leakage_table(scenario: Scenario, scheme: schemes.Scheme[Any]) -> dict[str, str]:
    """Return one sentence per party.

    Sums of an unencrypted scheme are seen by the server device by device (``codedfl.runs.sums.sum_scenario``).
    """
    found = scheme.leakage().to_table()
    several, held_out = len(scenario.ridges) > 1, scenario.data.held_out > 0
    if not (scenario.prepared or several or held_out):
        return found
    clear = schemes.nominal(sum_scenario(scenario)).verdict == "not encrypted"
    whose = "of each device, in clear," if clear else "over all devices"
    before, after, prepared = [], [], []
    if scenario.prepared:
        kernel = " and of the kernel features" if scenario.features.kind == "rbf" and scenario.intercept else ""
        before.append(f"sums {whose} of every column, of its squares and of the targets{kernel}")
        prepared.append("the means and variances of columns and targets over all devices")
    if several:
        before.append(f"for each fold, the same training and sums {whose} without its rows, and of errors on its rows")
        prepared.append("the models of every fold")
    before.append("from each device its number of rows and a power of two that bounds each column")
    prepared.append("the largest of the powers of two that bound each column on a device")
    if held_out:
        after.append(f"sums {whose} that count the held-out rows by class and predicted class, or of targets, errors")
        after.append("and their squares, and from each device powers of two that bound its targets and errors")
    found["server"] += f"; before the training: {', and '.join(before)}"
    found["devices"] += f"; before the training: {', and '.join(prepared)}"
    if held_out:
        found["server"] += f"; after the training: {' '.join(after)}"
    return found
