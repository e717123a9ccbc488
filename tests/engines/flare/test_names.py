"""Only public functions of this package can be named, and sites have names that FLARE takes."""

import pytest

from codedfl.engines.flare.echo import host
from codedfl.engines.flare.names import check_site, resolve, site_names
from codedfl.errors import EngineError, UsageError


def test_a_public_function_is_found() -> None:
    assert resolve("codedfl.engines.flare.echo:host") is host


@pytest.mark.parametrize(
    "reference",
    [
        "os:system",
        "codedfl:run",  # the package itself is not a module in it
        "codedfl.files:os",  # imported there, but not its own
        "codedfl.files:_umask",
        "codedfl.engines.flare.names:REFERENCE",  # public, but no function
        "codedfl.engines.flare.echo:host.__globals__",
        "codedfl.engines.flare.echo.host",
        "codedfl.nothing.here:host",
        "codedfl..files:write_text",
        "xcodedfl.files:write_text",
        "codedfl.files:write_text\n",
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
