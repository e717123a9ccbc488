"""Schemes behind one contract. A new scheme is one file that its author registers (docs/adding-a-scheme.md).

Names are imported on first use, so that importing this package costs little.
"""

import importlib
from typing import TYPE_CHECKING, Any

from codedfl.schemes.registry import (
    SCHEMES,
    build,
    check,
    create,
    load_plugin,
    load_plugins,
    nominal,
    plugin_files,
    register,
    serves,
)

if TYPE_CHECKING:
    from codedfl.schemes.contract import (
        SERVER,
        Device,
        Restored,
        Round,
        Scheme,
        Server,
        Stage,
        Transfer,
    )
    from codedfl.schemes.facts import Facts, agree, describe, known_delays, refuse_claims
    from codedfl.schemes.messages import Message, Work, layout, message_bits
    from codedfl.schemes.public import Public
    from codedfl.schemes.rounding import Rounding
    from codedfl.schemes.secrecy import Leakage

__all__ = [
    "SCHEMES",
    "SERVER",
    "Device",
    "Facts",
    "Leakage",
    "Message",
    "Public",
    "Restored",
    "Round",
    "Rounding",
    "Scheme",
    "Server",
    "Stage",
    "Transfer",
    "Work",
    "agree",
    "build",
    "check",
    "create",
    "describe",
    "known_delays",
    "layout",
    "load_plugin",
    "load_plugins",
    "message_bits",
    "nominal",
    "plugin_files",
    "refuse_claims",
    "register",
    "serves",
]

_HOMES = dict.fromkeys(("Facts", "agree", "describe", "known_delays", "refuse_claims"), "facts")
_HOMES |= {"Leakage": "secrecy", "Public": "public", "Rounding": "rounding"}
_HOMES |= dict.fromkeys(("Message", "Work", "layout", "message_bits"), "messages")


def __getattr__(name: str) -> Any:
    """Import a name of the contract on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"codedfl.schemes.{_HOMES.get(name, 'contract')}")
    return getattr(module, name)
