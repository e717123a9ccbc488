"""Progress in notebooks: a fake kernel, and a real one."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import codedfl
from codedfl.front.notebook import NotebookProgress, notebook_display, shown
from codedfl.progress import silent
from report.exports.made import HOSTILE
from rundirs import SMALL, InlinePool, environment

FEW = {"training.epochs": 4, "timing.draws": 3, "timing.repeats": 1}


class Screen:
    """What a notebook shows, and a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 50.0
        self.states: list[dict[str, str]] = []
        self.outputs = 0

    def display(self, bundle: dict[str, str]) -> Any:
        self.outputs += 1
        self.states.append(bundle)
        return self.states.append

    def plain(self) -> list[str]:
        return [state["text/plain"] for state in self.states]


@pytest.fixture
def screen() -> Screen:
    return Screen()


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """A fake kernel, whose display ids a test can look at."""
    screen, library, part = Screen(), ModuleType("IPython"), ModuleType("IPython.display")

    def display(bundle: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        screen.display(bundle)
        return SimpleNamespace(update=lambda changed, raw: screen.states.append(changed))

    library.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    part.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", library)
    monkeypatch.setitem(sys.modules, "IPython.display", part)
    return screen


class TestBars:
    def test_one_output_is_updated(self, screen: Screen) -> None:
        bars = NotebookProgress(screen.display, clock=lambda: screen.now)
        bars("training", 0, 10)
        bars("training", 1, 10)  # too soon
        screen.now += 0.2
        bars("training", 5, 10)
        bars("timing", 1, 1)
        screen.now += 1.8
        bars.finish("done")
        empty, half, full = " " * 30, "#" * 15 + " " * 15, "#" * 30
        assert screen.plain() == [
            f"training [{empty}] 0 of 10",
            f"training [{half}] 5 of 10",
            f"training [{half}] 5 of 10\ntiming [{full}] 1 of 1",
            "training, timing: done in 2.0 s",
        ]
        assert screen.outputs == 1
        assert screen.states[1]["text/html"] == '<div>training <progress value="5" max="10"></progress> 5 of 10</div>'

    def test_a_sentence_has_no_bar(self, screen: Screen) -> None:
        NotebookProgress(screen.display)("reading digits", 0, 0)
        assert screen.states == [{"text/plain": "reading digits", "text/html": "<div>reading digits </div>"}]

    def test_only_the_last_stages_are_shown(self, screen: Screen) -> None:
        bars = NotebookProgress(screen.display)
        for number in range(20):
            bars(f"stage {number}", 1, 2)
        assert screen.plain()[-1].splitlines()[0].startswith("stage 12 ")
        assert len(screen.plain()[-1].splitlines()) == 8

    def test_more_than_everything_is_full(self, screen: Screen) -> None:
        NotebookProgress(screen.display)("training", 12, 10)
        assert screen.plain() == [f"training [{'#' * 30}] 12 of 10"]

    def test_names_are_text(self, screen: Screen) -> None:
        bars = NotebookProgress(screen.display)
        bars(HOSTILE, 1, 2)
        bars.finish("done")
        for state in screen.states:
            assert "<script" not in state["text/html"]
            assert "<img" not in state["text/html"]

    def test_without_a_stage_nothing_is_shown(self, screen: Screen) -> None:
        NotebookProgress(screen.display).finish("done")
        assert screen.states == []


class TestChoice:
    def test_outside_notebooks_it_is_silent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(sys.modules, "IPython", raising=False)
        assert notebook_display() is None
        with shown(None) as progress:
            assert progress is silent
        assert "IPython" not in sys.modules

    @pytest.mark.parametrize("shell", [None, SimpleNamespace(), SimpleNamespace(kernel=None)])
    def test_in_a_terminal_it_is_silent(self, monkeypatch: pytest.MonkeyPatch, shell: Any) -> None:
        library = ModuleType("IPython")
        monkeypatch.setitem(sys.modules, "IPython", library)
        assert notebook_display() is None, "a module that is still being imported"
        library.get_ipython = lambda: shell  # type: ignore[attr-defined]
        assert notebook_display() is None

    def test_a_given_callback_counts(self, kernel: Screen) -> None:
        with shown(silent) as progress:
            assert progress is silent
            progress("training", 1, 2)
        assert kernel.states == []

    def test_an_error_ends_the_bars(self, kernel: Screen) -> None:
        with pytest.raises(KeyboardInterrupt), shown(None) as progress:
            progress("training", 1, 2)
            raise KeyboardInterrupt
        assert kernel.plain()[-1].startswith("training: stopped in ")


def test_every_function_shows_bars_in_a_kernel(kernel: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("codedfl.studies.processes.ProcessPoolExecutor", InlinePool)
    codedfl.run("small.toml", "run", FEW)
    codedfl.compare("small.toml", ["conventional"], "compare", FEW)
    codedfl.sweep("small.toml", {"links.loss": [0.1]}, "sweep", FEW, workers=1)
    codedfl.plan("small.toml", ["conventional"], draws=3)
    codedfl.attack("small.toml", ["null"], {"scheme": "sealed"}, epochs=2)
    assert kernel.outputs == 5
    assert sum(": done in " in text for text in kernel.plain()) == 5
    before = len(kernel.states)
    codedfl.run("small.toml", "run", FEW)
    assert len(kernel.states) == before, "a finished run is loaded"


CELLS = [
    "import codedfl",
    f"codedfl.run('small.toml', 'run', {FEW})",
    "codedfl.run('small.toml', 'none', {'scheme': 'x'})",
]


@pytest.mark.real
@pytest.mark.filterwarnings("ignore")
def test_a_real_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    (tmp_path / "small.toml").write_text(SMALL)
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", allow_errors=True, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    imported, ran, failed = (cell["outputs"] for cell in notebook.cells)
    assert imported == []
    bars, result = ran
    assert bars["output_type"] == "display_data"
    assert "done in" in bars["data"]["text/plain"], "the first state, a bar, was replaced in place"
    assert bars["data"]["text/html"].startswith("<small>")
    assert result["output_type"] == "execute_result"
    assert result["data"]["text/html"].startswith("<table><tr><th>scenario</th><td>small</td></tr>")
    assert [output["output_type"] for output in failed] == ["error"]
