"""What handlers of pages are given, and what they return."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from codedfl.errors import UsageError
from codedfl.report.pages import Document, safe_json

NO_CONTENT_POLICY = "default-src 'none'"
"""The policy of replies that are no pages."""


@final
@dataclass(frozen=True)
class WebRequest:
    """A request with the right token: its method, the parameters of its query, and its body."""

    method: str
    path: str
    """Below the token, without slashes around it."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case name."""

    def json(self) -> Any:
        """Return the body as JSON values; refuse what is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise UsageError("the body of the request is no JSON; send a JSON object") from None


@final
@dataclass(frozen=True)
class WebResponse:
    """A reply: text or bytes with their media type."""

    body: str | bytes
    kind: str = "text/plain; charset=utf-8"
    status: int = 200
    policy: str = NO_CONTENT_POLICY
    """The content security policy."""

    @classmethod
    def of_page(cls, document: Document) -> "WebResponse":
        """Return a page under its own policy."""
        return cls(document.to_html(), "text/html; charset=utf-8", policy=document.policy)

    @classmethod
    def of_json(cls, value: Any, status: int = 200) -> "WebResponse":
        """Return plain data as JSON; numbers that are not finite become null."""
        return cls(safe_json(value), "application/json", status)


@final
@dataclass(frozen=True)
class EventStream:
    """Server-sent events.

    ``poll`` is called again and again, on the thread of the server, and returns at once: the JSON of new events, or
    None when the stream is over. Nothing is queued: while a browser does not read, ``poll`` is not called.
    """

    poll: Callable[[], Sequence[str] | None]
    every: float = 0.2
    """Seconds between calls."""


Handler = Callable[[WebRequest], WebResponse | EventStream]
"""Runs in a thread of its own; a ``CodedflError`` becomes a reply with status 400 and its sentence as ``error``."""


@final
@dataclass(frozen=True)
class WebRoute:
    """A handler that takes other methods than GET."""

    handler: Handler
    methods: Sequence[str] = ("GET",)
