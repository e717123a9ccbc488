"""Sites without numba, scipy, pyarrow, scikit-learn, Typer and Rich: they take part, and compute the same bits."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.data import portable as portable_cosine
from codedfl.data import tables
from codedfl.data.kernels import cosine_of_turns
from codedfl.errors import HEAVY, DataError, MissingExtraError, MissingLibrary
from rundirs import environment
from tiny import is_one_sentence

PROGRAM = Path(__file__).parents[2] / "small_site.py"
ROWS = "height,place,label\n1.5,north,a\n,south,b\n-2e3,north,a\n4,NA,b\n"


def found(folder: Path, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, PROGRAM, folder, *options], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_small_site_trains_the_same_models(tmp_path: Path) -> None:
    """Every scheme that small sites know, to the last bit; nothing else is loaded by the modules of a site."""
    (tmp_path / "rows.csv").write_text(ROWS)
    small, whole = found(tmp_path, "--blocked"), found(tmp_path)
    assert small.pop("loaded") == []
    assert "numba" in whole.pop("loaded")
    assert small == whole


def test_a_small_site_refuses_what_it_lacks_libraries_for(tmp_path: Path) -> None:
    """In one sentence, before it reads its data; with the libraries it goes on to read them."""
    lacking = {
        "code-based": "scheme 'code-based': it needs scipy,",
        "he": "scheme 'he': it needs pyarrow,",
        "parity": "scheme 'parity': it needs scipy,",
        "secagg": "scheme 'secagg' with noise: it needs numba and scipy,",
    }
    small, whole = found(tmp_path, "--blocked", "--asked"), found(tmp_path, "--asked")
    assert set(small) == set(lacking)
    for name, words in lacking.items():
        assert f"device-1 cannot take part in {words} which is not installed" in small[name]
        assert "pip install 'codedfl[study]'" in small[name]
        assert is_one_sentence(small[name])
    assert set(whole.values()) == {
        "the data of device-1 cannot be used for this run; its owner finds the reason in its log"
    }


CELLS = [
    "",
    "NA",
    "nan",
    "1",
    "0",
    "-7",
    "2.5",
    "1e3",
    "inf",
    "true",
    "False",
    "north",
    "south",
    " 4",
    "9" * 25,
    "ü",
    "a,b",
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables") / "rows.csv"


def outcome(path: Path, target: str) -> Any:
    """What a table holds, or that it is refused."""
    try:
        part = tables.read_table(path, target)
    except DataError:
        return "refused"
    return [(each.dtype, each.shape, each.tobytes()) for each in (part.x, part.y)], part.columns, part.targets


@given(
    columns=st.lists(st.lists(st.sampled_from(CELLS), min_size=4, max_size=4), min_size=2, max_size=4),
    target=st.integers(0, 1),
)
def test_csv_files_are_read_as_by_pyarrow(file: Path, columns: list[list[str]], target: int) -> None:
    with file.open("w", newline="", encoding="utf-8") as opened:
        csv.writer(opened).writerows([[f"c{place}" for place in range(len(columns))], *zip(*columns, strict=True)])
    expected = outcome(file, f"c{target}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_has_arrow", lambda: False)
        assert outcome(file, f"c{target}") == expected


@pytest.mark.parametrize("content", [b"", b"a,b\n", b"a,b\n1,2,3\n", b"a,b\n1\n", b"a,b\n\xff,1\n", b'a,b\n"1,2\n'])
def test_files_that_are_no_tables_are_refused(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_has_arrow", lambda: False)
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"rows\.csv") as refused:
        tables.read_table(path, None)
    assert is_one_sentence(str(refused.value))


def test_what_needs_a_library_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_has_arrow", lambda: False)
    with pytest.raises(MissingExtraError, match=r"pip install 'codedfl\[study\]'") as refused:
        tables.open_table(tmp_path / "rows.parquet")
    assert is_one_sentence(str(refused.value))
    for name in HEAVY:
        with pytest.raises(MissingExtraError, match=f"needs {name}, which is not installed"):
            _ = MissingLibrary(name).linalg


COMMANDS = {
    "run": (["run", "paper-quick"], 1, "codedfl: this needs"),
    "a scheme": (["run", "paper-quick", "--set", "scheme=code-based"], 1, "codedfl: this needs"),
    "terms": (["site", "terms", "paper-quick"], 0, ""),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_without_the_libraries(name: str, tmp_path: Path) -> None:
    """One sentence that names the extra; what needs no library works."""
    words, code, says = COMMANDS[name]
    block = f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r}); import small_site as s; "
    block += "s.BLOCKED -= {'rich', 'typer'}; sys.meta_path.insert(0, s.Blocker()); "
    command = [sys.executable, "-c", f"{block}from codedfl.cli import main; main({words!r})"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    last = done.stderr.strip().splitlines()[-1:] or [""]
    assert last[0].startswith(says)
    assert not says or "pip install 'codedfl[study]'" in last[0]
    assert "Traceback" not in done.stderr


def test_the_cosine_in_numpy(rng: np.random.Generator) -> None:
    """At most one unit in the last place from the compiled one, and nearly always equal."""
    block, offset = rng.normal(0, 3, (200, 300)).astype(np.float32), rng.random(300, np.float32)
    compiled, plain = block.copy(), block.copy()
    cosine_of_turns(compiled, offset, np.float32(0.08))
    portable_cosine.cosine_of_turns(plain, offset, np.float32(0.08))
    assert np.mean(compiled != plain) < 0.01
    assert np.max(abs(compiled - plain)) <= np.spacing(np.float32(0.08))
