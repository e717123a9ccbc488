"""A real browser for pages; every page is watched for errors and for requests to elsewhere."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
)
NEED = "CODEDFL_NEED_BROWSER"
PATIENCE = 120_000
"""Milliseconds after which a condition that does not come true fails a test."""

OpenPage = Callable[..., Any]


def chromium() -> str | None:
    """The browser of this machine."""
    usual = Path("/usr/bin/chromium")
    return str(usual) if usual.exists() else shutil.which("chromium")


def serious(page: Any) -> list[str]:
    """Serious violations of the rules for access; styles are not fetched again, which files could not."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"preload": False}).response["violations"]
    worst = [each for each in found if each["impact"] in ("serious", "critical")]
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in worst]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium; tests are skipped where there is none, unless CODEDFL_NEED_BROWSER=1."""
    missing = None if chromium() else "chromium is not installed"
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        missing = "playwright is not installed"
    if missing:
        if os.environ.get(NEED) == "1":
            pytest.fail(f"{missing}, and {NEED}=1 demands it")
        pytest.skip(f"{missing}: pages are not tested in a browser")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """Opens addresses; at the end no page may have had an error, or asked anyone but its own origin.

    ``expected`` are parts of errors that belong to the test, such as those of a killed server.
    """
    contexts: list[Any] = []
    errors: list[str] = []
    foreign: list[str] = []

    def open_one(
        url: str, *, width: int = 1200, block_others: bool = True, dark: bool = False, expected: tuple[str, ...] = ()
    ) -> Any:
        scheme = "dark" if dark else "light"
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        origin = urlsplit(url)[:2]

        def own(address: str) -> bool:
            return address.startswith(("data:", "blob:")) or urlsplit(address)[:2] == origin

        def note(text: str) -> None:
            if not any(part in text for part in expected):
                errors.append(text)

        page.on("console", lambda message: note(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: note(str(error)))
        page.on("request", lambda request: None if own(request.url) else foreign.append(request.url))
        if block_others:
            page.route("**/*", lambda route: route.continue_() if own(route.request.url) else route.abort())
        page.goto(url)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert errors == []
    assert foreign == []
