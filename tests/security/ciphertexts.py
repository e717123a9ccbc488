"""Small parcels under the real cipher, the truth about them, and how exactly they can be read.

Derivation of the limits. Notation: D scales the columns of G to length one, J is the support, P = I - Q^T Q the
projection away from the rows of G D, and delta the rounding of C D, at most gamma(k + 1) |A| |G| D entry by entry
(Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1).

*Least squares outside J*: A is off by at most |delta| / s, with s the smallest singular value of G D outside J.

*Completion*: the best approximation of C D P of the rank of E leaves at most delta, one from a random range at most
twice that; so the rows named free of errors hold at most 3 delta of E D P, that is 3 delta / p of E D with p^2 the
smallest eigenvalue of P at J. With that, V A is off by v = (1 + 3 / p) |delta| / s; symmetry uses it twice, and the
block that is left comes from a fit to columns that are off by |delta| + v |G D|, divided by s once more.

Both get the rounding of the attacker's own arithmetic, n u (cond G D)^2 |C D| / s in float64.
"""

import functools
from dataclasses import dataclass

import numpy as np

from codedfl.cipher.mceliece.parameters import Parameters
from codedfl.cipher.mceliece.private_key import KeyPair, generate_keys
from codedfl.cipher.mceliece.public_key import encrypt
from codedfl.security.scoring import Truth
from codedfl.security.views.kinds import ParcelView, RowView

SEED = b"ciphertexts for attacks, a seed."


@dataclass(frozen=True)
class Case:
    """A parcel, and what only the scorer knows."""

    view: ParcelView
    A: np.ndarray
    positions: np.ndarray

    @property
    def truth(self) -> Truth:
        return Truth(gram=self.A, support=self.positions, length=self.view.G.shape[1])

    def row(self, index: int) -> tuple[RowView, Truth]:
        view = RowView(self.view.G, self.view.words[index], self.view.t)
        return view, Truth(gram=self.A[index : index + 1], support=self.positions, length=view.word.size)

    def limits(self) -> tuple[float, float]:
        """Largest relative errors of A by least squares outside the support, and by completion."""
        G, A, words = (array.astype(np.float64) for array in (self.view.G, self.A, self.view.words))
        D = 1 / np.linalg.norm(G, axis=0)
        unit, double = np.finfo(self.view.words.dtype).eps / 2, np.finfo(np.float64).eps / 2
        delta = (G.shape[0] + 1) * unit * np.linalg.norm(np.abs(A) @ np.abs(G) * D)
        largest = np.linalg.norm(G * D, 2)
        s = np.linalg.svd(np.delete(G * D, self.positions, axis=1), compute_uv=False)[-1]
        own = G.shape[1] * double * (largest / s) ** 2 * np.linalg.norm(words * D) / s
        Q = np.linalg.qr((G * D).T)[0]
        free = np.eye(self.positions.size) - Q[self.positions] @ Q[self.positions].T
        p = np.sqrt(np.linalg.eigvalsh(free)[0]) if self.positions.size else 1.0
        v = (1 + 3 / p) * delta / s
        size = np.linalg.norm(A)
        return (delta / s + own) / size, (2 * v + (delta + v * largest) / s + own) / size


def parameters(n: int = 160, k: int = 70, t: int = 8, beta: int = 4, **others: float) -> Parameters:
    return Parameters(n=n, k=k, degree=5, t_tot=2 * t, t=t, M=2, beta=beta, **others)


def gram_matrix(k: int, points: int, rng: np.random.Generator) -> np.ndarray:
    """X^T X of features with a common mean, as random Fourier features have."""
    x = rng.standard_normal((points, k)) + rng.standard_normal(k)
    return x.T @ x


@functools.cache
def small_keys(chosen: Parameters, dtype: str = "float64", seed: bytes = SEED) -> KeyPair:
    return generate_keys(chosen, dtype=dtype, decoder="least-squares", seed=seed)


def encrypted(keys: KeyPair, A: np.ndarray, seed: bytes = SEED) -> Case:
    support, p = keys.private.support(0), keys.public.parameters
    A = A.astype(keys.public.dtype)
    words = encrypt(keys.public, A, support, seed=seed).words
    return Case(ParcelView(keys.public.G, words, p.t, p.beta), A, support.positions)
