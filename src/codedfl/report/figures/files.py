"""Files of figures: PNG, SVG and PDF of the exact size asked for, with fonts that stay text."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codedfl.errors import MissingExtraError, RunDirectoryError
from codedfl.progress import Progress
from codedfl.report.figures.style import lay_out
from codedfl.storage import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("pdf", "svg", "png")
_FONTS: Any = {"pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "codedfl"}
"""TrueType fonts whole in PDF (journals refuse Type 3), text as text in SVG, and the same bytes for the same figure."""
_NO_ENGINE: Any = {"figure.autolayout": False, "figure.constrained_layout.use": False}
"""A figure without a layout engine of its own has none."""
_METADATA: dict[str, dict[str, None]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}


def save(figure: "Figure", path: Path) -> None:
    """Write a figure as PNG and as SVG beside it."""
    for kind in ("png", "svg"):
        save_as(figure, path.with_suffix(f".{kind}"), kind)


def save_as(figure: "Figure", path: Path, kind: str) -> None:
    """Write a figure in one format, atomically."""
    import matplotlib

    _fix_layout(figure)
    with matplotlib.rc_context(_FONTS):
        write_whole(path, lambda file: figure.savefig(file, format=kind, metadata=_METADATA[kind]))


def _fix_layout(figure: "Figure") -> None:
    """Lay a figure out once for all formats; with an engine, matplotlib lays it out and draws it twice for each."""
    import matplotlib

    lay_out(figure)
    with matplotlib.rc_context(_NO_ENGINE):
        figure.set_layout_engine(None)


def save_if_possible(draw: Callable[[], "Figure"], path: Path, progress: Progress) -> bool:
    """Draw and write a figure; without matplotlib report that it is left out, and return False."""
    try:
        save(draw(), path)
    except MissingExtraError:
        progress(f"{path.name} left out: install codedfl[plots]", 0, 0)
        return False
    return True


def save_or_refuse(write: Callable[[], None], path: Path) -> None:
    """Write a file; say in one sentence why it cannot be written."""
    try:
        write()
    except OSError as error:
        raise RunDirectoryError(f"cannot write '{path}' ({error.strerror}); choose another --out") from None


def svg_text(figure: "Figure") -> str:
    """Return the ``<svg>`` element of a figure to stand in a page.

    Its background is transparent; text, axes and grid have the colour of the page's text (``currentColor``), so that
    the same element is readable on light and dark pages. It has no ids but those it refers to, and no style sheet.
    """
    import matplotlib

    _fix_layout(figure)
    text = io.StringIO()
    with matplotlib.rc_context(_FONTS):
        figure.savefig(text, format="svg", transparent=True, metadata=_METADATA["svg"])
    drawing = text.getvalue()
    drawing = re.sub(r"<metadata>.*?</metadata>\s*", "", drawing[drawing.index("<svg") :], flags=re.DOTALL)
    # a style sheet inside a page holds for the whole page; its one rule becomes attributes of this element
    drawing = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", drawing, count=1, flags=re.DOTALL)
    drawing = re.sub(r'<g id="[^"]*"', "<g", drawing)
    drawing = re.sub(r"(\d\.\d\d)\d+", r"\1", drawing)  # a hundredth of a point is enough
    drawing = drawing.replace(" \nL ", "L").replace("#000000", "currentColor")
    # matplotlib leaves out the fill where it is black
    return drawing.replace("<svg ", '<svg fill="currentColor" stroke-linejoin="round" ', 1).strip()
