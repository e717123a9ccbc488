"""The paper's scheme on sites, where the server alone has the private key: the model, and what is sent to make it so.

    python -m benchmarks.server_keys [FOLDER]

The preset `paper-92` at full size: 25 sites as threads of one process, which exchange with the server and each other
the bytes of a deployment. The server draws fresh keys; a site is told the public key and, under its own key, the
support for its one hand-over. Sites emulate the paper's devices a hundred times faster; stragglers hand over and
forward. Compared are the models of virtual time, with the same keys and with those of the scenario's seed, and of
plaintext. Two keys round differently, each by what float32 under this cipher costs.
It needs 8 GB of memory.
"""

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.measure import show
from codedfl.cipher.mceliece.private_key import KeyPair, generate_keys
from codedfl.deploy.flare.names import site_names
from codedfl.deploy.protocol.envelopes import DeviceKey
from codedfl.deploy.server.deployment import DeploymentOptions, deploy
from codedfl.deploy.site.emulation import Emulation
from codedfl.deploy.site.host import DeviceHost
from codedfl.deploy.site.session import LocalData, Site
from codedfl.progress import silent
from codedfl.runs import Run, execute, model_difference
from codedfl.scenario import Scenario, load
from codedfl.schemes.sharing import code_based
from codedfl.task import Problem
from codedfl.testing.in_process import InProcessCarrier, any_terms

EPOCHS = 60
SCALE = 0.01
LIMIT = 1e-6
"""Of the difference between models, relative to the norm."""


class Traffic:
    """Number and bytes of messages by kind, headers included."""

    def __init__(self, carrier: InProcessCarrier) -> None:
        self.count: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        carrier.faults.question = lambda site, tag, payload: self._note(_kind(payload), payload)
        carrier.faults.reply = lambda site, tag, payload: [self._note("answers", payload)]
        carrier.faults.parcel = self._parcel
        self.forwards = 0
        """Parcels of devices that had taken in others."""
        self._recipients: set[str] = set()

    def _parcel(self, sender: str, recipient: str, payload: bytes) -> bytes:
        self.forwards += sender in self._recipients
        self._recipients.add(recipient)
        return self._note("parcels", payload)

    def _note(self, kind: str, payload: bytes) -> bytes:
        self.count[kind] += 1
        self.bytes[kind] += len(payload)
        return payload


def _kind(payload: bytes) -> str:
    """Return the kind of a frame, from its header alone."""
    length = int.from_bytes(payload[4:8], "little")
    return str(json.loads(payload[8 : 8 + length])["kind"])


def scenario(scheme: str = "code-based", epochs: int = EPOCHS) -> Scenario:
    """Return the first epochs of the paper's experiment."""
    timing = {"timing.repeats": 1, "timing.draws": 2}  # models do not depend on them
    return load("paper-92").with_settings({"scheme": scheme, "training.epochs": epochs, **timing})


def on_sites(wanted: Scenario, problem: Problem, path: Path) -> tuple[Run, Traffic]:
    """Train on sites in this process that emulate the scenario's devices."""
    sites, carrier = site_names(len(problem.shards)), InProcessCarrier()
    keys = {site: DeviceKey() for site in sites}
    pins = {site: key.fingerprint for site, key in keys.items()}
    classes = tuple(str(number) for number in range(problem.shape[1]))

    def slow(given: Scenario, device: int) -> Emulation:
        return Emulation.of_scenario(given, device, time_scale=SCALE)

    for site, shard in zip(sites, problem.shards, strict=True):
        local_data = LocalData(shard, problem.kind, classes)
        load, agreed = (lambda scenario, local_data=local_data: local_data), any_terms(sites)
        own = Site(site, load, keys[site], pins, agreed)
        carrier.attach(site, DeviceHost(own, carrier.peers(site), slow))
    traffic = Traffic(carrier)
    options = DeploymentOptions(pins=pins, patience=300.0, time_scale=SCALE)
    try:
        return deploy(wanted, carrier, sites, path, options=options, check=problem), traffic
    finally:
        carrier.close()


def main(folder: Path | None = None) -> dict[str, Any]:
    """Train on sites and in virtual time, and print what was sent."""
    with tempfile.TemporaryDirectory(prefix="codedfl-bench-") as place, threadpool_limits(1):
        path, wanted = folder or Path(place), scenario()
        problem = Problem.build(wanted, silent)
        pairs: list[KeyPair] = []
        with patch.object(code_based, "generate_keys", lambda *sizes, **named: _kept(pairs, *sizes, **named)):
            real, traffic = on_sites(wanted, problem, path / "sites")
        with patch.object(code_based, "_keys", lambda *sizes: pairs[0]):
            seeded = wanted.with_settings({"schemes.code-based.key_seed": 1})  # products A G are kept by the seed
            same = execute(seeded, path / "same key", problem=lambda: problem)
        others = {
            "virtual time, same key": same,
            "virtual time, key of the seed": execute(wanted, path / "virtual", problem=lambda: problem),
            "plaintext": execute(scenario("conventional"), path / "plain", problem=lambda: problem),
        }
        return compared(real, others, traffic)


def _kept(pairs: list[KeyPair], *sizes: Any, **named: Any) -> KeyPair:
    pairs.append(generate_keys(*sizes, **named))
    return pairs[-1]


def compared(real: Run, others: dict[str, Run], traffic: Traffic) -> dict[str, Any]:
    """Print and return differences between models, and bytes by kind."""
    results: dict[str, Any] = {
        "epochs": real.summary["epochs"],
        "handovers": real.summary["handovers"],
        "forwards": traffic.forwards,
        "differences": {name: model_difference(real, run) for name, run in others.items()},
        "largest_gradient_error": float(np.nanmax(real.epochs["gradient_error"])),
        "public_key_bytes": real.summary["deployment"]["announced_bytes"],
        "sent": {kind: {"messages": traffic.count[kind], "bytes": traffic.bytes[kind]} for kind in traffic.count},
    }
    show("epochs", results["epochs"])
    show("hand-overs", results["handovers"])
    show("of them by devices that had taken in others (forwards)", results["forwards"])
    for name, difference in results["differences"].items():
        show(f"model beside {name}, relative", difference, LIMIT if name.endswith("same key") else None)
    show("largest gradient error", results["largest_gradient_error"])
    show("public key, to every site", results["public_key_bytes"] / 1e6, unit="MB")
    for kind, each in results["sent"].items():
        mean = each["bytes"] / each["messages"]
        print(f"  {kind:<10} {each['messages']:>7} messages {each['bytes'] / 1e6:>10.3f} MB {mean:>14,.0f} B each")
    return results


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
