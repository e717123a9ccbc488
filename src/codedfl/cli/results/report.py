"""``codedfl report``: runs and studies as one page."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from codedfl.cli import common
from codedfl.errors import UsageError
from codedfl.report.pages.document import Document
from codedfl.report.pages.run_page import runs_document
from codedfl.report.pages.study_pages import comparison_document, reproduction_document, sweep_document
from codedfl.report.reproduction import reproduction_drawings
from codedfl.report.results import COMPARE, REPRODUCE, SWEEP, open_results
from codedfl.storage import write_text
from codedfl.studies.reproduce.finished import load_reproduction


def report_command(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN", help="Run directories, or the folder of one study.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("report.html"),
    plugins: common.Plugin = None,
    json: common.Json = False,
) -> None:
    """Write runs, or a study, as one HTML page that works without a network.

    A study is the folder of compare, sweep or reproduce. The page is readable without scripts, and interactive with
    them.
    """
    if not paths:
        raise UsageError(
            "no run is named; give run directories or a study's folder, for example: codedfl report runs/mine"
        )
    try:
        if out.is_dir():
            raise UsageError(f"--out '{out}' is a folder; name a file, for example --out {out / 'report.html'}")
        if not out.absolute().parent.is_dir():
            raise UsageError(f"--out '{out}' is in a folder that does not exist; make it first")
        write_text(out, _document(paths).to_html())
    except OSError as error:
        raise UsageError(f"--out '{out}' cannot be written ({error.strerror}); choose another file") from None
    size = out.stat().st_size
    if json:
        common.print_json({"page": str(out), "bytes": size, "runs": [str(path) for path in paths]})
    else:
        common.console.print(f"page: {out} ({size / 1e6:.2f} MB)", soft_wrap=True)


def _document(paths: list[Path]) -> Document:
    found = open_results(paths)
    command = shlex.join(["codedfl", "report", *map(str, paths)])
    if found.kind == REPRODUCE:
        whole = load_reproduction(found.path)
        return reproduction_document(whole, reproduction_drawings(whole), command)
    if found.kind == SWEEP:
        return sweep_document(found.rows, found.path, command)
    if found.kind == COMPARE:
        return comparison_document(found.rows, found.path, command)
    return runs_document(found.runs, command)
