"""Random Fourier features of the RBF kernel, equal on all devices that share the seed."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from codedfl.codes.modular import compiled
from codedfl.errors import DataError, ScenarioError
from codedfl.storage import roomy

# a block of this size is still in the last-level cache when the cosine follows the matrix product
BLOCK_BYTES = 24 << 20


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """Maps p inputs to ``dimension`` features: sqrt(2/d) cos(x W + b), or x itself for the kind none.

    W and b are those of scikit-learn's ``RBFSampler`` of the same gamma and seed. For float32 they are stored in
    turns (divided by 2 pi), because a compiled kernel computes the cosine.
    """

    kind: str
    inputs: int
    dimension: int
    dtype: np.dtype[Any]
    weights: Float[np.ndarray, "p d"] = field(repr=False)
    offset: Float[np.ndarray, " d"] = field(repr=False)

    @classmethod
    def create(
        cls,
        kind: str,
        *,
        inputs: int,
        dimension: int = 2000,
        gamma: float | int = 0.02,
        seed: int = 0,
        dtype: str | type[Any] | np.dtype[Any] = "float32",
    ) -> "FeatureMap":
        """Draw the map; the kind none keeps the inputs and ignores the other arguments."""
        number = np.dtype(dtype)
        if number not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ScenarioError(f"features cannot be computed in {number}; choose float32 or float64.")
        if inputs < 1:
            raise ScenarioError(f"a feature map needs at least one input column, not {inputs}.")
        if kind == "none":
            return cls("none", inputs, inputs, number, np.empty((0, 0), number), np.empty(0, number))
        if kind != "rbf":
            raise ScenarioError(f"there is no feature kind {kind!r}; choose one of rbf, none.")
        _check(dimension, gamma, seed)
        # drawn as RBFSampler draws them, without it: importing scikit-learn takes longer than a small run
        draw = np.random.RandomState(seed)
        weights = (2.0 * gamma) ** 0.5 * draw.normal(size=(inputs, dimension))
        offset = draw.uniform(0, 2 * math.pi, size=dimension)
        unit = 2 * math.pi if number == np.float32 else 1.0
        return cls("rbf", inputs, dimension, number, (weights / unit).astype(number), (offset / unit).astype(number))

    @property
    def largest(self) -> float:
        """A bound on the features of any data, up to rounding; infinite for the kind none."""
        return math.sqrt(2 / self.dimension) * (1 + 2**-20) if self.kind == "rbf" else math.inf

    def transform(self, x: Float[np.ndarray, "m p"]) -> Float[np.ndarray, "m d"]:
        """Return the features of each row, C-contiguous; the kind none may return ``x`` itself."""
        if x.shape[1] != self.inputs:
            raise DataError(
                f"the feature map expects {self.inputs} columns but got {x.shape[1]}; use the data it was made for."
            )
        if self.kind == "none":
            return np.ascontiguousarray(x, dtype=self.dtype)
        if self.dtype == np.float32:
            cosine_of_turns = _cosine()
        scale = math.sqrt(2 / self.dimension)
        out = roomy((len(x), self.dimension), self.dtype)
        rows = max(1, BLOCK_BYTES // (self.dimension * self.dtype.itemsize))
        blocks = max(1, math.ceil(len(x) / rows))
        for source, block in zip(np.array_split(x, blocks), np.array_split(out, blocks), strict=True):
            np.matmul(source.astype(self.dtype, copy=False), self.weights, out=block)
            if self.dtype == np.float32:
                cosine_of_turns(block, self.offset, np.float32(scale))
            else:
                block += self.offset
                np.cos(block, out=block)
                block *= scale
        return out


def _cosine() -> Callable[[np.ndarray, np.ndarray, np.float32], None]:
    """Return the cosine of turns: compiled where numba is installed."""
    if compiled():
        from codedfl.data.kernels import cosine_of_turns  # the compiler is slow to import

        return cosine_of_turns
    from codedfl.data.portable import cosine_of_turns as portable

    return portable


def _check(dimension: int, gamma: float | int, seed: int) -> None:
    if dimension < 1:
        raise ScenarioError(f"the feature dimension is {dimension}; it must be at least 1.")
    if not (math.isfinite(gamma) and gamma > 0):
        raise ScenarioError(
            f"gamma of the RBF kernel is {gamma}; it must be a positive number,"
            " 1 / (2 sigma^2) for a kernel of width sigma."
        )
    if not 0 <= seed < 2**32:
        raise ScenarioError(f"the feature seed is {seed}; it must lie between 0 and {2**32 - 1}.")
