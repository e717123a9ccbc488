"""Carrying an epoch's bytes on NVIDIA FLARE: our round trip against FLARE's bare auxiliary messages, in one run.

    python -m benchmarks.flare

A server and five devices run as processes of this machine, with mutual TLS. Each round sends as many bytes down and
up as a model of 2000 x 10 in single precision takes, to and from all devices; the two ways take turns. The parcel is
one that a device sends to another, through the server and encrypted past it. Without FLARE nothing is measured.
"""

import tempfile
import time
from itertools import pairwise
from pathlib import Path

from benchmarks.measure import show
from codedfl.engines.flare.jobs import Admin, Job, run_job
from codedfl.engines.flare.kits import make_kits
from codedfl.engines.flare.names import need_flare, site_names
from codedfl.engines.flare.processes import kits_of, running
from codedfl.errors import MissingExtraError

DEVICES = 5
MODEL = 2000 * 10 * 4
ROUNDS = 200
PARCEL = 32_000_000
LIMIT = 1.1


def main() -> dict[str, float]:
    """Deploy, measure, and take everything down again."""
    try:
        need_flare()
    except MissingExtraError as error:
        print(f"  not measured: {error}")
        return {}
    sites = site_names(DEVICES)
    arguments = {"rounds": ROUNDS, "down": MODEL, "up": MODEL, "forward": PARCEL}
    job = Job("measure", "codedfl.engines.flare.echo:against_bare", sites, arguments)
    with tempfile.TemporaryDirectory(prefix="codedfl-bench-") as folder:
        times = {"began": time.monotonic()}
        kits = make_kits(Path(folder) / "kits", sites, settings={site: {"bare": True} for site in sites})
        times["kits"] = time.monotonic()
        with running(kits_of(kits)), Admin(kits) as admin:
            while not admin.sites() >= set(sites):
                time.sleep(0.1)
            times["connected"] = time.monotonic()
            measured = run_job(admin, job, tries=1)
            times["done"] = time.monotonic()
        times["ended"] = time.monotonic()
    results = {key: float(value) for key, value in measured.items() if key.endswith("seconds")}
    results["carrier_over_bare"] = results["carrier_seconds"] / results["bare_seconds"]
    stages = list(times)
    results |= {f"{late}_after": times[late] - times[early] for early, late in pairwise(stages)}
    report(results)
    return results


def report(results: dict[str, float]) -> None:
    """Print what was measured."""
    epoch = f"{DEVICES} devices, {MODEL / 1000:g} kB down and up each"
    show(f"round trip, {epoch}: bare auxiliary messages, median", 1e3 * results["bare_seconds"], unit="ms")
    show(f"round trip, {epoch}: carrier, median", 1e3 * results["carrier_seconds"], unit="ms")
    show("carrier / bare auxiliary messages", results["carrier_over_bare"], LIMIT)
    show(f"parcel of {PARCEL / 1e6:g} MB from device to device", results["forward_seconds"], unit="s")
    show("making the start-up kits", results["kits_after"], unit="s")
    show("from starting processes until all are connected", results["connected_after"], unit="s")
    show("the whole job: processes up, rounds, processes down", results["done_after"], unit="s")
    show("ending all processes", results["ended_after"], unit="s")


if __name__ == "__main__":
    main()
