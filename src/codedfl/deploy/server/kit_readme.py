"""The README of a folder of start-up kits."""

import shlex

from codedfl.deploy.flare.kits import Kits
from codedfl.scenario import Scenario
from codedfl.schemes import plugin_files


def kit_readme(kits: Kits, scenario: Scenario, *, own_keys: bool) -> str:
    """Return the steps from a folder of kits to a trained model."""
    data_step = (
        f"Devices use their parts of `{scenario.data.source}`, as `[data]` in each `site.toml` says; an owner with own "
        "data names another file there."
    )
    if scenario.data.elsewhere:
        data_step = (
            "Owners of devices: put your data file beside `site.toml` and name it there under `[data]`; for a "
            "classification use the same list `classes` at all sites. The server never learns the path."
        )
    files = [path.name for path in plugin_files()]
    flags = "".join(f" --plugin {shlex.quote(name)}" for name in files)
    steps = [
        "On every host: Python 3.11 or newer, and `pip install 'codedfl[flare]'`, the same version everywhere.",
        f"Copy the folder `server` to the host that devices reach as `{kits.host}`, and each folder `{kits.sites[0]}`, "
        "... to the host of that device, over a confidential channel (each holds a private key; keep mode 700), and "
        "delete the copy here. The folder `admin` and `kits.json` stay with the organiser.",
        f"Open TCP port {kits.port} of `{kits.host}` for devices and admin. Devices need no open port: all connections "
        "go to the server.",
        data_step,
    ]
    if files:
        steps.append(
            f"Schemes come from {', '.join(f'`{name}`' for name in files)}, which is in no kit: give it to every host. "
            "A site runs it because its owner names it below, never because the server does, so owners read it first."
        )
    if own_keys:
        steps.append(
            "Owners of devices: the first `codedfl deploy start` creates the key of the device and prints its "
            "fingerprint. Tell it to the owners of all other devices over a channel that the server cannot alter, and "
            'enter theirs in `site.toml` under `[peers]`: `device-1 = "sha256:..."`. Devices without an entry exchange '
            "nothing."
        )
    steps += [
        f"On each host: `codedfl deploy start DIR{flags}` with its folder (`--foreground` under a supervisor such as "
        "systemd).",
        f"Organiser: `codedfl deploy train DIR{flags}` with the folder that holds `kits.json`.",
        "On each host: `codedfl deploy status DIR`; in the end `codedfl deploy stop DIR`.",
    ]
    numbered = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))
    return (
        f"# Start-up kits: {len(kits.sites)} devices and a server at {kits.host}:{kits.port}\n\n{numbered}\n\n"
        "Troubleshooting: docs/deployment.md of codedfl.\n"
    )
