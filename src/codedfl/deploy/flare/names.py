"""Names that server and sites share, and how a function of this package is found by its name."""

import importlib
import importlib.metadata
import re
from collections.abc import Callable
from typing import Any

from codedfl.errors import EngineError, MissingExtraError, UsageError

VERSION = "2.9.0"

SERVER = "server"
"""FLARE's name of the server."""

AUTHORITY = "authority"
"""In a folder of kits: what the organiser needs to certify one more site."""

REFERENCE = re.compile(r"codedfl(?:\.[a-z_][a-z0-9_]*)+:[a-z][a-z0-9_]*")
"""A public function of this package."""

ARGUMENTS = "arguments.json"
"""In the server's configuration of a job: the arguments of the entry point."""

OUTCOME = "outcome.json"
"""In the server's folder of a job: the result of the entry point, or its error."""

SITE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
HOST_NAME = re.compile(r"(?i:[a-z0-9]([a-z0-9-]*[a-z0-9])?)(?i:\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
"""What FLARE takes as the server's host."""


def site_names(devices: int) -> tuple[str, ...]:
    """Return the default names of sites, in the order of the devices."""
    return tuple(f"device-{number}" for number in range(1, devices + 1))


def check_site(name: str) -> None:
    """Refuse an invalid site name."""
    if not SITE.fullmatch(name) or name in (SERVER, "admin", AUTHORITY):
        raise UsageError(f"'{name}' cannot be the name of a site; use lower-case letters, digits and hyphens")


def resolve(reference: str) -> Callable[..., Any]:
    """Return the public function ``module:function`` of this package; refuse anything else."""
    if not REFERENCE.fullmatch(reference):
        raise EngineError(f"'{reference}' is not of the form codedfl.module:function; correct its name")
    module, _, name = reference.partition(":")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        raise EngineError(f"'{reference}' is not in this installation (no module {error.name})") from None
    if not callable(found) or getattr(found, "__module__", None) != module:  # an import of the module is not its own
        raise EngineError(f"'{reference}' is not a public function of codedfl; correct its name")
    return found  # type: ignore[no-any-return]


def need_flare() -> None:
    """Raise if FLARE is not installed in the supported version."""
    try:
        found = importlib.metadata.version("nvflare")
    except importlib.metadata.PackageNotFoundError:
        found = None
    if found != VERSION:
        other = "" if found is None else f" {VERSION}, not {found}"
        raise MissingExtraError(f"deployments need NVIDIA FLARE{other}; install it with: pip install 'codedfl[flare]'")
