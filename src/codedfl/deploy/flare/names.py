"""Names that both ends agree on, and how a piece of this package is found by its name."""

import importlib
import importlib.metadata
import re
from collections.abc import Callable
from typing import Any

from codedfl.errors import EngineError, MissingExtraError, UsageError

__all__ = ["ARGUMENTS", "OUTCOME", "REFERENCE", "SERVER", "check_site", "need_flare", "resolve", "site_names"]

VERSION = "2.9.0"

SERVER = "server"
"""What FLARE calls the server."""

REFERENCE = re.compile(r"codedfl(?:\.[a-z_][a-z0-9_]*)+:[a-z_][a-z0-9_]*")
"""How a function of this package is named."""

ARGUMENTS = "arguments.json"
"""In a job's configuration for the server: what its entry point is given."""

OUTCOME = "outcome.json"
"""In a job's folder on the server: what its entry point returned, or why it failed."""

SITE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def site_names(devices: int) -> tuple[str, ...]:
    """The names of as many sites, in the order of the devices."""
    return tuple(f"device-{number}" for number in range(1, devices + 1))


def check_site(name: str) -> None:
    """Refuse a name that cannot be that of a site."""
    if not SITE.fullmatch(name) or name in (SERVER, "admin"):
        raise UsageError(f"'{name}' cannot be the name of a site; use lower-case letters, digits and hyphens")


def resolve(reference: str) -> Callable[..., Any]:
    """Find ``module:function`` among the public functions of this package; nothing else can be named."""
    if not REFERENCE.fullmatch(reference):
        raise EngineError(f"'{reference}' is not of the form codedfl.module:function; nothing else can be named")
    module_name, _, name = reference.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise EngineError(f"'{reference}' is not in this installation (no module {error.name})") from None
    found = getattr(module, name, None) if name in getattr(module, "__all__", ()) else None
    if not callable(found):
        raise EngineError(f"'{reference}' is not a public function of codedfl; correct its name")
    return found  # type: ignore[no-any-return]


def need_flare() -> None:
    """Say how to install FLARE if it is not there, or not in the version that this package is made for."""
    try:
        found = importlib.metadata.version("nvflare")
    except importlib.metadata.PackageNotFoundError:
        raise MissingExtraError(
            "deployments need NVIDIA FLARE; install it with: pip install 'codedfl[flare]'"
        ) from None
    if found != VERSION:
        raise MissingExtraError(
            f"deployments need NVIDIA FLARE {VERSION}, not {found}; install it with: pip install 'codedfl[flare]'"
        )
