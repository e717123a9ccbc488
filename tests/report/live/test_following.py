"""Status files of deployed trainings: every new content is shown, what was there before is not."""

import threading
from pathlib import Path
from typing import Any

from codedfl.report.live import followed_status
from codedfl.storage import write_json, write_text


def test_new_contents_are_shown_and_the_last_one_in_any_case(tmp_path: Path) -> None:
    path, shown, news = tmp_path / "status.json", [], threading.Event()
    write_json(path, {"devices": [], "epoch": "of an earlier job"})

    def show(table: dict[str, Any]) -> None:
        shown.append(table["epoch"])
        news.set()

    with followed_status(path, show):
        for text in ("", "[1]", "{", '{"devices": 1}'):
            write_text(path, text)
        write_json(path, {"devices": [], "epoch": 1})
        assert news.wait(60)
        write_json(path, {"devices": [], "epoch": 2})
    assert (shown[0], shown[-1]) == (1, 2)


def test_a_file_that_never_comes_shows_nothing(tmp_path: Path) -> None:
    shown: list[Any] = []
    with followed_status(tmp_path / "nothing.json", shown.append):
        pass
    assert shown == []
