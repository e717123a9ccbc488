"""The laws of the page server, as a client of HTTP sees them."""

import logging
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="pages that are served need Starlette, of the extra 'explore'")
pytest.importorskip("uvicorn", reason="pages that are served need uvicorn, of the extra 'explore'")

import httpx

from codedfl.errors import MissingExtraError, UsageError
from codedfl.report.pages import Document, Section
from codedfl.report.web import EventStream, PageServer, WebRequest, WebResponse, WebRoute, new_token
from rundirs import environment

DOCUMENT = Document("t", [Section("h", "<p>words</p>")], scripts=["page.js"], charts=False, served=True)


def echo(request: WebRequest) -> WebResponse:
    return WebResponse.of_json({"method": request.method, "query": dict(request.query), "body": request.json()})


def refusing(_: WebRequest) -> WebResponse:
    raise UsageError("training.epochs = 0 must be above 0; give more")


def failing(_: WebRequest) -> WebResponse:
    raise ZeroDivisionError("secret")


def three(_: WebRequest) -> EventStream:
    events: list[Sequence[str] | None] = [["1"], [], ["2", "3"], None]
    return EventStream(lambda: events.pop(0), every=0.001)


def endless(_: WebRequest) -> EventStream:
    return EventStream(lambda: ["1"], every=0.001)


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    routes = {
        "": lambda request: WebResponse.of_page(DOCUMENT),
        "echo": WebRoute(echo, ("POST",)),
        "refusing": refusing,
        "failing": failing,
        "three": three,
        "endless": endless,
    }
    with PageServer(routes, most_bytes=1000) as made:
        yield made


def root(server: PageServer) -> str:
    return server.address.removesuffix(f"{server.token}/")


def test_the_page_and_its_headers(server: PageServer) -> None:
    reply = httpx.get(server.address)
    assert (reply.status_code, reply.text) == (200, DOCUMENT.to_html())
    expected = {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": f"{DOCUMENT.policy}; frame-ancestors 'none'",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
        "cross-origin-resource-policy": "same-origin",
        "x-frame-options": "DENY",
    }
    assert {name: reply.headers.get(name) for name in expected} == expected
    assert not {"set-cookie", "server", "access-control-allow-origin"} & set(reply.headers)


def test_without_the_token_nothing_is_told(server: PageServer) -> None:
    token, base = server.token, root(server)
    wrong = (
        *("", token, "favicon.ico", "x/", f"{token[:-1]}/", f"{token}x/", f"{token.swapcase()}/", f"/{token}/"),
        *(f"{new_token()}/", f"{new_token()}/echo", f"{token}/nothing", f"{token}/../"),
    )
    for method in ("GET", "POST", "PUT"):
        for path in wrong:
            reply = httpx.request(method, base + path)
            assert (reply.status_code, reply.content) == (404, b""), (method, path)
            assert reply.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "10.0.0.1", "localhost.evil.example", ""])
def test_another_host_gets_nothing_though_it_has_the_token(server: PageServer, host: str) -> None:
    reply = httpx.get(server.address, headers={"Host": host})
    assert (reply.status_code, reply.content) in ((404, b""), (400, reply.content))
    assert b"words" not in reply.content


def test_names_of_loopback_are_served(server: PageServer) -> None:
    for host in (f"localhost:{server.port}", "127.0.0.1", "localhost:1"):
        assert httpx.get(server.address, headers={"Host": host}).status_code == 200


def test_methods(server: PageServer) -> None:
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"):
        assert httpx.request(method, server.address).status_code == 405
    assert httpx.get(server.address + "echo").status_code == 405


def test_a_handler_gets_query_and_body(server: PageServer) -> None:
    reply = httpx.post(server.address + "echo?a=1&b=%3C", json={"x": [1, "<"]})
    assert reply.json() == {"method": "POST", "query": {"a": "1", "b": "<"}, "body": {"x": [1, "<"]}}
    assert reply.headers["content-type"] == "application/json"
    assert "<" not in reply.text
    wrong = httpx.post(server.address + "echo", content=b"{")
    assert (wrong.status_code, "no JSON" in wrong.json()["error"]) == (400, True)


