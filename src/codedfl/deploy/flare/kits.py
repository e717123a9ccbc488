"""Start-up kits: a folder each for the server, every device and the admin, with keys for mutual TLS.

A kit holds one private key and is readable by its owner only. With the key of the certificate authority, in a folder
of the organiser's own, the kit of one more site can be made. Its holder can impersonate sites to FLARE's transport, yet
not to devices, which know each other by device keys.
"""

import contextlib
import io
import json
import os
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from codedfl.deploy.flare.names import AUTHORITY, HOST_NAME, SERVER, check_site, need_flare
from codedfl.deploy.flare.resources import write_policy
from codedfl.deploy.flare.sites import FILE
from codedfl.errors import EngineError, UsageError

ADMIN = "admin@codedfl.local"
"""The user who submits jobs."""

PROJECT = "codedfl"
MANIFEST = "kits.json"
ROOT, ROOT_KEY = "rootCA.pem", "rootCA.key"
CERTIFICATE = Path("startup") / "client.crt"
CERTIFICATES = (ROOT, "server.crt", "server.key", "client.crt", "client.key")
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

    @property
    def authority(self) -> Path:
        """The folder with the key of the certificate authority and the certificates of the sites."""
        return self.folder / AUTHORITY

    def write_manifest(self) -> None:
        """Write what :func:`load_kits` reads."""
        manifest = {"version": 1, "host": self.host, "port": self.port, "sites": list(self.sites)}
        write_private(self.folder / MANIFEST, json.dumps(manifest, indent=2).encode())


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
    keep_authority: bool = False,
) -> Kits:
    """Make kits in a new folder; ``settings`` are the contents of ``site.toml`` by site, the server's included.

    A device's settings must name its ``host`` before a job starts. With the host ``localhost`` the server listens on
    loopback only, else on all interfaces (FLARE offers no other choice). Without a port, a free one is chosen. Without
    ``keep_authority`` the key of the certificate authority is deleted, and no site can be added.
    """
    need_flare()
    _check(folder, sites, host, port)
    kits = Kits(folder.resolve(), host, _free_port() if port is None else port, tuple(sites))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".kits-") as scratch:  # readable by the owner only
        made = _provision(Path(scratch), kits, authority=kits.authority if keep_authority else None)
        for name in (SERVER, *sites, "admin"):
            _copy_kit(made / {SERVER: host, "admin": ADMIN}.get(name, name), kits.folder / name)
    if keep_authority:
        for name in sites:
            _keep_certificate(kits, name)
    for name in (SERVER, *sites):
        write_site(kits.folder / name, {"name": name} | dict((settings or {}).get(name, {})))
        write_policy(kits.folder / name)
    kits.write_manifest()
    return kits


def make_kit(kits: Kits, site: str, settings: Mapping[str, Any]) -> Path:
    """Make the kit of one more site, or another one for a site whose kit is gone; return its folder."""
    need_flare()
    check_site(site)
    kit = kits.device(site)
    if kit.exists():
        raise UsageError(f"'{kit}' exists; move or delete this kit first")
    if not (kits.authority / ROOT_KEY).exists():
        raise UsageError(
            f"'{kits.folder}' has no key of the certificate authority ({AUTHORITY}/{ROOT_KEY}), which certifies new "
            "sites; make new kits for all sites"
        )
    with tempfile.TemporaryDirectory(dir=kits.folder, prefix=".kits-") as scratch:
        made = _provision(Path(scratch), replace(kits, sites=(site,)), authority=kits.authority)
        _copy_kit(made / site, kit)
    _keep_certificate(kits, site)
    write_site(kit, {"name": site} | dict(settings))
    write_policy(kit)
    return kit


def certificate_print(certificate: Any) -> str:
    """Return the fingerprint of a certificate."""
    from cryptography.hazmat.primitives.hashes import SHA256

    return f"sha256:{certificate.fingerprint(SHA256()).hex()}"


def issued_print(kits: Kits, site: str) -> str | None:
    """Return the fingerprint of a site's certificate; None if the organiser has no copy of it."""
    from cryptography.x509 import load_pem_x509_certificate

    for path in (kits.authority / f"{site}.crt", kits.device(site) / CERTIFICATE):
        if path.exists():
            return certificate_print(load_pem_x509_certificate(path.read_bytes()))
    return None


def _keep_certificate(kits: Kits, site: str) -> None:
    """Keep a copy of a site's certificate, which is public, so that it can be revoked when the kit is elsewhere."""
    write_private(kits.authority / f"{site}.crt", (kits.device(site) / CERTIFICATE).read_bytes())


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
    if not HOST_NAME.fullmatch(host):
        raise UsageError(f"'{host}' cannot be the server's host; give a host name or an IPv4 address")
    if host in sites:
        raise UsageError(f"'{host}' is both the server's host and a site; give the site another name")
    if port is not None and not 0 < port < 65536:
        raise UsageError(f"{port} is not a port; choose one from 1 to 65535")


def _provision(scratch: Path, kits: Kits, *, authority: Path | None) -> Path:
    """Have FLARE make kits, under the certificate authority in a folder if there is one, else under a new one."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.entity import Project
    from nvflare.lighter.impl.cert import CertBuilder
    from nvflare.lighter.impl.static_file import StaticFileBuilder
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provisioner import Provisioner
    from nvflare.lighter.utils import serialize_cert, serialize_pri_key

    root: dict[str, Any] = {}
    if authority is not None and authority.exists():
        root["serialized_root_cert"] = (authority / ROOT).read_bytes()
        root["root_private_key"] = load_pem_private_key((authority / ROOT_KEY).read_bytes(), None)
    output = io.StringIO()
    before = os.umask(0o077)
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            project = Project(PROJECT, "", props={"api_version": 3}, **root)
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
    if authority is not None and not root:
        authority.mkdir(mode=0o700)
        write_private(authority / ROOT_KEY, serialize_pri_key(context[CtxKey.ROOT_PRI_KEY]))
        write_private(authority / ROOT, serialize_cert(context[CtxKey.ROOT_CERT]))
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
