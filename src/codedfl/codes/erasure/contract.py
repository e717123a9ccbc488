"""The contract of every erasure decoder: prepare once for a set of erased positions, decode often.

A plan is a linear map from the known symbols to the erased ones. Law: decode(c) = c for every codeword c, whatever the
values at the erased positions, up to ``error_bound`` times the largest symbol.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, DTypeLike

from codedfl.codes.mdpc import MdpcCode
from codedfl.errors import CodeError, UndecodableError

SHOWN = 8
_PROBES = 64


class ErasurePlan(ABC):
    """A prepared erasure pattern of one code in one precision."""

    def __init__(self, code: MdpcCode, erased: Int[np.ndarray, "e"], dtype: np.dtype[Any]) -> None:
        self.code = code
        self.erased = erased
        self.dtype = dtype

    @property
    @abstractmethod
    def amplification(self) -> float:
        """Largest error of a restored symbol when every known symbol is off by at most 1."""

    @property
    @abstractmethod
    def error_bound(self) -> float:
        """Bound on the error that rounding leaves in a restored symbol, relative to the largest symbol."""

    @cached_property
    def error_gain(self) -> float:
        """How many times larger independent errors of words are in messages, as a root mean square over the symbols.

        Errors are in proportion to the lengths of the columns of G. The mean is over random signs: it estimates the
        Frobenius norm of the decoding map (Hutchinson), to a few percent, because that map is nearly the identity.
        """
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (_PROBES, self.code.n))
        words = signs * np.linalg.norm(self.code.G, axis=0)
        symbols = self.decode(words.astype(self.dtype))[:, self.code.information].astype(np.float64)
        return float(np.sqrt(np.mean(symbols**2)))

    @abstractmethod
    def _restore(self, words: Float[np.ndarray, "r n"]) -> None:
        """Fill the erased columns of ``words`` in place; they hold zeros on entry."""

    @final
    def decode(self, words: Float[np.ndarray, "r n"]) -> Float[np.ndarray, "r n"]:
        """Return the codewords, one a row, with the erased positions restored; their old values are not read."""
        if words.ndim != 2 or words.shape[1] != self.code.n:
            raise CodeError(f"Words of shape {words.shape} do not fit: this code needs rows of {self.code.n}.")
        restored = np.array(words, dtype=self.dtype, order="C")
        if self.erased.size:
            restored[:, self.erased] = 0
            self._restore(restored)
        return restored

    @final
    def message(self, words: Float[np.ndarray, "r n"]) -> Float[np.ndarray, "r k"]:
        """Return the messages x whose codewords x G agree with ``words`` outside the erased positions."""
        symbols = self.decode(words)[:, self.code.information]
        return np.asarray(symbols @ self.code.unscrambler(self.dtype))


class ErasureDecoder(ABC):
    """A way to restore erased symbols."""

    name: str

    @final
    def prepare(self, code: MdpcCode, erased: Int[np.ndarray, "e"], dtype: DTypeLike = np.float64) -> ErasurePlan:
        """Prepare a plan for a set of erased positions.

        Parameters
        ----------
        code : MdpcCode
            The code.
        erased : array of int
            Erased positions, at most n - k of them.
        dtype : dtype
            Precision of the plan, float32 or float64; all decompositions are in float64.

        Returns
        -------
        ErasurePlan
            ``plan.decode(words)`` restores words that are erased at these positions.

        Raises
        ------
        UndecodableError
            The decoder cannot restore these positions.

        Examples
        --------
        >>> from codedfl.codes.erasure import DECODERS
        >>> code = MdpcCode.build(24, 12, 3, seed=1)
        >>> words = code.encode(np.ones((1, 12)))
        >>> plan = DECODERS["least-squares"].prepare(code, np.array([2, 5]))
        >>> bool(np.allclose(plan.decode(words), words))
        True
        """
        precision = np.dtype(dtype)
        if precision not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise CodeError(f"Decoding in {precision} is not offered: use float32 or float64.")
        positions = checked_positions(code, erased)
        if positions.size > code.m:
            raise UndecodableError(
                f"{positions.size} erased positions exceed the {code.m} parity checks: "
                f"erase at most {code.m} of the {code.n} positions."
            )
        return self._plan(code, positions, precision)

    @abstractmethod
    def _plan(self, code: MdpcCode, erased: Int[np.ndarray, "e"], dtype: np.dtype[Any]) -> ErasurePlan:
        """Return the plan for sorted, distinct positions, or raise UndecodableError."""


def checked_positions(code: MdpcCode, erased: ArrayLike) -> Int[np.ndarray, "e"]:
    """Return the positions sorted; raise CodeError if one is repeated or outside the code."""
    positions = np.atleast_1d(np.asarray(erased))
    if positions.size and not np.issubdtype(positions.dtype, np.integer):
        raise CodeError(f"Erased positions of type {positions.dtype} are no indices: give whole numbers.")
    positions = np.sort(positions.astype(np.int64).ravel())
    outside = positions[(positions < 0) | (positions >= code.n)]
    if outside.size:
        raise CodeError(
            f"Erased position {outside[0]} lies outside the code: give positions between 0 and {code.n - 1}."
        )
    repeated = positions[1:][np.diff(positions) == 0]
    if repeated.size:
        raise CodeError(f"Erased position {repeated[0]} is given twice: name every position once.")
    return positions


def describe(positions: Sequence[int] | Int[np.ndarray, "p"]) -> str:
    """List the first positions for an error message."""
    shown = ", ".join(str(int(p)) for p in positions[:SHOWN])
    return shown if len(positions) <= SHOWN else f"{shown} and {len(positions) - SHOWN} more"
