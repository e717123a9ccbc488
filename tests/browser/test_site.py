"""The documentation site: built without a warning, every link leads somewhere, nothing is fetched from elsewhere.

In a browser: no errors, no page wider than its window, and no serious violation of the rules for access.
"""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import documents
from browser.conftest import OpenPage, serious

CLICKS = 3
WIDTHS = (390, 820, 1440)
LOOKED_AT = (
    *("docs/index.html", "README.html", "docs/schemes.html", "docs/tutorials/own-data.html", "docs/delays.html"),
    *("docs/tutorials/real-sites.html", "docs/tutorials/which-scheme.html", "examples/estimators.html"),
)
"""Pages of every kind: doors, tables, drawings, code with its output, pictures, a notebook."""
FETCHED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}


@dataclass
class Page(HTMLParser):
    """Targets, links and fetched files of a page."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if FETCHED.get(tag) in found:
            self.fetched.append(found[FETCHED[tag]])


def local(link: str) -> bool:
    return "://" not in link and not link.startswith(("mailto:", "data:"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Mapping[Path, Page]:
    out = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "-q", "-c", "docs", ".", str(out)]
    done = subprocess.run(words, cwd=documents.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = {}
    for path in out.rglob("*.html"):
        pages[path.resolve()] = page = Page()
        page.feed(path.read_text(encoding="utf-8"))
    return pages


def targets(path: Path, page: Page) -> list[tuple[Path, str]]:
    """Where the local links of a page lead to."""
    parts = [urldefrag(link) for link in page.links if local(link)]
    return [((path.parent / unquote(url)).resolve() if url else path, unquote(place)) for url, place in parts]


def test_every_local_link_leads_to_a_file_and_to_a_place_on_it(site: Mapping[Path, Page]) -> None:
    checked = 0
    for path, page in site.items():
        for target, place in targets(path, page):
            assert target.is_file(), f"{path.name} links to {target}"
            if place and target in site:
                assert place in site[target].ids, f"{path.name} links to {target.name}#{place}"
            checked += 1
    assert checked > len(site)


def test_every_page_is_a_few_clicks_from_the_first(site: Mapping[Path, Page]) -> None:
    first = next(path for path in site if path.parts[-2:] == ("docs", "index.html"))
    reached, last = {first}, {first}
    for _ in range(CLICKS):
        last = {target for path in last for target, _ in targets(path, site[path]) if target in site} - reached
        reached |= last
    start = next(path for path in site if path.parent == first.parents[1] and path.name == "index.html")
    search = start.with_name("search.html")  # every page has its field
    assert set(site) - reached == {start, search}
    assert [target for target, _ in targets(start, site[start])] == [first]


def test_every_page_of_the_repository_is_on_the_site(site: Mapping[Path, Page]) -> None:
    pages = {path.stem for path in site}
    sources = [*(documents.ROOT / "docs").rglob("*.md"), *documents.ROOT.glob("*.md")]
    assert {path.stem for path in sources} <= pages


def test_nothing_is_fetched_from_elsewhere(site: Mapping[Path, Page]) -> None:
    for path, page in site.items():
        for link in page.fetched:
            assert local(link), f"{path.name} fetches {link}"
            url = unquote(urldefrag(link)[0].split("?")[0])
            if url and not url.startswith("data:"):
                assert (path.parent / url).is_file(), f"{path.name} lacks {link}"


@pytest.mark.parametrize("name", LOOKED_AT)
def test_pages_in_a_browser(site: Mapping[Path, Page], open_page: OpenPage, name: str) -> None:
    (path,) = [path for path in site if path.as_posix().endswith(f"/{name}")]
    for width in WIDTHS:
        page = open_page(path.as_uri(), width=width)
        assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0, width
    for dark in (False, True):
        page = open_page(path.as_uri(), dark=dark)
        assert serious(page) == []


def test_search_finds_a_page(site: Mapping[Path, Page], open_page: OpenPage) -> None:
    """From a folder, without a server."""
    (path,) = [path for path in site if path.name == "search.html"]
    page = open_page(f"{path.as_uri()}?q=straggler")
    page.wait_for_selector("ul.search li a")
    assert page.locator("ul.search li a").count() > 1