def test_large_bodies_are_refused_whether_they_say_their_size_or_not(server: PageServer) -> None:
    assert httpx.post(server.address + "echo", json="x" * 900).status_code == 200
    assert httpx.post(server.address + "echo", json="x" * 5000).status_code == 413
    chunks = (b"x" * 100 for _ in range(100))
    assert httpx.post(server.address + "echo", content=chunks).status_code == 413


def test_requests_of_other_pages_are_refused(server: PageServer) -> None:
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{server.port}"):
        assert httpx.post(server.address + "echo", json=1, headers={"Origin": origin}).status_code == 403
    own = {"Origin": root(server).removesuffix("/")}
    assert httpx.post(server.address + "echo", json=1, headers=own).status_code == 200


def test_errors_are_sentences_or_nothing(server: PageServer, caplog: pytest.LogCaptureFixture) -> None:
    refusal = httpx.get(server.address + "refusing")
    assert (refusal.status_code, refusal.json()) == (400, {"error": "training.epochs = 0 must be above 0; give more"})
    with caplog.at_level(logging.CRITICAL + 1):
        failure = httpx.get(server.address + "failing")
    assert (failure.status_code, "secret" in failure.text) == (500, False)


def test_events_come_in_order(server: PageServer) -> None:
    reply = httpx.get(server.address + "three")
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.text == "retry: 1000\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\n"


def test_a_browser_that_does_not_read_holds_back_nobody(server: PageServer) -> None:
    """Its socket fills up; others are served, and the server stops in time (the fixture stops it)."""
    stuck = socket.create_connection((server.host, server.port))
    stuck.sendall(f"GET /{server.token}/endless HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    for _ in range(20):
        assert httpx.get(server.address + "three").text.endswith("data: 3\n\n")
    stuck.close()


def test_many_clients_at_once(server: PageServer) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(httpx.get(server.address + "three").text)) for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 12


def test_stop_sends_the_last_event_to_open_streams() -> None:
    asked, news = threading.Event(), ["1"]

    def poll() -> list[str]:
        found = [*news]
        news.clear()
        asked.set()
        return found

    server = PageServer({"events": lambda request: EventStream(poll)})
    server.start()
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(httpx.get(server.address + "events").text))
    reader.start()
    assert asked.wait(30)
    news.append("last")
    server.stop()
    reader.join(30)
    assert received == ["retry: 1000\n\ndata: 1\n\ndata: last\n\n"]
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.address)


def test_port_and_token_can_be_taken_again() -> None:
    def made(port: int, token: str | None) -> PageServer:
        return PageServer({"": lambda request: WebResponse("x")}, port=port, token=token)

    with made(0, None) as first:
        address = first.address
        assert httpx.get(address).text == "x"
    with made(first.port, first.token) as second:
        assert second.address == address
        assert httpx.get(address).text == "x"


def test_addresses_are_announced_and_other_machines_warned_of() -> None:
    lines: list[str] = []
    with PageServer({}, announce=lines.append) as server:
        assert lines == [server.address]
        assert server.warning is None
    with pytest.raises(UsageError, match="other machines"):
        PageServer({}, host="0.0.0.0")
    open_to_all = PageServer({}, host="0.0.0.0", others=True)
    assert "not encrypted" in str(open_to_all.warning)
    open_to_all.stop()


def test_without_the_libraries_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'codedfl\[explore\]'"):
        PageServer({})


FOREGROUND = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from codedfl.report.web import PageServer, WebResponse
shown = lambda address: print(address, file=sys.stderr, flush=True)
PageServer({"": lambda request: WebResponse("x")}, announce=shown).run_forever()
"""


def test_in_the_foreground_an_interrupt_ends_it_cleanly(tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", FOREGROUND], env=environment(), stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stderr is not None
        address = process.stderr.readline().strip()
        assert httpx.get(address).text == "x"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "", "")
