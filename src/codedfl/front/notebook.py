"""Live progress in notebooks: plain updates of one display, which Jupyter, VS Code and Colab show alike."""

import html
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

from codedfl.progress import Progress, silent
from codedfl.runs.markup import seconds_text

_EVERY_SECONDS = 0.1
_MOST_LINES = 8
_WIDTH = 30
Bundle = dict[str, str]
Update = Callable[[Bundle], object]
Display = Callable[[Bundle], Update]
"""Shows something and returns what replaces it."""


@contextmanager
def shown(progress: Progress | None) -> Iterator[Progress]:
    """Yield the callback that is given; if none is, one that shows bars in a notebook and nothing elsewhere."""
    if progress is not None:
        yield progress
    elif (display := notebook_display()) is None:
        yield silent
    else:
        bars = NotebookProgress(display)
        try:
            yield bars
        except BaseException:
            bars.finish("stopped")
            raise
        bars.finish("done")


def notebook_display() -> Display | None:
    """Return how the running kernel displays something; None where there is no kernel.

    A kernel has imported IPython, so nothing is imported here that is not there.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display

    def show(bundle: Bundle) -> Update:
        handle: Any = display(bundle, raw=True, display_id=True)
        return lambda changed: handle.update(changed, raw=True)

    return show


@final
class NotebookProgress:
    """One line a stage with a bar; at the end, one line that says how long all of it took."""

    def __init__(self, display: Display, clock: Callable[[], float] = time.monotonic) -> None:
        self._display, self._clock, self._began = display, clock, clock()
        self._update: Update | None = None
        self._drawn = self._began
        self._stages: dict[str, tuple[int, int]] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show how far a stage is; a new stage at once, others every tenth of a second."""
        new, now = stage not in self._stages, self._clock()
        self._stages[stage] = done, total
        if new or now - self._drawn >= _EVERY_SECONDS:
            self._drawn = now
            self._draw(_bars(list(self._stages.items())[-_MOST_LINES:]))

    def finish(self, word: str) -> None:
        """Replace the bars by one line, if there are any."""
        if self._stages:
            line = f"{', '.join(self._stages)}: {word} in {seconds_text(self._clock() - self._began)}"
            self._draw({"text/plain": line, "text/html": f"<small>{html.escape(line)}</small>"})

    def _draw(self, bundle: Bundle) -> None:
        if self._update is None:
            self._update = self._display(bundle)
        else:
            self._update(bundle)


def _bars(stages: list[tuple[str, tuple[int, int]]]) -> Bundle:
    plain, pages = [], []
    for name, (done, total) in stages:
        count = f" {done:,} of {total:,}" if total else ""
        filled = min(_WIDTH * done // total, _WIDTH) if total else 0
        plain.append(f"{name} [{'#' * filled:<{_WIDTH}}]{count}" if total else name)
        bar = f'<progress value="{done:d}" max="{total:d}"></progress>' if total else ""
        pages.append(f"<div>{html.escape(name)} {bar}{count}</div>")
    return {"text/plain": "\n".join(plain), "text/html": "".join(pages)}
