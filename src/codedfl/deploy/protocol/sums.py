"""How the server asks sites for sums of columns: first for their bounds, then for sums that fit a number format."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl.data import Preparation
from codedfl.deploy.protocol import fields
from codedfl.deploy.protocol.task_facts import TaskFacts
from codedfl.errors import DataError, EngineError
from codedfl.schemes import Message
from codedfl.task.folds import RowChoice
from codedfl.task.preparing import COLUMNS, COUNTS, ERRORS, FEATURES, SumRequest


@final
@dataclass(frozen=True, eq=False)
class SumOrder:
    """Sums to compute; without ``scales``, only what a site publishes about their size. ``number`` counts sums."""

    request: SumRequest
    number: int = 0
    scales: Float[np.ndarray, "k"] | None = None

    def to_message(self) -> tuple[dict[str, Any], Message]:
        """Return fields and arrays of a request to a site."""
        preparation, rows = self.request.preparation, self.request.rows
        order = {
            "kind": self.request.kind,
            "number": self.number,
            "preparation": None if preparation is None else preparation.to_table(),
            "rows": None if rows is None else vars(rows),
        }
        arrays = dict(self.request.arrays) | ({} if self.scales is None else {"scales": self.scales})
        return {"sums": order}, arrays

    @classmethod
    def read(cls, order: Any, arrays: Message, inputs: int, features: int, outputs: int) -> "SumOrder":
        """Read and check an order; origins that are not given are zero."""
        try:
            kind, number = fields.text(order, "kind"), fields.count(order, "number")
            table = order.get("preparation")
            preparation = None if table is None else Preparation.from_table(table)
            rows = read_rows(order.get("rows"))
        except (AttributeError, TypeError, DataError, EngineError):
            raise EngineError("the server's order of sums cannot be read; check that versions agree") from None
        given = {name: array for name, array in arrays.items() if name != "scales"}
        scales = arrays.get("scales")
        shapes: dict[str, tuple[int, ...]] = {"origin": (inputs,), "target_origin": (outputs,)}
        if kind == COLUMNS:
            given = {name: np.zeros(shape) for name, shape in shapes.items()} | given
        elif kind == ERRORS:
            shapes = {"models": (len(given.get("models", ())), features, outputs)}
        elif kind == COUNTS:
            center = {"center": (outputs,)} if "center" in given else {}
            shapes = {"models": (1, features, outputs), **center}
        else:
            shapes = {}
        sound = kind in (COLUMNS, FEATURES, ERRORS, COUNTS) and given.keys() == shapes.keys()
        sound = sound and all(_is_real(given[name], shape) for name, shape in shapes.items())
        sound = sound and (scales is None or (_is_real(scales, (scales.size,)) and bool((scales > 0).all())))
        sound = sound and ((kind == COLUMNS) == (preparation is None))
        if not sound or (preparation is not None and preparation.shift.shape != (inputs,)):
            raise EngineError("the server's order of sums does not fit the columns of this site; check the server")
        return cls(SumRequest(kind, given, preparation, rows), number, scales)


def read_rows(table: Any) -> RowChoice | None:
    """Read which rows count; None: all."""
    if table is None:
        return None
    fold, folds, seed = (fields.count(table, name) for name in ("fold", "folds", "seed"))
    if not fold < folds:
        raise EngineError("the server asks for a fold that does not exist; check that versions agree")
    return RowChoice(fold, folds, seed, fields.flag(table, "held_out"))


def _is_real(array: Any, shape: tuple[int, ...]) -> bool:
    return array.dtype == np.float64 and array.shape == shape and bool(np.isfinite(array).all())


@final
@dataclass(frozen=True)
class ColumnFacts:
    """What a site publishes before sums: sizes, which inputs are categories, and bounds of its columns."""

    samples: int
    dummies: tuple[bool, ...]
    outputs: int
    columns: str
    """Digest of the names of columns and categories, in their order."""
    task: TaskFacts
    bounds: tuple[float, ...]
    categories: Mapping[str, tuple[str, ...]] | None
    """Categories found in text columns, if the owner shares them and the scenario declares none."""
    undeclared: bool
    """Whether there are text columns whose categories are not declared."""

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of a reply."""
        shared = None if self.categories is None else {name: list(values) for name, values in self.categories.items()}
        lists = {"dummies": list(self.dummies), "bounds": list(self.bounds), "categories": shared}
        own = {name: value for name, value in vars(self).items() if name != "task"}
        return {**own, **self.task.to_fields(), **lists}

    @classmethod
    def read(cls, site: str, reply: Mapping[str, Any]) -> "ColumnFacts":
        """Read and check the fields of a reply."""
        try:
            shared = reply["categories"]
            categories = None
            if shared is not None:
                categories = {str(name): tuple(fields.names(shared, name)) for name in shared}
            made = cls(
                samples=fields.count(reply, "samples"),
                dummies=tuple(fields.flags(reply, "dummies")),
                outputs=fields.count(reply, "outputs"),
                columns=fields.text(reply, "columns"),
                task=TaskFacts.read(reply),
                bounds=tuple(fields.reals(reply, "bounds")),
                categories=categories,
                undeclared=fields.flag(reply, "undeclared"),
            )
            sound = min(made.samples, len(made.dummies), made.outputs) >= 1
        except (KeyError, TypeError, AttributeError, EngineError):
            sound = False
        if not sound:
            raise EngineError(f"{site} sent an invalid description of its columns; restart it")
        return made
