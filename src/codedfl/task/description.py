"""What the numbers of a model mean: its columns, targets and classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from codedfl.data import Column, Dataset, Preparation

Label = str | bool | int | float
_LONGEST = len(str(-(2**63)))


@final
@dataclass(frozen=True, eq=False)
class Description:
    """The columns and targets of a model, as far as the server knows them."""

    columns: tuple[Column, ...]
    """Raw columns in their order; named by position where they have no names."""
    targets: tuple[str, ...]
    """Names of the target columns; a classification has one."""
    classes: tuple[Label, ...] = ()
    """Labels as they were given, in the order of the outputs; none for a regression."""
    preparation: Preparation | None = None
    """What devices do to their columns; None: nothing."""

    @property
    def constants(self) -> int:
        """How many features are constants: 1 if one of them carries the intercept."""
        return int(self.preparation is not None and self.preparation.constant is not None)

    @classmethod
    def of_data(cls, loaded: Dataset, preparation: Preparation | None) -> "Description":
        """Describe the data of a run."""
        classes = tuple(label(name, loaded.label_kind) for name in loaded.class_names)
        return cls.create(
            loaded.inputs, loaded.outputs, loaded.columns, loaded.target_names, classes, preparation=preparation
        )

    @classmethod
    def create(
        cls,
        inputs: int,
        outputs: int,
        columns: tuple[Column, ...] = (),
        targets: tuple[str, ...] = (),
        classes: tuple[Label, ...] = (),
        *,
        preparation: Preparation | None = None,
    ) -> "Description":
        """Name by position what has no name."""
        known = columns or tuple(Column(str(number)) for number in range(inputs))
        single = bool(classes) or outputs == 1
        names = ("y",) if single else tuple(f"y{number}" for number in range(outputs))
        return cls(known, targets or names, classes, preparation)


def label(name: str, kind: str) -> Label:
    """Return a label of a NumPy kind from its text."""
    if kind in "iu":
        return int(name)
    if kind == "b":
        return name == "True"
    return float(name) if kind == "f" else name


def likely_labels(names: Sequence[str]) -> tuple[Label, ...]:
    """Return labels of which only the text is known: whole numbers of 64 bits and truth values if all look so."""
    if all(map(_is_whole, names)):
        return tuple(int(name) for name in names)
    return tuple(name == "True" for name in names) if set(names) == {"True", "False"} else tuple(names)


def _is_whole(name: str) -> bool:
    if len(name) > _LONGEST or not name.removeprefix("-").isdecimal():
        return False
    return name == str(int(name)) and -(2**63) <= int(name) < 2**63
