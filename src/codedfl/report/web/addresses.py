"""Where pages are served: hosts, ports, secret paths, and which Host headers belong to them."""

import ipaddress
import re
import secrets
import socket

from codedfl.errors import CodedflError, UsageError

LOOPBACK = "127.0.0.1"
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_TOKEN = re.compile(r"[A-Za-z0-9_-]{22,64}")
_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<name>[^\[\]:/@\s]+))(?::[0-9]{1,5})?")

UNENCRYPTED = "the page at {host} is not encrypted, and whoever has its address can read it; prefer an SSH tunnel"


def new_token() -> str:
    """Return a secret part of an address, of 128 random bits."""
    return secrets.token_urlsafe(16)


def is_token(text: object) -> bool:
    """Return whether a text can be the secret part of an address."""
    return isinstance(text, str) and _TOKEN.fullmatch(text) is not None


def check_host(host: str, *, others: bool = False, option: str = "host") -> str:
    """Return the address to bind; refuse what is no address, and other machines unless ``others`` are allowed."""
    try:
        address = ipaddress.ip_address(LOOPBACK if host == "localhost" else host)
    except ValueError:
        raise UsageError(f"{option} '{host}' is no address; give one of this machine, as 127.0.0.1 or ::1") from None
    if not address.is_loopback and not others:
        raise UsageError(f"{option} '{host}' can be reached by other machines; give 127.0.0.1 or allow them explicitly")
    return str(address)


def check_port(port: int, *, option: str = "port") -> int:
    """Return a port; 0 means any free one."""
    if not 0 <= port <= 65535:
        raise UsageError(f"{option} {port} is out of range; give a number from 1 to 65535, or none for a free port")
    return port


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    return ipaddress.ip_address(host).is_loopback


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the port of a killed process is free at once
        bound.bind((host, port))
        bound.listen(64)  # a second process that shares the port fails here at the latest
    except OSError as error:
        bound.close()
        advice = "choose another port, or none for a free one"
        raise CodedflError(f"cannot serve a page at {host}, port {port} ({error.strerror}); {advice}") from None
    return bound


def is_own_host(header: str, host: str) -> bool:
    """Return whether a Host header names this server; any other name may be one that an attacker's DNS resolves to us.

    The port is not compared, so that tunnels may use another.

    >>> is_own_host("localhost:8000", "127.0.0.1"), is_own_host("evil.example:8000", "127.0.0.1")
    (True, False)
    """
    found = _HOST.fullmatch(header)
    if found is None:
        return False
    name = (found["v6"] or found["name"]).lower()
    if name in _LOOPBACK_NAMES or name == host:
        return True
    # a server of all addresses is reached under some number; numbers are not resolved, so nobody can redirect them
    return ipaddress.ip_address(host).is_unspecified and _is_number(name)


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
