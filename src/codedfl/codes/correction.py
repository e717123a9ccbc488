"""Wrong replies in a code word: detection with any redundancy, and correction, exactly, over a prime field.

The replies of coded schemes are words of a generalised Reed-Solomon code: reply i is u_i P(x_i), with public non-zero
factors u_i, distinct points x_i, and a polynomial P of degree below K in each column. Of K + s replies, divided by u_i,
the syndromes are

    S_l = sum_i v_i x_i^l P(x_i),  l = 0, ..., s - 1,  v_i = 1 / product of (x_i - x_j) over the other replies j,

and all vanish exactly if some P of degree below K fits all replies: v_i x_i^l P(x_i) are the terms of Lagrange's
formula for the coefficient of x^(K + s - 1) of the polynomial x^l P, whose degree is lower. The code has distance
s + 1. So

- any number of wrong replies up to s is detected (K + 1 replies detect one),
- up to s / 2 of them are found (K + 2e replies find e): the syndromes of e errors are a linear recurrence whose
  polynomial has the roots 1 / x_i at the wrong i (Berlekamp and Massey; Massey, "Shift-register synthesis and BCH
  decoding", IEEE Transactions on Information Theory, 1969).

Wrong replies are the same rows in all columns. The search therefore looks at one random combination of the columns, in
which a wrong reply stays wrong except with probability 1/p, and what it finds is confirmed in every column. More than
s / 2 liars that collude may make honest replies look wrong; no decoder can tell.
"""

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from jaxtyping import UInt

from codedfl.codes.modular import WORD_BITS, arithmetic
from codedfl.errors import CodeError

_DRAWS = 4
"""Random combinations of the columns that are tried; each hides a wrong reply with probability 1/p."""


@final
@dataclass(frozen=True)
class ReedSolomon:
    """The code of all words (u_i P(x_i)) with deg P < K, for non-zero ``points`` x_i and ``factors`` u_i.

    Laws: honest words are consistent; of K + s words any s or fewer that are changed are detected, and any s / 2 or
    fewer are found.
    """

    K: int
    prime: int
    points: tuple[int, ...]
    factors: tuple[int, ...]

    def __post_init__(self) -> None:
        residues = {point % self.prime for point in self.points} - {0}
        sound = len(residues) == len(self.points) == len(self.factors) >= self.K >= 1
        if not sound or not all(factor % self.prime for factor in self.factors):
            raise CodeError(
                f"There is no code of {len(self.points)} points and dimension {self.K} here: give at least as many "
                "distinct points other than 0, and a factor other than 0 for each."
            )

    def consistent(self, which: Sequence[int], words: UInt[np.ndarray, "replies columns"]) -> bool:
        """Return whether the replies ``which``, in this order, are part of one code word."""
        return not self._syndromes(tuple(which), words).any()

    def wrong(self, which: Sequence[int], words: UInt[np.ndarray, "replies columns"]) -> tuple[int, ...] | None:
        """Return which replies are wrong, if at most half of those beyond K are; None if it cannot be told."""
        numbers = tuple(which)
        syndromes = self._syndromes(numbers, words)
        if not syndromes.any():
            return ()
        most = len(syndromes) // 2
        for _ in range(_DRAWS if most else 0):
            draw = np.array([[secrets.randbelow(self.prime)] for _ in range(words.shape[1])], words.dtype)
            locator = _recurrence([int(each) for each in _product(syndromes, draw, self.prime)[:, 0]], self.prime)
            found = tuple(number for number in numbers if self._is_root(locator, number))
            kept = [place for place, number in enumerate(numbers) if number not in found]
            if len(found) == len(locator) - 1 <= most and self.consistent([numbers[k] for k in kept], words[kept]):
                return found
        return None

    def _syndromes(
        self, which: tuple[int, ...], words: UInt[np.ndarray, "replies columns"]
    ) -> UInt[np.ndarray, "spare columns"]:
        return _product(_checks(self, which), words, self.prime)

    def _is_root(self, locator: Sequence[int], number: int) -> bool:
        """Return whether 1 / x_i is a root of a polynomial, whose reversed one then has the root x_i."""
        value = 0
        for coefficient in locator:
            value = (value * self.points[number] + coefficient) % self.prime
        return value == 0


@lru_cache(maxsize=256)
def _checks(code: ReedSolomon, which: tuple[int, ...]) -> UInt[np.ndarray, "spare replies"]:
    """Return the matrix that takes replies to their syndromes."""
    if len(which) < code.K or len(set(which)) != len(which) or not all(0 <= i < len(code.points) for i in which):
        raise CodeError(f"Replies {list(which)} do not check each other: give at least {code.K} different ones.")
    prime, points = code.prime, [code.points[i] for i in which]
    rows = []
    for i, x in zip(which, points, strict=True):
        weight = pow(code.factors[i] * math.prod(x - y for y in points if y != x), -1, prime)
        rows.append([weight * pow(x, power, prime) % prime for power in range(len(which) - code.K)])
    table = np.array(rows, f"uint{WORD_BITS[prime]}").reshape(len(which), len(which) - code.K)
    return np.ascontiguousarray(table.T)


def _product(left: UInt[np.ndarray, "a b"], right: UInt[np.ndarray, "b c"], prime: int) -> UInt[np.ndarray, "a c"]:
    out = np.zeros((len(left), right.shape[1]), left.dtype)
    if out.size:
        arithmetic(prime)["product"](left, np.ascontiguousarray(right), out, 0, right.shape[1])
    return out


def _recurrence(sequence: Sequence[int], prime: int) -> list[int]:
    """Return 1, c_1, ..., c_L of the shortest recurrence s_n + c_1 s_(n-1) + ... + c_L s_(n-L) = 0 (Massey)."""
    current, previous, gap, scale = [1], [1], 1, 1
    for n, value in enumerate(sequence):
        length = len(current) - 1
        discrepancy = (value + sum(current[i] * sequence[n - i] for i in range(1, length + 1))) % prime
        if discrepancy == 0:
            gap += 1
            continue
        factor, kept = discrepancy * pow(scale, -1, prime) % prime, list(current)
        current += [0] * (len(previous) + gap - len(current))
        for i, each in enumerate(previous):
            current[i + gap] = (current[i + gap] - factor * each) % prime
        if 2 * length <= n:  # then the recurrence becomes longer
            previous, scale, gap = kept, discrepancy, 1
        else:
            gap += 1
    return current
