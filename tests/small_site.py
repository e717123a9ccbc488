"""A program that takes part as small sites do: without the libraries of studies, and without those of commands.

``python small_site.py FOLDER [--blocked]`` reads a table, makes the host of a site, trains every scheme that such sites
know, and prints as JSON what it found: digests of models, which must not depend on the libraries. With ``--asked`` it
prints instead what a site answers that is asked for schemes which need them.
"""

import hashlib
import importlib
import json
import sys
from pathlib import Path
from typing import Any

BLOCKED = {"numba", "llvmlite", "scipy", "pyarrow", "sklearn", "pandas", "rich", "typer"}
SCHEMES = ("conventional", "minibatch", "drop-slowest", "deadline", "asynchronous", "coded-padded", "sealed")
SCHEMES += ("sealed-coded", "secagg", "one-shot")
ASKED = {"code-based": {}, "he": {}, "parity": {}, "secagg": {"privacy.epsilon": 1.0, "privacy.delta": 1e-5}}
SITE = (
    "deploy.site.host",
    "deploy.site.session",
    "deploy.flare.executor",
    "deploy.flare.sites",
    "deploy.flare.resources",
)
FLEET = [{"count": 3, "mac_rate": 25e6}, {"count": 3, "mac_rate": 1e6}]


class Blocker:
    """Finds none of the blocked libraries, as if they were not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])


def main(folder: Path) -> dict[str, Any]:
    for name in SITE:
        importlib.import_module(f"codedfl.{name}")
    from codedfl.data import load_rows
    from codedfl.scenario import load
    from codedfl.testing.small import problem, scenario, trained

    rows = load_rows(
        folder / "rows.csv", target="label", kind="classification", classes=(), dtype="float64", missing="mean"
    )
    given = problem([9, 7, 8, 6, 9, 8], features=12, outputs=3)
    found = {"rows": [digest(rows.x), digest(rows.y)], "preset": load("paper-quick").id()}
    for name in SCHEMES:
        wanted = scenario({"scheme": name, "fleet.devices": FLEET, "task.precision": "float64"})
        found[name] = digest(trained(given, wanted).model)
    found["loaded"] = sorted(BLOCKED & set(sys.modules))
    return found


def asked(folder: Path) -> dict[str, str]:
    """What a site answers when a server asks it to describe its data."""
    from codedfl.deploy.protocol.wire import Frame, decode, encode
    from codedfl.deploy.site.configuration import read_settings
    from codedfl.deploy.site.host import DeviceHost
    from codedfl.testing.small import scenario

    sites = [f"device-{number}" for number in range(1, 7)]
    agreement = {"cohort": sites, "schemes": list(ASKED)}
    own = {"name": sites[0], "data": {"source": "never-read.csv"}, "agreement": agreement}
    host = DeviceHost(read_settings(own).site(folder), None)  # type: ignore[arg-type]
    found = {}
    for number, (name, options) in enumerate(ASKED.items()):
        wanted = scenario({"scheme": name, "fleet.devices": FLEET, **options}).to_toml()
        told = {"session": str(number), "number": 1, "scenario": wanted, "run": "run", "sites": sites, "device": 0}
        found[name] = decode(host.handle(encode(Frame("describe", told)))).fields["reason"]
    return found


def digest(array: Any) -> str:
    """An array as something that is equal only if every bit is."""
    return hashlib.sha256(f"{array.dtype} {array.shape}".encode() + array.tobytes()).hexdigest()


if __name__ == "__main__":
    if "--blocked" in sys.argv:
        sys.meta_path.insert(0, Blocker())
    sys.stdout.write(json.dumps((asked if "--asked" in sys.argv else main)(Path(sys.argv[1]))))
