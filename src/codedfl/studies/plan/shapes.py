"""What the costs of a scheme depend on: shapes of data, told or read, and hollow data of these shapes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from codedfl.errors import UsageError
from codedfl.progress import Progress, silent
from codedfl.scenario import Scenario
from codedfl.task import Problem, Shard, load_data, partition_rows
from codedfl.task.loading import divide_rows


@dataclass(frozen=True)
class Shapes:
    """What costs depend on: data points of each device, d, c, and public bounds on features and targets."""

    samples: tuple[int, ...]
    features: int
    outputs: int
    largest_feature: float = 1.0
    largest_target: float = 1.0

    @classmethod
    def of(cls, scenario: Scenario, samples: int | None, outputs: int | None, progress: Progress = silent) -> "Shapes":
        """Take the shapes that are told, or look at the data if none are."""
        if samples is None and outputs is None:
            return cls.of_data(scenario, progress)
        if samples is None or outputs is None:
            raise UsageError("--samples and --outputs go together; give both, or neither to look at the data")
        return cls.told(scenario, samples=samples, outputs=outputs)

    @classmethod
    def of_data(cls, scenario: Scenario, progress: Progress = silent) -> "Shapes":
        """Load and partition the data of a scenario; no feature is computed."""
        loaded = load_data(scenario, progress)
        sizes = _training_sizes(scenario, partition_rows(scenario, loaded.y_train, loaded.samples, loaded.owners))
        target = 1.0 if loaded.kind == "classification" else float(np.max(np.abs(loaded.y_train)))
        constants = int(scenario.ranged and scenario.intercept)
        if (
            scenario.prepared or scenario.ranged
        ):  # columns and targets will be of size 1, and bounded by their squares summed
            target = 1.0
            if scenario.features.kind == "none":
                return cls(sizes, loaded.inputs + constants, loaded.outputs, 1.0, target)
        if scenario.features.kind == "none":
            return cls(sizes, loaded.inputs, loaded.outputs, float(np.max(np.abs(loaded.x_train))), target)
        d = scenario.features.dimension
        return cls(sizes, d + constants, loaded.outputs, math.sqrt(2 / d), target)

    @classmethod
    def told(cls, scenario: Scenario, *, samples: int, outputs: int) -> "Shapes":
        """Return the shapes of absent data; where labels decide who holds what, classes are of one size."""
        if scenario.features.kind == "none":
            raise UsageError(
                "--samples and --outputs do not say how many features there are; add --set features.kind=rbf "
                "--set features.dimension=D"
            )
        sizes = _training_sizes(scenario, partition_rows(scenario, np.arange(samples) % outputs, samples))
        d = scenario.features.dimension
        return cls(sizes, d, outputs, math.sqrt(2 / d))

    def hollow(self, scenario: Scenario) -> Problem:
        """Return a problem of these shapes whose Gram matrices are zero; shards of one size are one object."""
        dtype = np.dtype(scenario.precision)
        d, c = self.features, self.outputs
        x = np.full((max(self.samples), d), self.largest_feature, dtype)
        y = np.full((max(self.samples), c), self.largest_target, dtype)
        known = {"gram": np.zeros((d, d), dtype), "moments": np.zeros((d, c), dtype)}
        shards = {}
        for samples in set(self.samples):
            shards[samples] = Shard(x[:samples], y[:samples])
            vars(shards[samples]).update(known)  # cached as if computed before: costs do not depend on values
        test = np.zeros((1, d), dtype), np.zeros(1, np.int64)
        return Problem(tuple(shards[n] for n in self.samples), *test, "classification", scenario.ridge)


def _training_sizes(scenario: Scenario, parts: Sequence[Int[np.ndarray, "_"]]) -> tuple[int, ...]:
    """Return how many rows each device trains on."""
    return tuple(map(len, divide_rows(scenario, parts)[0]))
