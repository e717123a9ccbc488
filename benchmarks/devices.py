"""Wall time and memory of plans and of runs in virtual time on 25 to 10,000 devices, each in a process of its own.

``python -m benchmarks.devices plan N`` and ``python -m benchmarks.devices run SCHEME N [EPOCHS]`` measure one of them.
Plans have 2,000 features and all schemes; runs have 60,000 rows of MNIST in all, 200 features and 50 epochs. Devices of
``secagg`` share masks with 16 others at every size, so that the work of a device is the same.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SIZES = (25, 100, 1000, 10_000)
SCHEMES = ("conventional", "sealed-coded", "secagg")
FEATURES, EPOCHS, NEIGHBOURS = 200, 50, 16


def main() -> dict[str, Any]:
    """Measure everything, and show how time and memory grow."""
    results: dict[str, Any] = {}
    for arguments in (("plan",), *(("run", scheme) for scheme in SCHEMES)):
        before: dict[str, Any] | None = None
        for devices in SIZES:
            found = results[f"{' '.join(arguments)} {devices}"] = measured(*arguments, str(devices))
            print(_line(" ".join(arguments), devices, found, before), flush=True)
            before = None if "refused" in found else found | {"devices": devices}
    return results


def _line(what: str, devices: int, found: dict[str, Any], before: dict[str, Any] | None) -> str:
    if "refused" in found:
        return f"{what}, {devices} devices: {found['refused']}"
    line = (
        f"{what}, {devices} devices: {found['seconds']:.1f} s, {found['cpu']:.1f} s of CPU, {found['gigabytes']:.2f} GB"
    )
    if before is not None:
        more, time_more = devices / before["devices"], found["cpu"] / before["cpu"]
        line += f"; {time_more:.1f} times the CPU for {more:.0f} times the devices"
    return line


def measured(*arguments: str) -> dict[str, Any]:
    """Measure one of them in a new process."""
    command = [sys.executable, "-m", "benchmarks.devices", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _plan(devices: int) -> dict[str, Any]:
    from codedfl.scenario import load
    from codedfl.studies.plan import Shapes, plan

    scenario = load("paper").with_devices(devices)
    made = plan(scenario, Shapes.told(scenario, samples=60_000, outputs=10))
    refused = [offer.scheme.name for offer in made.offers if offer.refused is not None]
    recommended = None if made.recommended is None else made.recommended.scheme.name
    return {"draws": made.draws, "not_planned": refused, "recommended": recommended}


def _run(scheme: str, devices: int, epochs: int) -> dict[str, Any]:
    from codedfl.errors import ScenarioError
    from codedfl.runs import execute
    from codedfl.scenario import load

    many = {"features.dimension": FEATURES, "training.epochs": epochs, "training.targets": [], "timing.draws": 20}
    own = {"schemes.secagg.neighbours": NEIGHBOURS} if scheme == "secagg" else {}
    scenario = load("paper").with_devices(devices).with_settings({"scheme": scheme, **many, **own})
    with tempfile.TemporaryDirectory() as folder:
        try:
            summary = execute(scenario, Path(folder) / "run").summary
        except ScenarioError as error:
            return {"refused": str(error)}
    return {"epochs": epochs, "virtual_seconds": summary["virtual_seconds"], "accuracy": summary["final_accuracy"]}


def _one(arguments: list[str]) -> None:
    began = time.perf_counter()
    if arguments[0] == "plan":
        found = _plan(int(arguments[1]))
    else:
        found = _run(arguments[1], int(arguments[2]), int(arguments[3]) if len(arguments) > 3 else EPOCHS)
    own = resource.getrusage(resource.RUSAGE_SELF)
    measures = {"seconds": time.perf_counter() - began, "cpu": own.ru_utime + own.ru_stime}
    print(json.dumps({**found, **measures, "gigabytes": own.ru_maxrss / 2**20}))


if __name__ == "__main__":
    _one(sys.argv[1:])
