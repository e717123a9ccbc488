"""What a live page shows of a finished run."""

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codedfl.runs import Run, final_score, metric_name

_REMARKS = ("remark", "without_noise")


def result_of(summary: Mapping[str, Any], directory: str | Path) -> dict[str, Any]:
    """Return the final numbers of a run as plain data, and where everything else is."""
    real = summary.get("virtual_seconds") is None
    return {
        "epochs": summary["epochs"],
        "metric": metric_name(summary),
        "score": final_score(summary),
        "scored_on": summary.get("scored_on"),
        "seconds": summary.get("real_seconds") if real else summary["virtual_seconds"],
        "time_to_accuracy": dict(summary["time_to_accuracy"]),
        "remarks": [summary[name] for name in _REMARKS if summary.get(name)],
        "directory": str(directory),
        "report": f"codedfl report {shlex.quote(str(directory))}",
    }


def finished_table(run: Run) -> dict[str, Any]:
    """Return the epochs of a finished run as the table of a board that knows nothing of devices."""
    columns, summary = run.epochs, run.summary
    rows = zip(columns["epoch"].tolist(), columns["time"].tolist(), columns["accuracy"].tolist(), strict=True)
    count = summary["epochs"]
    return {
        "stage": "finished",
        "done": count,
        "total": count,
        "epoch": count,
        "seconds": float(columns["time"][-1]),
        "metric": summary["metric"],
        "score": final_score(summary),
        "epochs": [[int(epoch), end, score if math.isfinite(score) else None] for epoch, end, score in rows],
        "epochs_version": "finished",
        "devices": [],
    }
