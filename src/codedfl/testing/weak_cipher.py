"""A cipher that must fall: NEVER to be used for anything but checking that attacks work.

Everything is wrong with it on purpose. G is systematic, so most of the plaintext stands in clear; the errors lie always
on the same positions, have full rank there, and are a hundred times larger than the data. An attack on ciphertexts that
does not bring it down is broken itself, and what it says about other ciphers means nothing.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Float64, Int

from codedfl.security.views.kinds import ParcelView, RowView

LOUDNESS = 100.0


@final
@dataclass(frozen=True, eq=False)
class WeakCipher:
    """words = A [I | P] + E, with E zero outside ``positions``."""

    G: Float64[np.ndarray, "k n"]
    positions: Int[np.ndarray, "t"]

    @classmethod
    def draw(cls, n: int, k: int, t: int, rng: np.random.Generator) -> "WeakCipher":
        """Draw P with entries of mean square 1/k, so that all columns of G have about the same length."""
        if not 0 < k < n or not 0 < t < n - k:
            raise ValueError(f"need 0 < k < n and 0 < t < n - k; got n = {n}, k = {k}, t = {t}")
        parity = rng.standard_normal((k, n - k)) / np.sqrt(k)
        return cls(np.concatenate([np.eye(k), parity], axis=1), np.arange(t) * (n // t))

    def encrypt(self, A: Float[np.ndarray, "d k"], rng: np.random.Generator) -> Float64[np.ndarray, "d n"]:
        """A G + E, every error plus or minus a hundred times the root mean square of A G (or of 1, if A is zero)."""
        words = A @ self.G
        size = LOUDNESS * (float(np.sqrt(np.mean(words**2))) or 1.0)
        words[:, self.positions] += size * rng.choice([-1.0, 1.0], (words.shape[0], self.positions.size))
        return np.asarray(words)

    def parcel(self, A: Float[np.ndarray, "d k"], rng: np.random.Generator) -> ParcelView:
        """What an eavesdropper sees of a whole parcel."""
        t = self.positions.size
        return ParcelView(self.G, self.encrypt(A, rng), t, t)

    def row(self, a: Float[np.ndarray, "k"], rng: np.random.Generator) -> RowView:
        """What an eavesdropper sees of one row."""
        return RowView(self.G, self.encrypt(a[None, :], rng)[0], self.positions.size)
