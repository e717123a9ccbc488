"""Who takes part: fingerprints of device keys in kits, and sites that are added, replaced or revoked one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from codedfl.deploy.flare.kits import Kits, issued_print, load_kits, make_kit
from codedfl.deploy.flare.names import check_site
from codedfl.deploy.flare.sites import edit_site, read_site
from codedfl.deploy.protocol.envelopes import DeviceKey, check_fingerprint
from codedfl.errors import ScenarioError, UsageError

KEY = "device.key"
"""In a device's kit: the key that signs for the device."""

UNPINNED = (
    "the server has pinned no device keys, so it takes the key that each device shows; enter their fingerprints with "
    "`codedfl deploy pin`"
)


def read_pins(site: Mapping[str, Any]) -> tuple[dict[str, str] | None, tuple[str, ...]]:
    """Return the pinned fingerprints (None without any), and the revoked names and fingerprints, of a server."""
    pins, revoked = site.get("fingerprints") or None, site.get("revoked", [])
    if pins is not None and not isinstance(pins, dict):
        raise ScenarioError(f"fingerprints = {pins!r} must be a table of names and fingerprints")
    for name, shown in (pins or {}).items():
        check_fingerprint(f"fingerprints.{name}", shown)
    if not isinstance(revoked, list) or not all(isinstance(one, str) for one in revoked):
        raise ScenarioError(f"revoked = {revoked!r} must be a list of names and fingerprints")
    return pins, tuple(revoked)


def is_server(kit: Path) -> bool:
    """Return whether a kit is that of a server."""
    return (kit / "startup" / "fed_server.json").exists()


def is_device(kit: Path) -> bool:
    """Return whether a kit is that of a device."""
    return (kit / "startup" / "fed_client.json").exists()


def device_key(kit: Path) -> tuple[DeviceKey, bool]:
    """Return the key of a device, and whether it was made now."""
    if not is_device(kit):
        raise UsageError(f"'{kit}' is not the start-up kit of a device, which alone has a key")
    path = kit / str(read_site(kit).get("key", KEY))
    if path.exists():
        return DeviceKey.read(path), False
    key = DeviceKey()
    key.write(path)
    return key, True


def pin(kit: Path, prints: Mapping[str, str], *, change: bool = False) -> list[str]:
    """Enter fingerprints of devices in the ``site.toml`` of a kit; return the names that are new or changed.

    That of the device itself is compared with its own key. Another fingerprint of a known name is refused without
    ``change``.
    """
    if not is_server(kit) and not is_device(kit):
        raise UsageError(f"'{kit}' is not a start-up kit; name the folder of the server or of a device")
    site = read_site(kit)
    table = "fingerprints" if is_server(kit) else "peers"
    known, wanted = site.get(table, {}), {}
    for name, shown in prints.items():
        check_site(name)
        check_fingerprint(name, shown)
        if is_device(kit) and name == site["name"]:
            if (own := device_key(kit)[0].fingerprint) != shown:
                raise UsageError(
                    f"{name} is this device, and its fingerprint is {own}, not {shown}; tell the others so"
                )
        elif known.get(name, shown) != shown and not change:
            raise UsageError(
                f"{name} is pinned to {known[name]}, not {shown}; ask its owner which one is right, and give --replace "
                "if the key has changed"
            )
        elif known.get(name) != shown:
            wanted[name] = shown
    if wanted:
        edit_site(kit, table, wanted)
    return list(wanted)


def add(folder: Path, site: str, settings: Mapping[str, Any]) -> Kits:
    """Make the kit of one more device; the kits of the others stay as they are."""
    kits = load_kits(folder)
    if site in kits.sites:
        raise UsageError(f"'{folder}' has a site {site}; choose another name, or use `codedfl deploy replace`")
    if kits.server.is_dir() and site in read_pins(read_site(kits.server))[1]:
        raise UsageError(f"{site} is revoked; choose another name")
    make_kit(kits, site, settings)
    grown = replace(kits, sites=(*kits.sites, site))
    grown.write_manifest()
    return grown


def substitute(folder: Path, site: str, settings: Mapping[str, Any]) -> tuple[Kits, list[str]]:
    """Make another kit for a device whose own is lost or stolen; return the old one's prints, which are revoked."""
    kits = _with_site(folder, site)
    barred = _prints_of(kits, site)
    make_kit(kits, site, settings)
    _bar(kits, barred)
    return kits, barred


def revoke(folder: Path, site: str) -> tuple[Kits, list[str]]:
    """Take a device out of kits; return its name and prints, which are revoked."""
    kits = _with_site(folder, site)
    if len(kits.sites) == 1:
        raise UsageError(f"{site} is the last site of '{folder}'; delete the folder instead")
    barred = [site, *_prints_of(kits, site)]
    left = replace(kits, sites=tuple(name for name in kits.sites if name != site))
    left.write_manifest()
    _bar(kits, barred)
    return left, barred


def bar(server: Path, barred: Sequence[str]) -> None:
    """Enter names and fingerprints in the list ``revoked`` of a server's kit."""
    if not is_server(server):
        raise UsageError(f"'{server}' is not the start-up kit of a server, which alone revokes; name its folder")
    for one in barred:
        check_fingerprint("revoked", one) if ":" in one else check_site(one)
    _, revoked = read_pins(read_site(server))
    edit_site(server, "", {"revoked": [*revoked, *(one for one in barred if one not in revoked)]})


def _with_site(folder: Path, site: str) -> Kits:
    kits = load_kits(folder)
    if site not in kits.sites:
        raise UsageError(f"'{folder}' has no site {site}; it has {', '.join(kits.sites)}")
    return kits


def _prints_of(kits: Kits, site: str) -> list[str]:
    """Return the fingerprints of a site's certificate and key, as far as the organiser knows them."""
    pins = (read_pins(read_site(kits.server))[0] if kits.server.is_dir() else None) or {}
    found = [issued_print(kits, site), pins.get(site)]
    return [one for one in found if one is not None]


def _bar(kits: Kits, barred: Sequence[str]) -> None:
    """Have the server revoke, if its kit is here."""
    if kits.server.is_dir():
        bar(kits.server, barred)
