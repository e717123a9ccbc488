"""A loopback mirror, and a cache folder of each test's own."""

import gzip
import http.server
import threading

import pytest


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        content = self.server.contents.get(self.path.removeprefix("/files/"))
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content) + self.server.missing))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    # not at the top: codedfl must not be imported before the run-time checks are installed
    from data.small_source import CONTENTS

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.contents = {f"{name}.gz": gzip.compress(content) for name, content in CONTENTS.items()}
        running.missing = 0
        running.address = f"http://127.0.0.1:{running.server_port}/files"
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))  # looks so often whether to end
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CODEDFL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CODEDFL_DATA", raising=False)
    return tmp_path / "cache" / "small"


@pytest.fixture
def said():
    return []
