"""``--live``: wrong options change nothing; the run directory and the output are those without it."""

import json
import re
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="pages that are served need Starlette, of the extra 'explore'")
pytest.importorskip("uvicorn", reason="pages that are served need uvicorn, of the extra 'explore'")

import httpx

from cli.conftest import Command
from codedfl.report.web import new_token
from rundirs import files, results, strict_json, tree
from tiny import is_one_sentence

RUN = ("run", "small.toml", "--out", "run")
LOCAL = ("deploy", "local", "small.toml", "--out", "run")
WRONG = {
    "a port without a page": (("--live-port", "8000"), "add --live"),
    "a host without a page": (("--live-host", "127.0.0.1"), "add --live"),
    "a port that is too large": (("--live", "--live-port", "65536"), "65536 is out of range"),
    "a port below 0": (("--live", "--live-port=-1"), "-1 is out of range"),
    "a port that is no number": (("--live", "--live-port", "http"), "--live-port"),
    "a host that is no address": (("--live", "--live-host", "example.org"), "'example.org' is no address"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("command", [RUN, LOCAL], ids=["run", "local"])
def test_wrong_places_are_refused_and_nothing_changes(
    codedfl: Command, folder: Path, command: tuple[str, ...], name: str
) -> None:
    words, part = WRONG[name]
    before = tree(folder)
    outcome = codedfl(*command, *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert part in outcome.err
    assert is_one_sentence(outcome.err.removesuffix("\n"))
    assert tree(folder) == before


def test_a_port_in_use_is_one_sentence_and_nothing_changes(codedfl: Command, folder: Path) -> None:
    before = tree(folder)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        outcome = codedfl(*RUN, "--live", "--live-port", port)
    assert (outcome.code, outcome.out, port in outcome.err) == (1, "", True)
    assert is_one_sentence(outcome.err.removesuffix("\n"))
    assert tree(folder) == before


def test_a_missing_extra_is_named(codedfl: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    outcome = codedfl(*RUN, "--live")
    assert (outcome.code, "pip install 'codedfl[explore]'" in outcome.err) == (1, True)
    assert not (folder / "run").exists()


def test_results_and_files_are_those_without_a_page(codedfl: Command, folder: Path) -> None:
    live = codedfl(*RUN, "--live", "--json")
    assert live.code == 0, live.err
    assert re.fullmatch(r"live page: http://127\.0\.0\.1:\d+/[\w-]{22}/\n", live.err)
    plain = codedfl("run", "small.toml", "--out", "plain", "--json")
    found, expected = strict_json(live.out), strict_json(plain.out)
    assert found | {"wall_seconds": 0} == expected | {"wall_seconds": 0}
    assert results(folder / "run") == results(folder / "plain")
    assert files(folder / "run") == files(folder / "plain")
    again = codedfl(*RUN, "--live", "--json")
    assert (again.code, again.err) == (0, "the run is finished: there is nothing to follow\n")
    assert strict_json(again.out) == found


def test_pages_of_a_run_that_was_killed_at_its_very_end_are_shown_the_result(codedfl: Command, folder: Path) -> None:
    assert codedfl(*RUN, "--json").code == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = new_token()
    (folder / "run" / ".live").write_text(json.dumps({"port": port, "token": token}))
    received: list[str] = []

    def wait_for_it() -> None:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            try:
                received.append(httpx.get(f"http://127.0.0.1:{port}/{token}/events").text)
            except httpx.ConnectError:
                time.sleep(0.05)
            else:
                return

    page = threading.Thread(target=wait_for_it)
    page.start()
    outcome = codedfl(*RUN, "--live", "--json")
    page.join()
    assert outcome.code == 0, outcome.err
    (event,) = [line.removeprefix("data: ") for line in received[0].splitlines() if line.startswith("data: ")][-1:]
    found = strict_json(event)
    assert (found["phase"], len(found["run"]["epochs"])) == ("finished", 24)
    assert found["result"]["score"] == strict_json(outcome.out)["final_accuracy"]
    assert not (folder / "run" / ".live").exists()
