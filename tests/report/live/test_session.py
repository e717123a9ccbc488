"""A live page from its first state to its last, and an address that survives the process."""

import json
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="pages that are served need Starlette, of the extra 'explore'")
pytest.importorskip("uvicorn", reason="pages that are served need uvicorn, of the extra 'explore'")

import httpx

from codedfl.errors import LostDevicesError, UsageError
from codedfl.report.live import VIRTUAL, LivePage, about_training, is_awaited
from codedfl.report.live.session import ADDRESS
from codedfl.scenario import load

NASTY = "<img src=x onerror=alert(1)>"


def about(folder: Path) -> dict[str, Any]:
    return about_training(load("paper-quick"), folder, VIRTUAL) | {"name": NASTY}


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


class Reader(threading.Thread):
    """Reads the stream of a page to its end."""

    def __init__(self, page: LivePage) -> None:
        super().__init__(daemon=True)
        self._address = page.address
        self.text = ""
        self.begun = threading.Event()
        self.start()
        assert self.begun.wait(60)

    def run(self) -> None:
        with httpx.stream("GET", f"{self._address}events", timeout=60) as reply:
            for part in reply.iter_text():
                self.text += part
                self.begun.set()


def test_the_page_names_the_training_as_text(tmp_path: Path) -> None:
    with LivePage(about(tmp_path), tmp_path) as page:
        text = httpx.get(page.address).text
    assert NASTY not in text
    assert "<h1>Training &lt;img src=x onerror=alert(1)&gt;</h1>" in text


def test_states_notes_and_the_result_arrive(tmp_path: Path) -> None:
    with LivePage(about(tmp_path), tmp_path) as page:
        reader = Reader(page)
        page.show({"epochs": [[1, 1.0, 0.5]], "epochs_version": "a", "devices": []})
        page.note("running")
        page.finish({"score": 0.5})
    reader.join(60)
    last = events(reader.text)[-1]
    assert (last["phase"], last["note"], last["result"]) == ("finished", "", {"score": 0.5})


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (LostDevicesError("epoch 3 got 1 of 2 replies"), "epoch 3 got 1 of 2 replies"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_an_error_is_shown_and_raised(tmp_path: Path, error: BaseException, words: str) -> None:
    readers = []

    def failing() -> None:
        with LivePage(about(tmp_path), tmp_path) as page:
            readers.append(Reader(page))
            raise error

    with pytest.raises(type(error)):
        failing()
    readers[0].join(60)
    last = events(readers[0].text)[-1]
    assert (last["phase"], words in last["note"]) == ("stopped", True)


def test_the_address_is_kept_in_a_private_file_until_the_end(tmp_path: Path) -> None:
    with LivePage(about(tmp_path), tmp_path) as page:
        assert not is_awaited(tmp_path), "nothing is written before the run has its folder"
        page.keep()
        kept = tmp_path / ADDRESS
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        first = page.address
    assert is_awaited(tmp_path), "the training has not finished"
    with LivePage(about(tmp_path), tmp_path) as again:
        assert again.address == first
        again.keep()
        reader = Reader(again)
        again.finish({})
    reader.join(60)
    assert not is_awaited(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_another_port_is_taken_where_the_kept_one_is_in_use(tmp_path: Path) -> None:
    with LivePage(about(tmp_path), tmp_path) as first:
        first.keep()
        with LivePage(about(tmp_path), tmp_path) as second:
            assert second.address != first.address
            assert second.address.split("/")[3] == first.address.split("/")[3], "the token is that of the run"
            assert httpx.get(second.address).status_code == 200


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"port": 1}', '{"port": "x", "token": "a"}', '{"port": 80, "token": "../../etc"}', "null"]
)
def test_a_damaged_address_is_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / ADDRESS).write_text(text)
    assert not is_awaited(tmp_path)
    with LivePage(about(tmp_path), tmp_path) as page:
        page.keep()
    assert is_awaited(tmp_path)


def test_other_machines_are_warned_of_and_wrong_places_refused(tmp_path: Path) -> None:
    warnings: list[str] = []
    with LivePage(about(tmp_path), tmp_path, host="0.0.0.0", warn=warnings.append):
        assert ["not encrypted" in sentence for sentence in warnings] == [True]
    with pytest.raises(UsageError, match="--live-host 'nowhere' is no address"):
        LivePage(about(tmp_path), tmp_path, host="nowhere")
    with pytest.raises(UsageError, match="--live-port 70000 is out of range"):
        LivePage(about(tmp_path), tmp_path, port=70000)
