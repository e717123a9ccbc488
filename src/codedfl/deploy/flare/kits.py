"""Start-up kits: a folder each for the server, every device and the admin, with keys for mutual TLS.

A kit holds one private key and is readable by its owner only. The key of the certificate authority is not stored:
its holder could impersonate any site. So adding a site takes new kits.
"""

import contextlib
import io
import json
import os
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from codedfl.deploy.flare.names import SERVER, check_site, need_flare
from codedfl.deploy.flare.resources import write_policy
from codedfl.deploy.flare.sites import FILE
from codedfl.errors import EngineError, UsageError

ADMIN = "admin@codedfl.local"
"""The user who submits jobs."""

PROJECT = "codedfl"
MANIFEST = "kits.json"
CERTIFICATES = ("rootCA.pem", "server.crt", "server.key", "client.crt", "client.key")
STARTUP_FILES = (*CERTIFICATES, "fed_server.json", "fed_client.json", "fed_admin.json")
HEADING = "# This site's own settings: no job can change them.\n"


@final
@dataclass(frozen=True)
class Kits:
    """A folder of start-up kits, and the address of their server."""

    folder: Path
    host: str
    port: int
    sites: tuple[str, ...]

    @property
    def server(self) -> Path:
        """The kit of the server."""
        return self.folder / SERVER

    @property
    def admin(self) -> Path:
        """The kit of the admin."""
        return self.folder / "admin"

    def device(self, site: str) -> Path:
        """Return the kit of a device."""
        return self.folder / site


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)


def write_site(kit: Path, settings: Mapping[str, Any]) -> None:
    """Write a site's own settings into its kit; they apply from the next job on."""
    import tomli_w

    write_private(kit / FILE, (HEADING + tomli_w.dumps(dict(settings))).encode())


def load_kits(folder: Path) -> Kits:
    """Load kits that :func:`make_kits` made."""
    try:
        made = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return Kits(folder.resolve(), str(made["host"]), int(made["port"]), tuple(map(str, made["sites"])))
    except (OSError, ValueError, KeyError, TypeError):
        raise EngineError(f"'{folder}' holds no start-up kits; make them first") from None


def make_kits(
    folder: Path,
    sites: Sequence[str],
    *,
    host: str = "localhost",
    port: int | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Kits:
    """Make kits in a new folder; ``settings`` are the contents of ``site.toml`` by site, the server's included.

    A device's settings must name its ``host`` before a job starts. With the host ``localhost`` the server listens on
    loopback only, else on all interfaces (FLARE offers no other choice). Without a port, a free one is chosen.
    """
    need_flare()
    _check(folder, sites, host, port)
    kits = Kits(folder.resolve(), host, _free_port() if port is None else port, tuple(sites))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".kits-") as scratch:  # readable by the owner only
        made = _provision(Path(scratch), kits)
        for name in (SERVER, *sites, "admin"):
            _copy_kit(made / {SERVER: host, "admin": ADMIN}.get(name, name), kits.folder / name)
    for name in (SERVER, *sites):
        write_site(kits.folder / name, {"name": name} | dict((settings or {}).get(name, {})))
        write_policy(kits.folder / name)
    manifest = {"version": 1, "host": kits.host, "port": kits.port, "sites": list(kits.sites)}
    write_private(kits.folder / MANIFEST, json.dumps(manifest, indent=2).encode())
    return kits


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _check(folder: Path, sites: Sequence[str], host: str, port: int | None) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"'{folder}' is not an empty folder; choose another for the start-up kits")
    if not sites or len(set(sites)) != len(sites):
        raise UsageError("kits need at least one site, and every site a name of its own")
    for site in sites:
        check_site(site)
    if host in sites:
        raise UsageError(f"'{host}' is both the server's host and a site; give the site another name")
    if port is not None and not 0 < port < 65536:
        raise UsageError(f"{port} is not a port; choose one from 1 to 65535")


def _provision(scratch: Path, kits: Kits) -> Path:
    from nvflare.lighter.entity import Project
    from nvflare.lighter.impl.cert import CertBuilder
    from nvflare.lighter.impl.static_file import StaticFileBuilder
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provisioner import Provisioner

    output = io.StringIO()
    before = os.umask(0o077)
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            project = Project(PROJECT, "", props={"api_version": 3})
            project.set_server(kits.host, PROJECT, {"fed_learn_port": kits.port, "admin_port": kits.port})
            for site in kits.sites:
                project.add_client(site, PROJECT, {})
            project.add_admin(ADMIN, PROJECT, {"role": "project_admin"})
            builders = [WorkspaceBuilder(), StaticFileBuilder(config_folder="config", scheme="tcp"), CertBuilder()]
            context = Provisioner(str(scratch), builders).provision(project)
    except ValueError as error:
        raise UsageError(f"FLARE refuses to make these kits ({error})") from None
    finally:
        os.umask(before)
    made = context.get("current_prod_dir")
    if not made:
        raise EngineError(f"FLARE made no start-up kits: {' '.join(output.getvalue().split())[-300:]}")
    return Path(made)


def _copy_kit(made: Path, kit: Path) -> None:
    for name in ("startup", "local", "transfer"):
        (kit / name).mkdir(parents=True, mode=0o700)
    kit.chmod(0o700)
    for name in STARTUP_FILES:
        if (made / "startup" / name).exists():
            write_private(kit / "startup" / name, (made / "startup" / name).read_bytes())
    default = Path("local") / "resources.json.default"  # an admin has no other settings
    if (made / default).exists() and (kit / "startup" / "fed_admin.json").exists():
        write_private(kit / default, (made / default).read_bytes())
