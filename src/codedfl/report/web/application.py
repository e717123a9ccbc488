"""Checks every request, calls its handler, and sends the reply with headers that protect it."""

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, final

from codedfl.errors import CodedflError
from codedfl.report.web.addresses import is_own_host
from codedfl.report.web.messages import NO_CONTENT_POLICY, EventStream, Handler, WebRequest, WebResponse, WebRoute

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
_KEEP_ALIVE = 10.0
"""Seconds after which a silent stream sends a comment, so that dead connections are noticed."""
_RETRY = 1000
"""Milliseconds after which a browser connects again."""
_FAILED = "the request failed because of an error in codedfl; the program's log has the reason"

_log = logging.getLogger(__name__)


class _TooLargeError(Exception):
    """The body of a request is larger than allowed."""


@final
class Application:
    """An ASGI application. Requests for another host, or without the token, get an empty 404."""

    def __init__(self, routes: Mapping[str, Handler | WebRoute], host: str, token: str, most_bytes: int) -> None:
        self._routes = {
            path.strip("/"): each if isinstance(each, WebRoute) else WebRoute(each) for path, each in routes.items()
        }
        self._host = host
        self._token = token.encode()
        self._most_bytes = most_bytes
        self.stopping = False
        """Whether event streams end after the events that they have."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request."""
        from starlette.requests import Request

        if scope["type"] == "http":
            request = Request(scope, receive)
            reply = await self._reply(request)
            await self._sendable(reply, request)(scope, receive, send)

    async def _reply(self, request: Any) -> WebResponse | EventStream:
        route = self._route(request)
        if route is None:
            return WebResponse("", status=404)
        if request.method not in route.methods:
            return WebResponse("", status=405)
        if not _same_origin(request.headers):
            return WebResponse("", status=403)
        try:
            return await self._handled(request, route)
        except _TooLargeError:
            return WebResponse.of_json({"error": f"the request is larger than {self._most_bytes:,} bytes"}, 413)
        except CodedflError as error:
            return WebResponse.of_json({"error": str(error)}, 400)
        except Exception:
            _log.exception("a request for a page failed")
            return WebResponse.of_json({"error": _FAILED}, 500)

    def _route(self, request: Any) -> WebRoute | None:
        """Return the route of a request that is meant for this server and knows the token."""
        if not is_own_host(request.headers.get("host", ""), self._host):
            return None
        token, slash, path = request.url.path.removeprefix("/").partition("/")
        known = hmac.compare_digest(token.encode(errors="replace"), self._token)
        return self._routes.get(path) if known and slash else None

    async def _handled(self, request: Any, route: WebRoute) -> WebResponse | EventStream:
        from starlette.concurrency import run_in_threadpool

        path = request.url.path.removeprefix("/").partition("/")[2]
        body = await self._body(request)
        query, headers = dict(request.query_params), dict(request.headers)
        reply: WebResponse | EventStream = await run_in_threadpool(
            route.handler, WebRequest(request.method, path, query, body, headers)
        )
        return reply

    async def _body(self, request: Any) -> bytes:
        found = bytearray()
        async for chunk in request.stream():
            found += chunk
            if len(found) > self._most_bytes:
                raise _TooLargeError
        return bytes(found)

    def _sendable(self, reply: WebResponse | EventStream, request: Any) -> Any:
        from starlette.responses import Response, StreamingResponse

        if isinstance(reply, EventStream):
            headers = _HEADERS | {"Content-Security-Policy": NO_CONTENT_POLICY}
            return StreamingResponse(self._events(reply), 200, headers, "text/event-stream")
        headers = _HEADERS | {"Content-Security-Policy": f"{reply.policy}; frame-ancestors 'none'"}
        if reply.status >= 400:  # what is left of a body is not read
            headers["Connection"] = "close"
        return Response(reply.body, reply.status, headers, reply.kind)

    async def _events(self, stream: EventStream) -> AsyncIterator[str]:
        """Send events as they come; one that the browser has not taken holds back the next, and nothing else."""
        yield f"retry: {_RETRY}\n\n"
        sent = time.monotonic()
        while True:
            last = self.stopping  # events from before the end of the server are still sent
            found = stream.poll()
            for event in found or ():
                yield f"data: {event}\n\n"
                sent = time.monotonic()
            if found is None or last:
                return
            if time.monotonic() - sent > _KEEP_ALIVE:
                yield ": waiting\n\n"
                sent = time.monotonic()
            await asyncio.sleep(stream.every)


def _same_origin(headers: Mapping[str, str]) -> bool:
    """Return whether no other page asks; programs other than browsers send no origin."""
    origin = headers.get("origin")
    return origin is None or origin == f"http://{headers.get('host', '')}"
