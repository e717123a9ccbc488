"""Notebooks in examples/ are stored without output; the site executes them (tests/browser/test_site.py)."""

from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_clean_and_on_the_site(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)
    assert f"examples/{path.name}\n" in (ROOT / "docs/index.md").read_text(encoding="utf-8")
