"""Names that both ends agree on, and how a piece of this package is found by its name."""

import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from codedfl.errors import EngineError, MissingExtraError, UsageError

__all__ = ["REFERENCE", "SERVER", "check_site", "need_flare", "resolve", "site_names"]

SERVER = "server"
"""What FLARE calls the server."""

REFERENCE = re.compile(r"codedfl(?:\.[a-z_][a-z0-9_]*)+:[a-z_][a-z0-9_]*")
"""How a function of this package is named."""

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


def need_flare(modules: Sequence[str] = ("nvflare", "psutil")) -> None:
    """Say how to install FLARE if it is not there."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            raise MissingExtraError(
                "deployments need NVIDIA FLARE; install it with: pip install 'codedfl[flare]'"
            ) from None
