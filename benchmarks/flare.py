"""An epoch on NVIDIA FLARE: our round trips against FLARE's bare auxiliary messages, on one deployment.

    python -m benchmarks.flare

A server and five devices run as processes of this machine, with mutual TLS. Each round sends as many bytes down and
up as a model of 2000 x 10 in single precision takes, to and from all devices; carrier and bare messages take turns.
Then the same processes train such a model with the scheme ``conventional``: its epochs carry as many bytes, and
compute. The parcel is one that a device sends to another, through the server and encrypted past it. Without FLARE
nothing is measured.
"""

import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet

from benchmarks.measure import possible, show
from codedfl.deploy.flare.jobs import Admin, Job, run_job
from codedfl.deploy.flare.kits import Kits, make_kits, write_site
from codedfl.deploy.flare.names import need_flare, site_names
from codedfl.deploy.flare.processes import kits_of, running
from codedfl.deploy.protocol.terms import terms_of
from codedfl.scenario import Scenario

DEVICES = 5
FEATURES, CLASSES = 2000, 10
MODEL = FEATURES * CLASSES * 4
ROUNDS = 200
PARCEL = 32_000_000
ECHO = {"host": "codedfl.testing.echo:host", "bare": True}
LIMIT = 1.1
EPOCH_LIMIT = 1.5


def main() -> dict[str, float]:
    """Deploy, measure, and take everything down again."""
    if not possible(need_flare):
        return {}
    sites = site_names(DEVICES)
    with tempfile.TemporaryDirectory(prefix="codedfl-bench-") as folder:
        times = {"began": time.monotonic()}
        kits = make_kits(Path(folder) / "kits", sites, settings=dict.fromkeys(sites, ECHO))
        times["kits"] = time.monotonic()
        with running(kits_of(kits)), Admin(kits) as admin:
            while not admin.sites() >= set(sites):
                time.sleep(0.1)
            times["connected"] = time.monotonic()
            results = carrying(kits, admin)
            times["job"] = time.monotonic()
            results |= training(kits, admin)
            times["training"] = time.monotonic()
        times["stop"] = time.monotonic()
    results |= {f"{late}_takes": times[late] - times[early] for early, late in pairwise(times)}
    results["carrier_over_bare"] = results["carrier_seconds"] / results["bare_seconds"]
    results["epoch_over_bare"] = results["epoch_seconds"] / results["bare_seconds"]
    report(results)
    return results


def carrying(kits: Kits, admin: Admin) -> dict[str, float]:
    """Rounds of nothing but bytes, and a parcel."""
    arguments = {"rounds": ROUNDS, "down": MODEL, "up": MODEL, "forward": PARCEL}
    measured = run_job(admin, Job("carry", "codedfl.testing.echo:against_bare", kits.sites, arguments), tries=1)
    return {key: float(value) for key, value in measured.items() if key.endswith(("seconds", "bytes"))}


def training(kits: Kits, admin: Admin) -> dict[str, float]:
    """Epochs of a real training by the same processes."""
    scenario = Scenario.from_table(
        {
            "scheme": "conventional",
            "data": {"source": "digits"},
            "features": {"kind": "rbf", "dimension": FEATURES, "gamma": 0.02},
            "task": {"precision": "float32"},
            "fleet": {"devices": [{"count": len(kits.sites), "mac_rate": 25e6}]},
            "training": {"epochs": ROUNDS, "learning_rate": 2.0},
        }
    )
    host = "codedfl.deploy.site.configuration:make_host"
    agreement = {"cohort": list(kits.sites), "terms": [terms_of(scenario).digest]}
    for part, site in enumerate(kits.sites, start=1):
        data = {"source": "digits", "part": part, "parts": len(kits.sites)}
        write_site(kits.device(site), {"name": site, "host": host, "data": data, "agreement": agreement})
    job = Job("train", "codedfl.deploy.server.deployment:serve", kits.sites, {"scenario": scenario.to_toml()})
    run = run_job(admin, job, tries=1)["run"]
    ended = pyarrow.parquet.read_table(Path(run) / "epochs.parquet")["time"].to_pylist()
    taken = [late - early for early, late in pairwise(ended)]
    return {"epoch_seconds": statistics.median(taken), "epoch_best_seconds": min(taken)}


def report(results: dict[str, float]) -> None:
    """Print what was measured."""
    print(f"  {DEVICES} devices, {MODEL / 1000:g} kB down and up each; medians of {ROUNDS}")
    show("round trip of bare auxiliary messages", 1e3 * results["bare_seconds"], unit="ms")
    show("round trip of the carrier", 1e3 * results["carrier_seconds"], unit="ms")
    show("epoch of a training", 1e3 * results["epoch_seconds"], unit="ms")
    show("carrier / bare auxiliary messages", results["carrier_over_bare"], LIMIT)
    show("epoch / bare auxiliary messages", results["epoch_over_bare"], EPOCH_LIMIT)
    show(f"parcel of {PARCEL / 1e6:g} MB from device to device", results["forward_seconds"], unit="s")
    show(f"memory that the server took for {2 * ROUNDS} rounds", results["grown_bytes"] / 1e6, unit="MB")
    show("making the start-up kits", results["kits_takes"], unit="s")
    show("from starting processes until all are connected", results["connected_takes"], unit="s")
    show("the first job: processes up, rounds, processes down", results["job_takes"], unit="s")
    show("ending all processes", results["stop_takes"], unit="s")


if __name__ == "__main__":
    main()
