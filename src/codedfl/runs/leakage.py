"""What each party of a run sees: by its scheme, and by the sums before and after the training."""

from typing import Any

from codedfl import schemes
from codedfl.privacy.promise import KNOWN_SEED
from codedfl.runs.sums import sum_scenario
from codedfl.scenario import Scenario
from codedfl.schemes.secrecy import CLEAR


def leakage_table(scenario: Scenario, scheme: schemes.Scheme[Any]) -> dict[str, str]:
    """Return one sentence per party.

    Sums of an unencrypted scheme are seen by the server device by device (``codedfl.runs.sums.sum_scenario``).
    """
    found = scheme.leakage().to_table()
    if (release := scheme.public.release) is not None:
        found["server"] += f"; all of it with noise: {release.statement}"
        alone = KNOWN_SEED if release.known_seed else release.promise(1)
        found["devices"] += f"; all of it with noise, of which each knows its own: {alone}"
    several, held_out = len(scenario.ridges) > 1, scenario.data.held_out > 0
    if not (scenario.prepared or several or held_out):
        return found
    clear = schemes.nominal(sum_scenario(scenario)).verdict == CLEAR
    whose = "of each device, in clear," if clear else "over all devices"
    server, devices, bounded = [], [], "each column"
    if scenario.prepared or several:
        kernel = " and of the kernel features" if scenario.features.kind == "rbf" and scenario.intercept else ""
        server.append(f"sums {whose} of every column, of its squares and of the targets{kernel}")
        devices.append("the means and variances of columns and targets over all devices")
    if several:
        server.append(f"for each fold, what the training reveals without its rows, and sums {whose} of errors on them")
        devices.append("the models of each fold")
        bounded = "each column and the errors of each model"
    server.append(f"from each device its number of rows and powers of two that bound {bounded}")
    devices.append("the largest of the powers of two by which devices bound each column")
    found["server"] += f"; before the training: {_listed(server)}"
    found["devices"] += f"; before the training: {_listed(devices)}"
    if held_out:
        found["server"] += (
            f"; after the training, of the held-out rows: sums {whose} of counts by class and predicted class, or of "
            "targets, errors and their squares, and from each device powers of two that bound targets and errors"
        )
    return found


def _listed(parts: list[str]) -> str:
    return ", and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
