"""Pages: one file, a policy that forbids everything else, nothing in them that could run."""

import base64
import hashlib
import html
import json
import math
import re
from importlib import resources
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from codedfl.report.pages import Document, Section, safe_json
from codedfl.report.pages.document import LIBRARIES, asset
from report.pages.test_text import NASTY, read

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(NASTY),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def page(**changes: Any) -> Document:
    given: dict[str, Any] = {"data": {"name": NASTY}, "scripts": ("report.js",)} | changes
    return Document(NASTY, [Section(NASTY, "<p>words</p>"), Section("second", "")], **given)


def finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    return [finite(each) for each in value] if isinstance(value, list) else value


@given(VALUES)
def test_json_ends_no_script_and_is_read_back(value: Any) -> None:
    text = safe_json(value)
    assert not set("<>&") & set(text)
    assert json.loads(text) == finite(value)


def test_titles_and_headings_are_text() -> None:
    found = read(page().to_html())
    assert found.texts["title"] == found.texts["h1"] == [NASTY]
    assert found.texts["h2"] == [NASTY, "second"]
    assert "b" not in found.tags


def test_only_scripts_of_the_package_may_run() -> None:
    text = page().to_html()
    scripts = [body for head, body in re.findall(r"<script([^>]*)>(.*?)</script>", text, re.DOTALL) if not head]
    digests = [base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in scripts]
    assert scripts == [asset(name) for name in (*LIBRARIES, "page.js", "report.js")]
    policy = html.unescape(re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[0])
    assert policy.split("script-src ")[1].split(";")[0].split() == [f"'sha256-{digest}'" for digest in digests]
    assert policy.startswith("default-src 'none'")
    assert "connect-src 'none'" in policy
    assert "unsafe-eval" not in policy


def test_a_served_page_may_ask_its_server_only() -> None:
    assert "connect-src 'self'" in page(served=True).policy


def test_a_page_without_scripts_has_none() -> None:
    found = read(page(scripts=()).to_html())
    assert "script" not in found.tags
    assert "script-src 'none'" in page(scripts=()).policy


def test_pages_load_nothing() -> None:
    found = read(re.sub(r"<script.*?</script>", "", page().to_html(), flags=re.DOTALL))
    assert not {"img", "iframe", "object", "embed", "base"} & set(found.tags)
    loading = [value or "" for name, value in found.attributes if name in ("src", "href", "data")]
    assert all(value.startswith(("#", "data:")) for value in loading)
    assert not re.search(r"@import|url\(", asset("page.css"))


def test_libraries_are_those_of_the_checksums() -> None:
    folder = resources.files("codedfl.report.pages") / "assets" / "vendor"
    known = json.loads((folder / "checksums.json").read_text(encoding="utf-8"))
    assert {f"vendor/{name}" for name in known} == set(LIBRARIES)
    for name, facts in known.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == facts["sha256"]
        short = name.split(".")[0]
        assert "Permission to use" in (folder / f"{short}.LICENSE").read_text(encoding="utf-8"), facts["license"]


def test_no_script_can_end_early() -> None:
    for name in (*LIBRARIES, "page.js", "charts.js", "timeline.js", "report.js", "explore.js"):
        assert "</script" not in asset(name).lower()
        assert "innerHTML" not in asset(name) or name in LIBRARIES
