"""The server of pages: Starlette's requests and replies on uvicorn, behind checks of host, token and method."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, final

from codedfl.errors import MissingExtraError
from codedfl.report.web import addresses
from codedfl.report.web.application import Application
from codedfl.report.web.messages import Handler, WebRoute

_GRACE = 2
"""Seconds for which browsers may still read when a server stops."""
_MOST_CONNECTIONS = 100


def need_web() -> None:
    """Refuse to go on without the libraries of the server."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtraError(
            "pages that are served need starlette and uvicorn; install it with: pip install 'codedfl[explore]'"
        ) from None


@final
class PageServer:
    """Serves pages at ``http://HOST:PORT/TOKEN/``; the port is taken when the object is made.

    Parameters
    ----------
    routes : mapping of str to handler or WebRoute
        By path below the token; the page itself is ``""``. Plain handlers take GET.
    host, port : str, int
        An address of this machine; port 0 means any free one.
    token : str, optional
        The secret part of the address; a new one if not given. Requests without it get an empty 404.
    others : bool
        Whether an address that other machines can reach is allowed; ``warning`` then says what that means.
    most_bytes : int
        The largest body of a request.
    announce : callable
        Called with the address when the server has started.

    Examples
    --------
    >>> import urllib.request
    >>> from codedfl.report.web import WebResponse
    >>> server = PageServer({"": lambda request: WebResponse("hello")})
    >>> server.start()
    >>> with urllib.request.urlopen(server.address) as reply:
    ...     reply.read()
    b'hello'
    >>> server.stop()
    """

    def __init__(
        self,
        routes: Mapping[str, Handler | WebRoute],
        *,
        host: str = addresses.LOOPBACK,
        port: int = 0,
        token: str | None = None,
        others: bool = False,
        most_bytes: int = 1_000_000,
        announce: Callable[[str], object] = lambda address: None,
    ) -> None:
        need_web()
        import uvicorn

        self.host = addresses.check_host(host, others=others)
        self.token = addresses.new_token() if token is None else token
        self._announce = announce
        self._application = Application(routes, self.host, self.token, most_bytes)
        self._socket = addresses.bind(self.host, addresses.check_port(port))
        self.port: int = self._socket.getsockname()[1]
        # own loggers and handlers of signals stay as they are: the server is a guest in another program
        config = uvicorn.Config(
            self._application,
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            http="h11",
            server_header=False,
            date_header=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_graceful_shutdown=_GRACE,
        )
        self._server: Any = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """The address of the page, with its token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/{self.token}/"

    @property
    def warning(self) -> str | None:
        """What whoever serves to other machines should know; None on loopback."""
        return None if addresses.is_loopback(self.host) else addresses.UNENCRYPTED.format(host=self.host)

    def start(self) -> None:
        """Serve in a daemon thread, and announce the address."""
        run = self._server.run
        self._thread = threading.Thread(target=run, args=([self._socket],), name="codedfl-pages", daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.005)
        self._announce(self.address)

    def stop(self) -> None:
        """End event streams after their last event, and the server; browsers that do not read are cut off."""
        self._application.stopping = True
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(2 * _GRACE + 1)
        self._socket.close()

    def run_forever(self) -> None:
        """Serve until the program is interrupted (Ctrl-C)."""
        self.start()
        with contextlib.suppress(KeyboardInterrupt):
            while self._thread is not None and self._thread.is_alive():
                self._thread.join(0.5)
        self.stop()

    def __enter__(self) -> "PageServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
