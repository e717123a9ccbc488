"""What all exports share: the epochs of a run as named series, and its place in real time."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from codedfl.runs import Run

_NAMES = {
    "gradient_norm": "gradient/norm",
    "gradient_error": "gradient/error",
    "time": "time/own_draw",
    "time_mean": "time/mean",
    "time_low": "time/low",
    "time_high": "time/high",
    "down_bits": "bits/down",
    "up_bits": "bits/up",
    "d2d_bits": "bits/d2d",
    "device_macs": "multiplications/devices",
    "server_macs": "multiplications/server",
}
"""Columns of ``epochs.parquet`` that other programs show in groups."""


def series(run: Run) -> Iterator[tuple[str, Float[np.ndarray, "epochs"]]]:
    """Yield the name and the values of each column, without those that are nowhere known."""
    for column, values in run.epochs.items():
        numbers = values.astype(np.float64)
        if column != "epoch" and np.isfinite(numbers).any():
            yield (run.summary["metric"] if column == "accuracy" else _NAMES.get(column, column)), numbers


def ends(run: Run) -> Float[np.ndarray, "epochs"]:
    """Return the end of each epoch in the run's own draw, in seconds after the beginning of the run."""
    return run.epochs["time"].astype(np.float64)


def origin(run: Run) -> float:
    """Return the date that stands for second 0 of a run: that of its summary, in seconds since 1970."""
    return (run.path / "summary.json").stat().st_mtime
