"""The final model scored on rows that devices hold out (``data.held_out``), of which only summed counts are opened."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl.data import Preparation
from codedfl.errors import CodedflError, DataError
from codedfl.task.metrics import Counts
from codedfl.task.preparing import COUNTS, Moments, Summer, SumRequest

HELD_OUT, TEST_SET = "rows held out by devices", "test set"
"""What a model is scored on."""
_MOST_PASSES = 2
_ROUNDING = 0.25
"""Counts this far from whole numbers are refused; a scheme would have to miss its promise by orders of magnitude."""


@final
@dataclass(frozen=True, eq=False)
class Scoring:
    """Counts over all held-out rows, None where they could not be summed, and what summing them cost."""

    counts: Counts | None
    costs: dict[str, Any]
    remark: str | None = None
    """Why there are no counts."""


def score_held_out(count: Callable[[], Counts], costs: Callable[[], dict[str, Any]]) -> Scoring:
    """Sum the counts; what goes wrong then is said, and does not lose the model."""
    try:
        counts = count()
    except CodedflError as error:
        return Scoring(None, costs(), f"the {HELD_OUT} were not scored: {error}")
    if counts.rows == 0:
        return Scoring(None, costs(), "no device holds a row out, so that nothing is scored; give devices more rows")
    return Scoring(counts, costs())


def held_out_counts(
    summer: Summer, kind: str, model: Float[np.ndarray, "d c"], preparation: Preparation | None
) -> Counts:
    """Sum the counts of a model over all held-out rows; rows and entries of confusion matrices are exact."""
    outputs, prepared = summer.shape[1], preparation or Preparation.identity(*summer.shape)
    arrays = {"models": model[None].astype(np.float64)}
    if kind == "classification":
        total = summer.total(SumRequest(COUNTS, arrays, prepared))
        return Counts(kind, _whole(total).reshape(outputs, outputs))
    center = prepared.target_shift
    for _ in range(_MOST_PASSES):
        table = summer.total(SumRequest(COUNTS, {**arrays, "center": center}, prepared)).reshape(-1, outputs)
        table[0] = _whole(table[0])
        moments = Moments.of(*table[:3])
        if not moments.cancelled(center):
            break
        center = center + moments.offset  # as in the preparation of columns: sums about the mean keep their digits
    constant = moments.cleaned(center) == 0
    table[1:3, constant] = 0.0
    return Counts(kind, table)


def _whole(counts: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
    rounded = np.rint(counts)
    if np.any(np.abs(counts - rounded) > _ROUNDING):
        raise DataError("the sums of the scheme are too inaccurate to count so many rows; choose another scheme")
    return np.asarray(rounded)
