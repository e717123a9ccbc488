"""Names that both ends agree on, and how a piece of this package is found by its name."""

import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from codedfl.errors import EngineError, MissingExtraError, UsageError

__all__ = ["PAYLOAD", "PEER", "PING", "PROBLEM", "PROJECT", "QUESTION", "SERVER", "check_site", "need_flare", "resolve", "site_names"]

PING, QUESTION, PEER = "codedfl.ping", "codedfl.question", "codedfl.peer"
"""Topics of our messages."""

PAYLOAD, PROBLEM = "payload", "problem"
"""Fields of our messages: the bytes, or one sentence that says why there are none."""

SERVER = "server"
"""What FLARE calls the server in its configuration."""

PROJECT = "codedfl"
"""What FLARE calls the project, and with it the server in its messages."""

REFERENCE = re.compile(r"codedfl(?:\.[a-z_][a-z0-9_]*)+:[a-z_][a-z0-9_]*")


def site_names(devices: int) -> tuple[str, ...]:
    """The names of as many sites, in the order of the devices."""
    return tuple(f"device-{number}" for number in range(1, devices + 1))


def resolve(reference: str) -> Callable[..., Any]:
    """Find ``module:function`` among the public functions of this package; nothing else can be named."""
    if not REFERENCE.fullmatch(reference):
        raise EngineError(f"'{reference}' is not of the form codedfl.module:function; nothing else can be named")
    module_name, _, name = reference.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise EngineError(f"'{reference}' is not in this installation (no module {error.name})") from None
    if name not in getattr(module, "__all__", ()):
        raise EngineError(f"'{reference}' is not a public function of codedfl")
    found = getattr(module, name)
    if not callable(found):
        raise EngineError(f"'{reference}' is not a function")
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


def check_site(name: str) -> None:
    """Refuse a name that cannot be that of a site."""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name) or name in (SERVER, PROJECT, "admin"):
        raise UsageError(f"'{name}' cannot be the name of a site; use lower-case letters, digits and hyphens")
