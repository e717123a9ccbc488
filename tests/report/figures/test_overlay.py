"""Numbers of one's own: read as they are, or refused in one sentence that names row and column."""

from pathlib import Path

import pytest

from codedfl.errors import UsageError
from codedfl.report.figures.overlay import SETTINGS, TIMES, Series, read_overlay


def put(folder: Path, text: str | bytes) -> Path:
    path = folder / "mine.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_points_of_a_label_belong_together(tmp_path: Path) -> None:
    path = put(tmp_path, "\ufeffaccuracy,label,time\n0.5,a,1e1\n0.6,b,20\n0.7,a, 30 \n")
    assert read_overlay(path, TIMES) == [Series("a", (10.0, 30.0), (0.5, 0.7)), Series("b", (20.0,), (0.6,))]


def test_settings_may_be_texts(tmp_path: Path) -> None:
    path = put(tmp_path, "label,x,y\na,sealed,3\n")
    assert read_overlay(path, SETTINGS, ["minibatch", "sealed"]) == [Series("a", ("sealed",), (3.0,))]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("label,time\na,1\n", "has the columns label, time; they must be label, time, accuracy"),
        ("", "has the columns none"),
        ("label,time,accuracy\n", "has 0 rows"),
        ("label,time,accuracy\na,1,0.5\na,soon,0.5\n", "row 3, column time: 'soon' is not a finite number"),
        ("label,time,accuracy\na,1,nan\n", "row 2, column accuracy: 'nan' is not"),
        ("label,time,accuracy\na,1,inf\n", "row 2, column accuracy: 'inf' is not"),
        ("label,time,accuracy\na,1\n", "row 2, column accuracy: '' is not"),
        ("label,time,accuracy\na,0,0.5\n", "row 2, column time: '0' must be above 0"),
        ("label,time,accuracy\n ,1,0.5\n", "row 2, column label: '' is no label"),
        (b"\xff\xfe", "is not text in UTF-8"),
        ('label,time,accuracy\n"a,1,0.5\n', "is not CSV"),
        ("label,time,accuracy\n" + "a,1,0.5\n" * 10_001, "has 10001 rows"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_overlay(put(tmp_path, text), TIMES)
    assert words in str(refused.value)


def test_a_text_that_is_not_on_the_axis(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"row 2, column x: 'nosuch' is not on the axis; choose one of a, b"):
        read_overlay(put(tmp_path, "label,x,y\nz,nosuch,1\n"), SETTINGS, ["a", "b"])


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_overlay(tmp_path / "nosuch.csv", TIMES)
