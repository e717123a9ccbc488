"""Commands as a shell starts them: a process, its status, and a reader that leaves early."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rundirs import environment


def process(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "codedfl.cli", *arguments]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, **options)


@pytest.mark.real
def test_a_process_of_its_own_says_one_sentence(tmp_path: Path) -> None:
    done = process("run", "nosuch", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("codedfl: no preset is called 'nosuch'")
    assert done.stderr.count("\n") == 1


@pytest.mark.real
def test_a_process_of_its_own_shows_a_traceback_for_debug(tmp_path: Path) -> None:
    done = process("--debug", "run", "nosuch", cwd=tmp_path)
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "ScenarioError" in done.stderr


@pytest.mark.real
def test_a_reader_that_leaves_early_gets_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "codedfl.cli", "data", "list", "--json"]
    with subprocess.Popen(
        command, env=environment(), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        assert started.stderr is not None
        started.stdout.close()
        assert started.stderr.read() == ""
        assert started.wait(timeout=60) in (0, 1)  # the reader does not care
