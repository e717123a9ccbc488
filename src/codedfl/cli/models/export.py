"""``codedfl export``: the model of a run as ONNX."""

from pathlib import Path
from typing import Annotated

import typer

from codedfl.cli import common
from codedfl.cli.models.predict import RunFolder, check_out, write_out
from codedfl.storage import write_whole
from codedfl.task.model import Model
from codedfl.task.model.onnx_export import TOLERANCE, checked_graph


def export_command(
    run: RunFolder,
    out: Annotated[Path, typer.Argument(metavar="FILE.onnx", help="The file to write.", show_default=False)],
    json: common.Json = False,
) -> None:
    """Write the model of a run as ONNX, checked with onnxruntime.

    Needs the extra export: pip install 'codedfl[export]'.
    """
    check_out(out, ".onnx")
    model = Model.load(run)
    graph, difference = checked_graph(model)
    write_out(out, lambda: write_whole(out, lambda file: file.write(graph)))
    if json:
        common.print_json({"file": str(out), "difference": difference, "tolerance": TOLERANCE})
    else:
        said = f"{out}: scores within {difference:.1e} of the model's on random rows (at most {TOLERANCE:g})"
        common.console.print(said, soft_wrap=True)
