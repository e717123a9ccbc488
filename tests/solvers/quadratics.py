"""Quadratic functions with known eigenvalues, and ways to let a solver work on them."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from codedfl.solvers import SOLVERS, ClosedForm, Conditions, RidgePath, Solver

ALL_SOLVERS = {**SOLVERS, RidgePath.name: RidgePath}
"""Also that which no scenario names."""


@dataclass(frozen=True, eq=False)
class Quadratic:
    """f(Theta) = <Theta, A Theta>/2 - <B, Theta> + ridge/2 ||Theta||^2; ``gradient`` is that of the first two terms."""

    A: np.ndarray
    B: np.ndarray
    ridge: float | np.ndarray

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        return self.A @ theta - self.B

    def slope(self, theta: np.ndarray) -> np.ndarray:
        return self.gradient(theta) + self.ridge * theta

    @cached_property
    def system(self) -> np.ndarray:
        return self.A + self.ridge * np.eye(len(self.A))

    @cached_property
    def solution(self) -> np.ndarray:
        return np.linalg.solve(self.system, self.B)

    def excess(self, theta: np.ndarray) -> np.ndarray:
        """2 (f(Theta) - f(Theta*)), output by output: the squared energy norm of the error."""
        error = theta - self.solution
        return np.einsum("dc,dc->c", error, self.system @ error)


def quadratic(
    eigenvalues: Sequence[float] | np.ndarray, outputs: int, *, ridge: float | np.ndarray = 0.0, seed: int = 0
) -> Quadratic:
    """A random rotation of the eigenvalues (those of A, to which the ridge comes), random moments."""
    rng = np.random.default_rng(seed)
    d = len(eigenvalues)
    rotation, _ = np.linalg.qr(rng.standard_normal((d, d)))
    A = (rotation * np.asarray(eigenvalues)) @ rotation.T
    return Quadratic((A + A.T) / 2, rng.standard_normal((d, outputs)), ridge)


def solver(
    name: str, given: Quadratic, *, rate: float = 1.0, tolerance: float = 0.0, epsilon: float = np.finfo(float).eps
) -> Solver:
    conditions = Conditions(given.B.shape, given.ridge, lambda epoch: rate, tolerance, float(epsilon))
    return ALL_SOLVERS[name](conditions)


def advance(working: Solver, given: Quadratic) -> None:
    """One epoch."""
    working.update(given.gradient(working.query()))
    if isinstance(working, ClosedForm):
        working.solve(given.A, given.B)


def models(working: Solver, given: Quadratic, epochs: int) -> list[np.ndarray]:
    """The model after each epoch."""
    found = []
    for _ in range(epochs):
        advance(working, given)
        found.append(working.model)
    return found


def awkward_rows(kind: str, rows: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose Gram matrix is singular: collinear columns, a column of zeros, or more columns than rows."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((rows, 6))
    if kind == "collinear":
        x = np.hstack([x, 2 * x[:, [0]], x[:, [1]] - x[:, [2]]])
    elif kind == "constant":
        x = np.hstack([x, np.zeros((rows, 1))])  # a constant column less its mean
    elif kind == "wide":
        x = rng.standard_normal((rows, rows + 15))
    return x, x[:, :4] @ rng.standard_normal((4, 2)) + 0.3 * rng.standard_normal((rows, 2))


def stored(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Arrays as they come back from a file."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    file.seek(0)
    with np.load(file, allow_pickle=False) as loaded:
        return dict(loaded)
