"""Only public functions of this package can be named, and sites have names that FLARE takes."""

import pytest

from codedfl.deploy.flare.names import check_site, resolve, site_names
from codedfl.errors import EngineError, UsageError
from codedfl.testing.echo import host


def test_a_public_function_is_found() -> None:
    assert resolve("codedfl.testing.echo:host") is host


@pytest.mark.parametrize(
    "reference",
    [
        "os:system",
        "codedfl:run",  # the package itself is not a module in it
        "codedfl.storage:os",  # imported there, but not its own
        "codedfl.storage:_umask",
        "codedfl.deploy.flare.names:REFERENCE",  # public, but no function
        "codedfl.testing.echo:host.__globals__",
        "codedfl.testing.echo.host",
        "codedfl.nothing.here:host",
        "codedfl..files:write_text",
        "xcodedfl.files:write_text",
        "codedfl.storage:write_text\n",
        "",
    ],
)
def test_nothing_else_is(reference: str) -> None:
    with pytest.raises(EngineError):
        resolve(reference)


def test_sites_are_numbered_from_one() -> None:
    assert site_names(3) == ("device-1", "device-2", "device-3")
    for name in site_names(12):
        check_site(name)


@pytest.mark.parametrize("name", ["server", "admin", "Device", "device_1", "../device", "a b", "", "-a", "a." * 3])
def test_names_that_no_site_can_have(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a site"):
        check_site(name)
