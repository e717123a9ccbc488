"""Runs to look at: finished, and stopped.

Nothing of codedfl is imported at the top: pytest may read this file before the shape checks are installed.
"""

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run to copy from."""
    from rundirs import small_run

    return small_run(tmp_path_factory.mktemp("finished") / "run").path


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A finished run of one's own."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was stopped after some epochs and left its checkpoint."""
    from codedfl.runs import directory as runs
    from rundirs import Stopped, small_run, stop_at

    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
    with pytest.raises(Stopped):
        small_run(tmp_path / "run", progress=stop_at(12))
    assert (tmp_path / "run" / "checkpoint.npz").exists()
    return tmp_path / "run"
