"""A site's own configuration."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from codedfl.deploy.flare.sites import PLUGINS, load_own_plugins, make_host, read_site
from codedfl.deploy.protocol.carrier import Peers
from codedfl.errors import EngineError, UsageError
from codedfl.testing.echo import EchoHost


class NoPeers(Peers):
    def send(self, site: str, payload: bytes) -> bytes:
        raise EngineError("nobody is there")


def test_the_configuration_knows_its_folder(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('name = "device-1"\nfolder = "/somewhere/else"\n[data]\nfile = "x.npz"\n')
    assert read_site(tmp_path) == {"name": "device-1", "folder": str(tmp_path), "data": {"file": "x.npz"}}


@pytest.mark.parametrize("content", [None, b"name = ", b"\xff\xfe"])
def test_a_configuration_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "site.toml").write_bytes(content)
    with pytest.raises(EngineError, match=r"site\.toml"):
        read_site(tmp_path)


def test_a_site_loads_the_plugins_that_it_was_started_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PLUGINS, raising=False)
    load_own_plugins()
    monkeypatch.setenv(PLUGINS, json.dumps([str(tmp_path / "gone.py")]))
    with pytest.raises(UsageError, match=r"gone\.py' is not a file"):
        load_own_plugins()


def test_the_host_is_the_one_that_the_site_names() -> None:
    site = {"folder": ".", "host": "codedfl.testing.echo:host"}
    assert isinstance(make_host(site, NoPeers()), EchoHost)


@pytest.mark.parametrize(
    ("site", "complaint"),
    [
        ({}, "names no host"),
        ({"host": 1}, "names no host"),
        ({"host": "os:system"}, "is not of the form"),
        ({"host": "codedfl.deploy.flare.sites:hostless"}, "not a public function"),
    ],
)
def test_a_site_without_a_host(site: Mapping[str, Any], complaint: str) -> None:
    with pytest.raises(EngineError, match=complaint):
        make_host({"folder": ".", **site}, NoPeers())


def test_a_function_that_makes_no_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(site: object, peers: object) -> str:
        return "not a host"

    other.__module__ = "codedfl.testing.echo"
    monkeypatch.setattr("codedfl.testing.echo.host", other)
    with pytest.raises(EngineError, match="returns no host"):
        make_host({"folder": ".", "host": "codedfl.testing.echo:host"}, NoPeers())
