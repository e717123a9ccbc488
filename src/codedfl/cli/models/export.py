"""``codedfl export``: the model of a run as ONNX, or the run for TensorBoard, MLflow and trace viewers."""

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from codedfl.cli import common
from codedfl.cli.models.predict import RunFolder, check_out, write_out
from codedfl.errors import UsageError
from codedfl.settings import did_you_mean

Found = tuple[dict[str, Any], str]
"""What was written, for machines and for people."""


def _complete_format(incomplete: str) -> list[str]:
    return [name for name in FORMATS if name.startswith(incomplete)]


def export_command(
    run: RunFolder,
    out: Annotated[
        Path,
        typer.Argument(metavar="FILE.onnx|FILE.json|DIR", help="The file or folder to write.", show_default=False),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="onnx, trace, tensorboard or mlflow; trace for .json and .json.gz, else onnx, if not given.",
            autocompletion=_complete_format,
        ),
    ] = None,
    json: common.Json = False,
) -> None:
    """Write the model of a run as ONNX, or the run for trace viewers, TensorBoard or MLflow.

    onnx: a file, checked with onnxruntime; needs pip install 'codedfl[export]'. trace: a .json or .json.gz file of the
    timeline, for https://ui.perfetto.dev. tensorboard: a folder with values of all epochs. mlflow: a folder with
    mlflow.db, to which more runs can be added; needs pip install 'codedfl[tracking]'.
    """
    chosen = to or ("trace" if _is_json(out) else "onnx")
    if chosen not in FORMATS:
        near = did_you_mean(chosen, list(FORMATS))
        raise UsageError(f"--to '{chosen}' must be one of {', '.join(FORMATS)}{near}")
    facts, sentence = FORMATS[chosen](run, out)
    if json:
        common.print_json({"file": str(out), **facts})
    else:
        common.console.print(f"{out}: {sentence}", soft_wrap=True)


def _onnx(run: Path, out: Path) -> Found:
    from codedfl.storage import write_whole
    from codedfl.task.model import Model
    from codedfl.task.model.onnx_export import TOLERANCE, checked_graph

    check_out(out, ".onnx")
    model = Model.load(run)
    graph, difference = checked_graph(model)
    write_out(out, lambda: write_whole(out, lambda file: file.write(graph)))
    sentence = f"scores within {difference:.1e} of the model's on random rows (at most {TOLERANCE:g})"
    return {"difference": difference, "tolerance": TOLERANCE}, sentence


def _is_json(out: Path) -> bool:
    return out.name.lower().endswith((".json", ".json.gz"))


def _trace(run: Path, out: Path) -> Found:
    from codedfl.report.exports import write_trace
    from codedfl.runs import load

    if not _is_json(out):
        raise UsageError(f"'{out}' must end in .json or .json.gz; choose another file")
    events = _written(out, lambda: write_trace(load(run), out))
    return {"events": events}, f"{events:,} events; open it at https://ui.perfetto.dev or chrome://tracing"


def _tensorboard(run: Path, out: Path) -> Found:
    from codedfl.report.exports import write_tensorboard
    from codedfl.runs import load

    series = _written(out, lambda: write_tensorboard(load(run), out))
    return {"series": series}, f"{series} series; show them with: tensorboard --logdir {shlex.quote(str(out))}"


def _mlflow(run: Path, out: Path) -> Found:
    from codedfl.report.exports import write_mlflow
    from codedfl.runs import load

    identity = _written(out, lambda: write_mlflow(load(run), out))
    store = f"sqlite:///{(out / 'mlflow.db').absolute()}"
    command = f"mlflow ui --backend-store-uri {shlex.quote(store)}"
    return {"run": identity, "store": store}, f"run {identity}; show it with: {command}"


def _written(out: Path, write: Callable[[], Any]) -> Any:
    found: list[Any] = []
    write_out(out, lambda: found.append(write()))
    return found[0]


FORMATS: Mapping[str, Callable[[Path, Path], Found]] = {
    "onnx": _onnx,
    "trace": _trace,
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
}
