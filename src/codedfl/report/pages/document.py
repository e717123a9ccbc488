"""A page as one file: style, scripts and data are inside, and its policy forbids everything else.

The scripts of a page are allowed by their hashes, so text that a browser took for a script would not run. A page from a
file may open no connection; a page from a server of ours may ask that server.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, final

from codedfl.report.pages.text import escaped

LIBRARIES = ("vendor/d3.min.js", "vendor/plot.umd.min.js")
"""Scripts of others that charts need; ``vendor/checksums.json`` has their versions and licences."""


@cache
def asset(name: str) -> str:
    """Read a style or script of the package."""
    return (resources.files("codedfl.report.pages") / "assets" / name).read_text(encoding="utf-8")


def safe_json(value: Any) -> str:
    """Write JSON that can end no script element; numbers that are not finite become null."""
    text = json.dumps(_finite(value), allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {str(name): _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return value


def page_policy(scripts: Sequence[str], *, served: bool) -> str:
    """Return the content security policy of a page with these scripts."""
    hashes = " ".join(f"'sha256-{_digest(each)}'" for each in scripts) or "'none'"
    connect = "'self'" if served else "'none'"
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; connect-src {connect}; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@final
@dataclass(frozen=True)
class Section:
    """A part of a page: its heading, and its content as HTML."""

    heading: str
    content: str
    name: str = ""
    """The anchor of the section; made from the heading if empty."""

    @property
    def anchor(self) -> str:
        """What links to the section name."""
        return self.name or "-".join("".join(c if c.isalnum() else " " for c in self.heading.lower()).split())

    def to_html(self) -> str:
        """Return the section."""
        name = escaped(self.anchor)
        return (
            f'<section id="{name}" aria-labelledby="{name}-heading"><h2 id="{name}-heading">'
            f"{escaped(self.heading)}</h2>{self.content}</section>"
        )


@final
@dataclass(frozen=True)
class Document:
    """A page.

    Examples
    --------
    >>> page = Document("Runs & more", [Section("Facts", "<p>none</p>")], data={"name": "</script>"}).to_html()
    >>> "Runs &amp; more" in page, "</script>\\"" in page
    (True, False)
    """

    title: str
    sections: Sequence[Section]
    lead: str = ""
    """HTML below the title."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """What scripts find as JSON in the element ``data``."""
    scripts: Sequence[str] = ()
    """Names of assets: scripts of the page, which run after those of the charts."""
    charts: bool = True
    """Whether the scripts draw charts, and need the libraries for it."""
    served: bool = False
    """Whether the page comes from a server of ours, which it may ask."""
    footer: str = ""

    @property
    def _sources(self) -> list[str]:
        names = [*(LIBRARIES if self.charts else ()), "page.js", *self.scripts] if self.scripts else []
        return [asset(name) for name in names]

    @property
    def policy(self) -> str:
        """The content security policy of the page."""
        return page_policy(self._sources, served=self.served)

    def to_html(self) -> str:
        """Return the page as one text."""
        links = "".join(f'<li><a href="#{escaped(s.anchor)}">{escaped(s.heading)}</a></li>' for s in self.sections)
        contents = f'<nav aria-label="Contents"><ul>{links}</ul></nav>' if len(self.sections) > 2 else ""
        data = f'<script type="application/json" id="data">{safe_json(self.data)}</script>' if self.scripts else ""
        scripts = "".join(f"<script>{source}</script>" for source in self._sources)
        body = "".join(section.to_html() for section in self.sections)
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<meta http-equiv="Content-Security-Policy" content="{escaped(self.policy)}">'
            f'<meta name="referrer" content="no-referrer"><title>{escaped(self.title)}</title>'
            f'<link rel="icon" href="data:,"><style>{asset("page.css")}</style></head><body>'
            f'<a class="skip" href="#main">Skip to the content</a><header><h1>{escaped(self.title)}</h1>{self.lead}'
            f'</header>{contents}<main id="main">{body}</main><footer>{self.footer}</footer>{data}{scripts}</body>'
            "</html>\n"
        )
