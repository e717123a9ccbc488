"""Prediction against reality with links that are really slow: namespaces and token buckets instead of sleeps.

    python -m benchmarks.shaped_links

A server and six devices run as FLARE processes in network namespaces of their own. Links have the bit rates of the
scenario, divided by the time scale, in the kernel; computing is emulated as in ``benchmarks.emulated_fleet``. The
scenario has no losses, for what a real link does with them is not what the delay model says: TCP sends single packets
again, and slows down. Packet overhead is that of TCP, TLS and FLARE; the delay model says 10%. Parcels between devices
go by way of the server, as FLARE has it. Without FLARE or the right to make namespaces nothing is measured.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.emulated_fleet import LIMIT, compared, report
from benchmarks.measure import possible, show
from codedfl.deploy.flare.names import need_flare
from codedfl.deploy.flare.namespaces import need_namespaces
from codedfl.deploy.server.fleet import local_fleet, train
from codedfl.runs import Run, execute
from codedfl.scenario import Scenario, load

EPOCHS = 12
CLASSES = [
    {"count": 2, "mac_rate": 32e6, "down_rate": 2e6, "up_rate": 1e6, "d2d_rate": 1e6},
    {"count": 2, "mac_rate": 16e6, "down_rate": 1e6, "up_rate": 0.5e6, "d2d_rate": 0.5e6},
    {"count": 2, "mac_rate": 8e6, "down_rate": 0.5e6, "up_rate": 0.25e6, "d2d_rate": 0.25e6},
]
"""A model takes from half a second to three seconds up, and computing from one to five seconds and setup."""
SCALES = {"conventional": 1.0, "sealed": 0.25}
OPTIONS: dict[str, dict[str, Any]] = {"sealed": {"schemes.sealed.parallel_reception": True}}


def scenario(scheme: str) -> Scenario:
    """Return the paper's task with slow links without losses."""
    common = {
        "scheme": scheme,
        "name": "shaped-links",
        "fleet.devices": CLASSES,
        "links.loss": 0.0,
        "training.epochs": EPOCHS,
        "training.solver": "conjugate-gradients",
    }
    return load("paper").with_settings(common | OPTIONS.get(scheme, {}))


def main() -> dict[str, Any]:
    """Predict and measure one scheme after the other."""
    if not possible(need_flare, need_namespaces):
        return {}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="codedfl-bench-") as folder:
        results = {scheme: one(scheme, Path(folder) / scheme) for scheme in SCALES}
    show("predicting and measuring all", time.monotonic() - began, unit="s")
    report(results, LIMIT)
    return results


def one(scheme: str, folder: Path) -> dict[str, Any]:
    """Predict a scheme, and measure it."""
    wanted = scenario(scheme)
    with threadpool_limits(1):
        predicted = execute(wanted, folder / "predicted")
    return compared(predicted, measured(wanted, folder), SCALES[scheme])


def measured(wanted: Scenario, folder: Path) -> Run:
    """Train in namespaces behind slow links."""
    scale, run = SCALES[wanted.scheme], folder / "measured"
    with local_fleet(wanted, run, time_scale=scale, kernel_links=True) as kits:
        return train(kits, wanted, run=run, time_scale=scale, tries=1, report=print)


if __name__ == "__main__":
    main()
