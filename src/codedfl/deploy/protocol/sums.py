"""How the server asks sites for sums of columns: first for their bounds, then for sums that fit a number format."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl.data import Preparation
from codedfl.deploy.protocol import fields
from codedfl.errors import DataError, EngineError
from codedfl.schemes import Message
from codedfl.task.preparing import COLUMNS, FEATURES, SumRequest

_ORIGINS = ("origin", "target_origin")


@final
@dataclass(frozen=True, eq=False)
class SumOrder:
    """Sums to compute; without ``scales``, only what a site publishes about their size. ``number`` counts sums."""

    request: SumRequest
    number: int = 0
    scales: Float[np.ndarray, "k"] | None = None

    def to_message(self) -> tuple[dict[str, Any], Message]:
        """Return fields and arrays of a request to a site."""
        preparation = self.request.preparation
        table = None if preparation is None else preparation.to_table()
        order = {"kind": self.request.kind, "number": self.number, "preparation": table}
        arrays = dict(self.request.arrays) | ({} if self.scales is None else {"scales": self.scales})
        return {"sums": order}, arrays

    @classmethod
    def read(cls, order: Any, arrays: Message, inputs: int, outputs: int) -> "SumOrder":
        """Read and check an order; origins that are not given are zero."""
        try:
            kind, number = fields.text(order, "kind"), fields.count(order, "number")
            table = order.get("preparation")
            preparation = None if table is None else Preparation.from_table(table)
        except (AttributeError, TypeError, DataError, EngineError):
            raise EngineError("the server's order of sums cannot be read; check that versions agree") from None
        sizes = {"origin": inputs, "target_origin": outputs}
        known = {name: arrays.get(name, np.zeros(size)) for name, size in sizes.items()}
        scales = arrays.get("scales")
        sound = kind in (COLUMNS, FEATURES) and set(arrays) <= {*_ORIGINS, "scales"}
        sound = sound and all(_is_vector(known[name], size) for name, size in sizes.items())
        sound = sound and (scales is None or (_is_vector(scales, scales.size) and bool((scales > 0).all())))
        sound = sound and ((kind == FEATURES) == (preparation is not None))
        if not sound or (preparation is not None and preparation.shift.shape != (inputs,)):
            raise EngineError("the server's order of sums does not fit the columns of this site; check the server")
        return cls(SumRequest(kind, known if kind == COLUMNS else {}, preparation), number, scales)


def _is_vector(array: Any, size: int) -> bool:
    return array.dtype == np.float64 and array.shape == (size,) and bool(np.isfinite(array).all())


@final
@dataclass(frozen=True)
class Measured:
    """What a site publishes before sums: sizes, which inputs are categories, and bounds of its columns."""

    samples: int
    dummies: tuple[bool, ...]
    outputs: int
    columns: str
    """Digest of the names of columns and categories, in their order."""
    kind: str
    classes: tuple[str, ...]
    bounds: tuple[float, ...]
    categories: Mapping[str, tuple[str, ...]] | None
    """Categories found in text columns, if the owner shares them and the scenario declares none."""
    undeclared: bool
    """Whether there are text columns whose categories are not declared."""

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of a reply."""
        shared = None if self.categories is None else {name: list(values) for name, values in self.categories.items()}
        lists = {"dummies": list(self.dummies), "classes": list(self.classes), "bounds": list(self.bounds)}
        return {**vars(self), **lists, "categories": shared}

    @classmethod
    def read(cls, site: str, reply: Mapping[str, Any]) -> "Measured":
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
                kind=fields.text(reply, "kind"),
                classes=tuple(fields.names(reply, "classes")),
                bounds=tuple(fields.reals(reply, "bounds")),
                categories=categories,
                undeclared=fields.flag(reply, "undeclared"),
            )
            sound = min(made.samples, len(made.dummies), made.outputs) >= 1
            sound = sound and len(made.bounds) in (0, len(made.dummies) + made.outputs)
            sound = sound and made.kind in ("classification", "regression")
        except (KeyError, TypeError, AttributeError, EngineError):
            sound = False
        if not sound:
            raise EngineError(f"{site} sent an invalid description of its columns; restart it")
        return made
