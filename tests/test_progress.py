"""Progress callbacks for logs."""

import re

from codedfl.progress import dated_lines, silent

DATE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")


class Log:
    """The lines of a log whose clock the test sets."""

    def __init__(self) -> None:
        self.now = 100.0
        self.lines: list[str] = []
        self._report = dated_lines(self.lines.append, clock=lambda: self.now)

    def at(self, seconds: float, stage: str, done: int, total: int) -> list[str]:
        """Report at a time after the beginning, and return the texts of the lines that this adds."""
        self.now, before = 100.0 + seconds, len(self.lines)
        self._report(stage, done, total)
        added = self.lines[before:]
        assert all(DATE.match(line) for line in added)
        return [DATE.sub("", line) for line in added]


def test_short_work_is_silent() -> None:
    log = Log()
    for second in range(10):
        assert log.at(second, "training", second + 1, 10) == []
    silent("training", 1, 10)


def test_one_line_for_each_stage_after_ten_seconds() -> None:
    log = Log()
    assert log.at(9.9, "training", 5, 100) == []
    assert log.at(10, "training", 6, 100) == ["training: 6 of 100"]
    assert log.at(11, "training", 99, 100) == []
    assert log.at(12, "training", 100, 100) == [], "it has not taken ten seconds"
    assert log.at(13, "timing", 1, 2) == ["timing: 1 of 2"]
    assert log.at(30, "timing", 2, 2) == ["timing: done in 17 s"]
    assert log.at(31, "timing", 2, 2) == []
    assert log.at(32, "timing", 1, 2) == ["timing: 1 of 2"], "the same stage again"


def test_a_sentence_is_a_stage_of_its_own() -> None:
    log = Log()
    assert log.at(11, "waiting for sites", 0, 0) == ["waiting for sites"]
    assert log.at(12, "waiting for sites", 0, 0) == []
    assert log.at(13, "sites are there", 0, 0) == ["sites are there"]


def test_a_long_stage_has_a_line_a_minute() -> None:
    log = Log()
    assert log.at(20, "training", 1, 9) == ["training: 1 of 9"]
    assert log.at(79.9, "training", 2, 9) == []
    assert log.at(80, "training", 3, 9) == ["training: 3 of 9"]
    assert log.at(139, "training", 4, 9) == []
    assert log.at(150, "training", 9, 9) == ["training: done in 130 s"]


def test_stages_that_alternate_have_a_line_each() -> None:
    """As in `compare --all`: a training, and the percentage of everything."""
    log = Log()
    assert log.at(11, "training", 1, 900) == ["training: 1 of 900"]
    assert log.at(11, "everything", 0, 100) == ["everything: 0 of 100"]
    for epoch in range(2, 100):
        assert log.at(11 + epoch / 100, "training", epoch, 900) == []
        assert log.at(11 + epoch / 100, "everything", 1, 100) == []
    assert log.at(71, "training", 200, 900) == ["training: 200 of 900"]
    assert log.at(71, "everything", 2, 100) == ["everything: 2 of 100"]


def test_a_stage_that_begins_again_before_its_end_has_a_line() -> None:
    log = Log()
    assert log.at(11, "training", 500, 900) == ["training: 500 of 900"]
    assert log.at(12, "training", 1, 900) == ["training: 1 of 900"], "the next scheme; the last stopped at its target"


def test_a_sentence_that_comes_back_is_said_again() -> None:
    log = Log()
    assert log.at(11, "one", 0, 0) == ["one"]
    assert log.at(12, "two", 0, 0) == ["two"]
    assert log.at(13, "one", 0, 0) == ["one"]
