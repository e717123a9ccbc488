"""What to do with start-up kits on real hosts, in words for the people who do it."""

from codedfl.deploy.flare import Kits
from codedfl.scenario import Scenario

__all__ = ["guide"]


def guide(kits: Kits, scenario: Scenario, *, own_keys: bool) -> str:
    """Return the steps from a folder of kits to a trained model."""
    steps = [
        "On every host: Python 3.11 or newer, and `pip install 'codedfl[flare]'`, the same version everywhere.",
        f"Take the folder `server` to the host that devices reach as `{kits.host}`, and each folder `{kits.sites[0]}`, "
        "... to the host of that device, by a way that nobody else reads (each holds a private key; keep mode 700), "
        "and delete the copy here. The folder `admin` and `kits.json` stay with whoever starts trainings.",
        f"Let devices reach port {kits.port} of `{kits.host}` by TCP. Nothing has to reach a device: all connections "
        "go from devices and admin to the server.",
        _data_step(scenario),
    ]
    if own_keys:
        steps.append(
            "Owners of devices: the first `codedfl deploy start` makes the key of the device and shows its print. Tell "
            "it to the owners of all other devices by a way that the server cannot alter, and enter theirs in "
            '`site.toml` under `[peers]`: `device-1 = "sha256:..."`. Without an entry nothing is exchanged.'
        )
    steps += [
        "On each host: `codedfl deploy start DIR` with its folder (`--foreground` under a supervisor such as systemd).",
        "Where the admin's folder is: `codedfl deploy train DIR` with the folder that holds `kits.json`.",
        "On each host: `codedfl deploy status DIR`; in the end `codedfl deploy stop DIR`.",
    ]
    numbered = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))
    return (
        f"# Start-up kits: {len(kits.sites)} devices and a server at {kits.host}:{kits.port}\n\n{numbered}\n\n"
        "What goes wrong, and what then: docs/deployment.md of codedfl.\n"
    )


def _data_step(scenario: Scenario) -> str:
    if scenario.data.elsewhere:
        return (
            "Owners of devices: put the file of your data beside `site.toml` and name it there under `[data]`; for a "
            "classification give all sites the same list `classes`. The server never learns where data lie."
        )
    return (
        f"Devices take their parts of `{scenario.data.source}`, as `[data]` in each `site.toml` says; an owner who has "
        "data of his own names another file there."
    )
