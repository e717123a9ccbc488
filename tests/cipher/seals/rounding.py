"""How far a decrypted matrix may be from the exact one, derived from the key and the data.

Notation: u is half the spacing of floating-point numbers at 1, gamma(q) = q u / (1 - q u), bars are absolute
values. A sum of q rounded products, in any order, is off by at most gamma(q) times the sum of their absolute
values; a factor that was itself rounded once makes that gamma(q + 1). (Higham, Accuracy and Stability,
section 3.1.)

1. Encoding in the precision of the key, G having been cast to it: |C - A G| <= gamma(k + 1) |A| |G|. The
error matrix changes erased positions only, and decoding does not read them; so it costs nothing. 2. Sum: the
offs add, and one rounding u |C1 + C2| follows. 3. theta^T C: |theta| off(C) + gamma(rows) |theta| |C|. 4.
Decoding by least squares is one product with ``solution`` L (stored in the precision of the plan): a restored
symbol is off by at most off |L| + gamma(n) |c| |L| + |x| F, with F = |G L - G_E| how far L is from restoring
the erased columns of G themselves. F is computed in extended precision; it holds the rounding of G, of L and
of the cast of L, so no bound on a matrix decomposition is needed. For the other decoders, with eta the
largest off at a known position, amplification * eta + error_bound * (largest symbol) + |x| D, the first two
from the plan, and D = |decode64(G) - G| + error_bound64 max|G| for G being in the null space of H only up to
rounding. 5. Message: x = c_I S^T with S = G_I orthogonal. Computed from symbols that are off by delta, |x' -
x| <= |delta|_2 |S|_2 + gamma(k + 1) |c_I|_2 |S|_2 + |S S^T - I|_2 |x|_2   (Cauchy-Schwarz, every row of S
being at most |S|_2 long; the cast of S is the extra 1).

No constant below is fitted; everything is computed from the plan, the code, and the data.
"""

from dataclasses import dataclass

import numpy as np

from codedfl.cipher.mceliece.messages import Ciphertext, Encoded, EncryptedReply
from codedfl.cipher.mceliece.private_key import KeyPair, PrivateKey
from codedfl.codes.erasure.contract import ErasurePlan
from codedfl.codes.erasure.least_squares import LeastSquaresPlan
from codedfl.codes.mdpc import MdpcCode

Message = Ciphertext | Encoded | EncryptedReply


def unit(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).eps) / 2


def gamma(q: int, dtype: np.dtype) -> float:
    return q * unit(dtype) / (1 - q * unit(dtype))


@dataclass(frozen=True)
class Tracked:
    """A message, the exact plaintext under it, and how far its known symbols may be from exact."""

    message: Message
    plain: np.ndarray
    off: np.ndarray

    def __add__(self, other: "Tracked") -> "Tracked":
        message = self.message + other.message
        rounding = unit(message.words.dtype) * np.abs(message.words)
        return Tracked(message, self.plain + other.plain, self.off + other.off + rounding)

    def __rmatmul__(self, theta_T: np.ndarray) -> "Tracked":
        size, words = np.abs(theta_T).astype(np.float64), np.abs(self.message.words).astype(np.float64)
        off = size @ self.off + gamma(words.shape[0], self.message.words.dtype) * (size @ words)
        return Tracked(theta_T @ self.message, theta_T.astype(np.longdouble) @ self.plain, off)

    # numpy then leaves ``theta_T @ tracked`` to __rmatmul__
    __array_ufunc__ = None


def tracked(keys: KeyPair, message: Encoded | Ciphertext, A: np.ndarray) -> Tracked:
    """What encode or encrypt made of A."""
    G = np.abs(keys.private.code.G)
    off = gamma(A.shape[1] + 1, A.dtype) * (np.abs(A).astype(np.float64) @ G)
    return Tracked(message, A.astype(np.longdouble), off)


def bound(private: PrivateKey, item: Tracked, decoder: str) -> np.ndarray:
    """Largest possible error of each row of the decrypted matrix."""
    code, dtype = private.code, item.message.words.dtype
    plan = private.plan(decoder, dtype.name)
    plain = item.plain.astype(np.float64)
    symbols = plain @ code.G
    delta = item.off.copy()
    delta[:, plan.erased] = 0
    if isinstance(plan, LeastSquaresPlan):
        delta[:, plan.erased] = _least_squares(code, plan, plain, symbols, delta)
    else:
        delta[:, plan.erased] = _stepwise(code, plan, private.plan(decoder, "float64"), plain, symbols, delta)
    S = code.G[:, code.information]
    length = np.linalg.norm(S, 2)
    delta, symbols = delta[:, code.information], np.abs(symbols[:, code.information])
    symbol_part = np.linalg.norm(delta, axis=1) * length
    product_part = gamma(code.k + 1, dtype) * np.linalg.norm(symbols + delta, axis=1) * length
    orthogonality = np.linalg.norm(S @ S.T - np.eye(code.k), 2) * np.linalg.norm(plain, axis=1)
    return symbol_part + product_part + orthogonality


def _least_squares(
    code: MdpcCode, plan: LeastSquaresPlan, plain: np.ndarray, symbols: np.ndarray, off: np.ndarray
) -> np.ndarray:
    size = np.abs(plan.solution).astype(np.float64)
    G = code.G.astype(np.longdouble)
    F = np.abs(G @ plan.solution.astype(np.longdouble) - G[:, plan.erased]).astype(np.float64)
    return off @ size + gamma(code.n, plan.dtype) * ((np.abs(symbols) + off) @ size) + np.abs(plain) @ F


def _stepwise(
    code: MdpcCode, plan: ErasurePlan, exact: ErasurePlan, plain: np.ndarray, symbols: np.ndarray, off: np.ndarray
) -> np.ndarray:
    eta = off.max(axis=1)
    rounding = plan.amplification * eta + plan.error_bound * (np.abs(symbols).max(axis=1) + eta)
    D = np.abs(exact.decode(code.G) - code.G)[:, plan.erased] + exact.error_bound * np.abs(code.G).max()
    return rounding[:, None] + np.abs(plain) @ D


def worst(private: PrivateKey, item: Tracked, decoder: str) -> np.ndarray:
    """The actual largest error of each row."""
    decrypted = private.decrypt(item.message, decoder).astype(np.longdouble)
    return np.abs(decrypted - item.plain).max(axis=1).astype(np.float64)
