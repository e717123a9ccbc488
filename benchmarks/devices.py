"""Wall time and memory of plans and of runs in virtual time on 25 to 10,000 devices, each in a process of its own.

``python -m benchmarks.devices plan N`` and ``python -m benchmarks.devices run SCHEME N [EPOCHS [FEATURES]]`` measure
one of them; ``python -m benchmarks devices`` measures all, and prints the table of docs/planning.md. Plans have 2,000
features and all schemes; runs have 60,000 rows of MNIST in all, 200 features and 50 epochs. Devices of ``secagg`` share
masks with 16 others at every size, so that the work of a device is the same.
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
    """Measure everything, and print wall time, CPU time and memory as a table, with how CPU time grows."""
    results: dict[str, Any] = {}
    print(f"| devices | {' | '.join(f'{size:,}' for size in SIZES)} |\n|---|{'---|' * len(SIZES)}")
    for arguments in (("plan",), *(("run", scheme) for scheme in SCHEMES)):
        cells, before = [], None
        for devices in SIZES:
            found = results[f"{' '.join(arguments)} {devices}"] = measured(*arguments, str(devices))
            print(f"{' '.join(arguments)} {devices}: {found}", file=sys.stderr, flush=True)
            cells.append(_cell(found, None if before is None else found.get("cpu", 0) / before))
            before = found.get("cpu")
        print(f"| `{' '.join(arguments)}` | {' | '.join(cells)} |", flush=True)
    return results


def _cell(found: dict[str, Any], growth: float | None) -> str:
    if "refused" in found:
        return str(found["refused"])
    more = "" if growth is None else f" ({growth:.1f} times)"
    return f"{found['seconds']:.1f} s, {found['cpu']:.1f} s of CPU{more}, {found['gigabytes']:.2f} GB"


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


def _run(scheme: str, devices: int, epochs: int = EPOCHS, features: int = FEATURES) -> dict[str, Any]:
    from codedfl.errors import ScenarioError
    from codedfl.runs import execute
    from codedfl.scenario import load

    many = {"features.dimension": features, "training.epochs": epochs, "training.targets": [], "timing.draws": 20}
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
    found = _plan(int(arguments[1])) if arguments[0] == "plan" else _run(arguments[1], *map(int, arguments[2:]))
    own = resource.getrusage(resource.RUSAGE_SELF)
    measures = {"seconds": time.perf_counter() - began, "cpu": own.ru_utime + own.ru_stime}
    print(json.dumps({**found, **measures, "gigabytes": own.ru_maxrss / 2**20}))


if __name__ == "__main__":
    _one(sys.argv[1:])
