"""``codedfl deploy key|pin|add|replace|revoke``: the keys of devices, and single sites of a folder of kits."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from codedfl.cli import common
from codedfl.deploy.flare.kits import Kits, load_kits
from codedfl.deploy.flare.names import need_flare
from codedfl.deploy.flare.sites import read_site
from codedfl.deploy.server import fleet, membership
from codedfl.deploy.site.agreement import agree
from codedfl.errors import UsageError
from codedfl.scenario import Scenario, load
from codedfl.storage import write_text

SCENARIO = "scenario.toml"  # in a folder of kits: what they were made for

Kit = Annotated[Path, typer.Argument(metavar="KIT", help="The start-up kit of a device or of the server.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The organiser's folder of start-up kits.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The site's name.")]


def key_command(kit: Kit, json: common.Json = False) -> None:
    """Make the key of a device, if it has none, and print its fingerprint."""
    key, made = membership.device_key(kit.resolve())
    if json:
        common.print_json({"kit": str(kit), "fingerprint": key.fingerprint, "made": made})
        return
    name = read_site(kit)["name"]
    common.console.print(f"{name}={key.fingerprint}", soft_wrap=True)


def pin_command(
    kit: Kit,
    prints: Annotated[list[str], typer.Argument(metavar="NAME=FINGERPRINT...", help="What the owners told you.")],
    change: Annotated[bool, typer.Option("--replace", help="Replace other fingerprints of these names.")] = False,
    json: common.Json = False,
) -> None:
    """Enter fingerprints of device keys in the site.toml of a kit: of the other devices, or all at the server."""
    pairs = [one.partition("=") for one in prints]
    if wrong := [name for name, mark, shown in pairs if not (name and mark and shown)]:
        raise UsageError(f"'{wrong[0]}' has no fingerprint; write NAME=FINGERPRINT, for example anna=sha256:0123...")
    entered = membership.pin(kit.resolve(), {name: shown for name, _, shown in pairs}, change=change)
    if json:
        common.print_json({"kit": str(kit), "entered": entered})
        return
    words = f"entered {', '.join(entered)}" if entered else "nothing to change: all are entered as they are"
    common.console.print(f"{kit}: {words}", soft_wrap=True)


def add_command(folder: Folder, name: Name, json: common.Json = False) -> None:
    """Make the kit of one more site, for the same server and beside the same others."""
    need_flare()
    size = len(load_kits(folder).sites) + 1
    scenario = _scenario(folder, size)
    kits = membership.add(folder, name, fleet.device_settings(scenario, size, size))
    agree(kits.device(name), scenario, kits.sites)
    write_text(folder / SCENARIO, scenario.to_toml())
    _show(kits, [*_new_kit(kits, name), *_changed_cohort(kits, scenario)], [], json)


def replace_command(folder: Folder, name: Name, json: common.Json = False) -> None:
    """Make another kit for a site whose own is lost or stolen, and revoke the certificate and key of the old one."""
    need_flare()
    kits = load_kits(folder)
    scenario, part = _scenario(folder, len(kits.sites)), [*kits.sites, name].index(name) + 1
    kits, barred = membership.substitute(folder, name, fleet.device_settings(scenario, part, len(kits.sites)))
    agree(kits.device(name), scenario, kits.sites)
    _show(kits, [*_barred(kits, barred), *_new_kit(kits, name, again=True)], barred, json)


def revoke_command(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The organiser's folder of kits, or the server's kit on its host.")
    ],
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="A site's name; at the server's kit also fingerprints.")
    ],
    json: common.Json = False,
) -> None:
    """Refuse a site from now on; the kits of the others stay as they are."""
    need_flare()
    if membership.is_server(folder):
        membership.bar(folder.resolve(), names)
        if json:
            common.print_json({"folder": str(folder), "revoked": names})
        else:
            common.console.print(f"{folder}: revoked; the next job and the next registration are refused")
        return
    if len(names) > 1:
        raise UsageError(f"'{folder}' takes one name at a time, not {len(names)}; give the command once for each")
    scenario = _scenario(folder, max(1, len(load_kits(folder).sites) - 1))
    kits, barred = membership.revoke(folder, names[0])
    write_text(folder / SCENARIO, scenario.to_toml())
    _show(kits, [*_barred(kits, barred), *_changed_cohort(kits, scenario)], barred, json)


def _scenario(folder: Path, devices: int) -> Scenario:
    """Return the scenario of kits for another number of devices."""
    return load(str(folder / SCENARIO)).with_devices(devices)


def _new_kit(kits: Kits, name: str, *, again: bool = False) -> list[str]:
    change = " --replace" if again else ""
    return [
        f"copy {kits.device(name)} to the host of {name} over a confidential channel, and delete the copy here",
        f"{name}: `codedfl deploy key KIT`; tell its fingerprint to the other owners and to the server's",
        f"the others and the server's: `codedfl deploy pin KIT {name}=FINGERPRINT{change}`; {name} pins all others",
    ]


def _barred(kits: Kits, barred: Sequence[str]) -> list[str]:
    if kits.server.is_dir():
        done = f"{kits.server} refuses the old one from now on"
        return [f"{done}; if the server runs from a copy of it, there: `{_command(barred)}`"]
    return [f"on the server's host: `{_command(barred)}`"]


def _command(barred: Sequence[str]) -> str:
    return f"codedfl deploy revoke KIT {' '.join(barred)}"


def _changed_cohort(kits: Kits, scenario: Scenario) -> list[str]:
    """Return what a change of the number of devices means for the others."""
    size, cohort = scenario.fleet.size, ",".join(kits.sites)
    command = f"`codedfl site agree KIT {SCENARIO} --cohort {cohort}`"
    found = [f"the cohort has {size} devices now: every owner has to agree to it again with {command}"]
    if not scenario.data.elsewhere:
        found.append(f"`parts` in [data] of every site.toml must be {size}: devices share `{scenario.data.source}`")
    return found


def _show(kits: Kits, steps: Sequence[str], barred: Sequence[str], json: bool) -> None:
    if json:
        facts: dict[str, Any] = {"folder": str(kits.folder), "sites": list(kits.sites), "revoked": list(barred)}
        common.print_json(facts | {"steps": list(steps)})
        return
    common.console.print(f"{len(kits.sites)} devices: {', '.join(kits.sites)}", soft_wrap=True)
    for number, step in enumerate(steps, start=1):
        common.console.print(f"{number}. {step}", soft_wrap=True)


COMMANDS: dict[str, Callable[..., None]] = {
    "key": key_command,
    "pin": pin_command,
    "add": add_command,
    "replace": replace_command,
    "revoke": revoke_command,
}
