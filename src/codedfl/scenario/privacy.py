"""The section of a scenario about differential privacy."""

import dataclasses

from codedfl.errors import ScenarioError
from codedfl.settings import Settings, setting

EVERY_COLUMN = "*"
"""The name in a range of all numeric columns that have none of their own."""


LARGEST_WIDTH = 1e100
"""Of a range; squares of numbers up to this are finite."""


class ColumnRange(Settings, table="privacy.columns"):
    """The range of a numeric column or of the target; what lies beyond it is moved to its end."""

    name: str = setting(
        help="Name of the column, or its number (from 0) where columns have no names; '*': every other but the target."
    )
    low: float = setting(help="Smallest value that is told apart.")
    high: float = setting(help="Largest value that is told apart.")

    def check(self) -> None:
        """Refuse an empty range."""
        if not self.low < self.high or self.high - self.low > LARGEST_WIDTH:
            raise ScenarioError(
                f"privacy.columns gives '{self.name}' the range from {self.low:g} to {self.high:g}; low must be below "
                f"high, by at most {LARGEST_WIDTH:g}"
            )


class Privacy(Settings, table="privacy"):
    """Differential privacy: noise that devices add to what they send, and whom it must protect against."""

    epsilon: float | None = setting(
        default=None,
        above=0,
        high=1e12,
        help="Bound of differential privacy on all that the run reveals; unset: no noise.",
    )
    delta: float = setting(default=1e-5, low=1e-300, below=1, help="Probability delta that the bound may fail.")
    unit: str = setting(
        default="record",
        choices=("record", "device"),
        help="What is hidden: a record of a device, or all records of a device, added or removed.",
    )
    most_rows: int | None = setting(
        default=None, low=1, help="How many rows the data of a device count as, at most (unit device)."
    )
    colluding: int = setting(
        default=0, low=0, help="How many devices may collude with the server, so that their noise does not count."
    )
    losses: int = setting(
        default=0, low=0, help="How many devices may be lost while the sum is made; others add noise for them."
    )
    clip_features: float = setting(
        default=1.0, above=0, help="Norm of a row's features above which its device scales them down to it."
    )
    clip_targets: float = setting(default=1.0, above=0, help="The same for targets (release once).")
    clip_residuals: float = setting(
        default=1.0, above=0, help="The same for residuals, outputs less targets (release each-epoch)."
    )
    columns: tuple[ColumnRange, ...] = setting(
        default=(),
        help="Ranges of columns of files and tables, tables [[privacy.columns]]: public, never computed from the data; "
        "they replace features.scale.",
    )
    release: str = setting(
        default="once",
        choices=("once", "each-epoch"),
        help="once: noise on Gram matrix and right-hand side, which covers every epoch; each-epoch: noise on every "
        "gradient (scheme secagg).",
    )
    seed: int | None = setting(
        default=None,
        low=0,
        help="Seed of the noise in simulations, which then protects nothing; unset: from the operating system.",
    )

    def check(self) -> None:
        """Refuse keys that need an epsilon, and rows of a device where records are hidden."""
        if self.epsilon is None:
            if given := [
                field.name for field in dataclasses.fields(self) if getattr(self, field.name) != field.default
            ]:
                raise ScenarioError(f"privacy.{given[0]} needs privacy.epsilon; set it, or leave the section out")
            return
        unused = "clip_residuals" if self.release == "once" else "clip_targets"
        if getattr(self, unused) != 1.0:
            raise ScenarioError(f"privacy.{unused} is not used with privacy.release = '{self.release}'; leave it out")
        if (self.most_rows is None) == (self.unit == "device"):
            raise ScenarioError(
                f"privacy.most_rows is for privacy.unit = 'device', which needs it, and not for '{self.unit}'"
            )
        names = [each.name for each in self.columns]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ScenarioError(f"privacy.columns name '{twice[0]}' twice; keep one range of it")
