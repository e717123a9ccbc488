"""The README of a folder of start-up kits, and warnings about who could open what."""

import shlex

from codedfl.deploy.flare.kits import Kits
from codedfl.scenario import Scenario
from codedfl.schemes import plugin_files

SHARED_MACHINE = "server and devices on one machine: every seal and mask opens to who has both; use it for trials only"


def kit_warnings(kits: Kits) -> list[str]:
    """Return what is not protected, however kits are used."""
    found = []
    if len(kits.sites) < 3:
        found.append(
            f"{len(kits.sites)} device{'s' * (len(kits.sites) > 1)}: with fewer than three, a sum shows each device "
            "the gradient of the other; have three or more owners"
        )
    if kits.host == "localhost":
        found.append(SHARED_MACHINE)
    return found


def kit_readme(kits: Kits, scenario: Scenario, *, own_keys: bool) -> str:
    """Return the steps from a folder of kits to a trained model."""
    data_step = (
        f"Devices use their parts of `{scenario.data.source}`, as `[data]` in each `site.toml` says; an owner with own "
        "data names another file there."
    )
    if scenario.data.elsewhere:
        data_step = (
            "Owners of devices: put your data beside `site.toml` as `data.csv`, or name another file there; for a "
            "classification use the same list `classes` at all sites. The server never learns the path."
        )
    files = [path.name for path in plugin_files()]
    flags = "".join(f" --plugin {shlex.quote(name)}" for name in files)
    steps = [
        "On every host: Python 3.11 or newer, and the same version of codedfl: `pip install 'codedfl[flare]'` for the "
        "server, `'codedfl[site]'` for a device.",
        f"Copy the folder `server` to the host that devices reach as `{kits.host}`, which belongs to no owner of a "
        f"device, and each folder `{kits.sites[0]}`, ... to the host of that device, over a confidential channel (each "
        "holds a private key; keep mode 700), and delete the copy here. The rest stays with the organiser"
        + (", above all `authority`, which certifies new sites." if kits.authority.exists() else "."),
        f"Open TCP port {kits.port} of `{kits.host}` for devices and admin. Devices need no open port: all connections "
        "go to the server.",
        data_step,
        "Owners of devices: read `agreement.toml`. The device takes part in what it says and refuses anything else; "
        "`codedfl site agree DIR SCENARIO` changes it.",
    ]
    if files:
        steps.append(
            f"Schemes come from {', '.join(f'`{name}`' for name in files)}, which is in no kit: give it to every host. "
            "A site runs it because its owner names it below, never because the server does, so owners read it first."
        )
    if own_keys:
        known = " ".join(f"{name}=sha256:..." for name in kits.sites[:3]) + (" ..." if len(kits.sites) > 3 else "")
        steps += [
            "Owners of devices: `codedfl deploy key DIR` makes the key of the device and prints its fingerprint. Tell "
            "it to all other owners and to the server's over a channel that the server cannot alter (in person, or by "
            "telephone).",
            f"Owners, and the server's: `codedfl deploy pin DIR {known}` with what the others told you. Devices "
            "without an entry exchange nothing.",
        ]
    steps += [
        f"On each host: `codedfl deploy start DIR{flags}` with its folder (`--foreground` under a supervisor such as "
        "systemd).",
        f"Organiser: `codedfl deploy train DIR{flags}` with the folder that holds `kits.json`.",
        "On each host: `codedfl deploy status DIR`; in the end `codedfl deploy stop DIR`.",
    ]
    numbered = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))
    warned = "".join(f"**Warning:** {text}.\n\n" for text in kit_warnings(kits))
    return (
        f"# Start-up kits: {len(kits.sites)} devices and a server at {kits.host}:{kits.port}\n\n{warned}{numbered}\n\n"
        "One site more, another kit for a lost one, or one site less: `codedfl deploy add|replace|revoke DIR NAME`.\n"
        "Troubleshooting: docs/deployment.md of codedfl.\n"
    )
