"""Folders of exports: replaced as a whole, or not at all."""

from pathlib import Path

import pytest

from codedfl.errors import UsageError
from codedfl.report.exports import places
from rundirs import tree


def no(path: Path) -> bool:
    return False


class TestReplacing:
    def test_a_folder_is_made_with_its_parents(self, tmp_path: Path) -> None:
        places.replace_folder(tmp_path / "a/b", lambda folder: (folder / "new.txt").write_text("new"))
        assert tree(tmp_path) == {"a": None, "a/b": None, "a/b/new.txt": b"new"}

    def test_what_is_there_can_be_changed(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "a/old.txt").write_text("old")
        places.replace_folder(tmp_path / "a", lambda folder: (folder / "new.txt").write_text("new"))
        assert tree(tmp_path) == {"a": None, "a/old.txt": b"old", "a/new.txt": b"new"}

    @pytest.mark.parametrize("there", [True, False])
    def test_a_failure_changes_nothing(self, tmp_path: Path, there: bool) -> None:
        place = tmp_path / ("a" if there else "x/y/a")
        if there:
            place.mkdir()
            (place / "old.txt").write_text("old")
        before = tree(tmp_path)

        def fail(folder: Path) -> None:
            (folder / "old.txt").write_text("half")
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            places.replace_folder(place, fail)
        assert tree(tmp_path) == before

    def test_a_name_that_is_taken_meanwhile(self, tmp_path: Path) -> None:
        def take(folder: Path) -> None:
            (tmp_path / "a").write_text("taken")

        with pytest.raises(OSError, match="a"):
            places.replace_folder(tmp_path / "a", take)
        assert tree(tmp_path) == {"a": b"taken"}


def test_files_and_folders_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(UsageError, match="is a folder; choose a file"):
        places.check_file(tmp_path, no)
    with pytest.raises(UsageError, match="is a file; choose a folder"):
        places.check_folder(tmp_path / "file", no)
    places.check_file(tmp_path / "none", no)
    places.check_folder(tmp_path / "none", no)
