"""Hosts, ports, tokens and Host headers."""

import socket

import pytest

from codedfl.errors import CodedflError, UsageError
from codedfl.report.web import check_host, check_port, new_token
from codedfl.report.web.addresses import bind, is_own_host, is_token


def test_tokens_are_secret_and_fit_in_an_address() -> None:
    made = {new_token() for _ in range(50)}
    assert len(made) == 50
    assert all(is_token(token) for token in made)
    assert not any(is_token(wrong) for wrong in ("", "short", "a" * 100, "../" * 10, "a" * 22 + "/", None, 7))


@pytest.mark.parametrize(("given", "bound"), [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("::1", "::1")])
def test_addresses_of_this_machine(given: str, bound: str) -> None:
    assert check_host(given) == bound


@pytest.mark.parametrize("host", ["", "example.org", "127.0.0.1:80", "300.1.1.1", "localhost "])
def test_what_is_no_address_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match=r"^--live-host '.*' is no address; give one of this machine"):
        check_host(host, option="--live-host", others=True)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5"])
def test_other_machines_are_refused_unless_allowed(host: str) -> None:
    with pytest.raises(UsageError, match="can be reached by other machines"):
        check_host(host)
    assert check_host(host, others=True) == host


@pytest.mark.parametrize("port", [-1, 65536, 10**9])
def test_ports_out_of_range(port: int) -> None:
    with pytest.raises(UsageError, match=f"--live-port {port} is out of range"):
        check_port(port, option="--live-port")


def test_a_port_in_use_is_one_sentence() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(CodedflError, match=f"cannot serve a page at 127.0.0.1, port {port} .*choose another port"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize("header", ["127.0.0.1", "127.0.0.1:80", "localhost:8000", "LOCALHOST", "[::1]:80"])
def test_hosts_of_loopback(header: str) -> None:
    assert is_own_host(header, "127.0.0.1")


@pytest.mark.parametrize(
    "header",
    ["", "evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "localhost@evil", "a b", "::1"],
)
def test_hosts_of_others(header: str) -> None:
    assert not is_own_host(header, "127.0.0.1")


def test_a_server_of_all_addresses_is_named_by_numbers_only() -> None:
    assert is_own_host("10.0.0.1:80", "0.0.0.0")
    assert is_own_host("[fe80::1]:80", "::")
    assert not is_own_host("evil.example:80", "0.0.0.0")
    assert is_own_host("10.0.0.1:80", "10.0.0.1")
    assert not is_own_host("10.0.0.2:80", "10.0.0.1")
