"""Real matrices as residues: fixed point with proven bounds, and a band that finds overflow.

A data entry a becomes round(a 2^f) for the fixed ``data_bits`` f; column k of a model becomes round(theta_k 2^g_k)
with bits g_k chosen anew for every model, because the server knows the model and the ring should be filled by it. Pads
make every residue equally likely, so only the *true* result must fit: with S the bound on the integers of the sum of
the data,

    |theta_k^T sum A| <= sum_j |round(theta_jk 2^g_k)| * S <= (15/16) modulus / 2        (Hoelder's inequality).

Results beyond the middle expression cannot occur; decoding raises on them. A result that wrapped is nearly uniform, so
an entry falls in the band with probability 1/16 or more, and c d of them escape with probability (15/16)^(c d).

Laws, with [x] for the rounded matrices:

    decode_sum(encode(A) + encode(B)) = [A] + [B]
    decode_product(encode_model(T) @ encode(A), T) = [T]^T [A]
    |[a] - a| <= step / 2

The first two are exact; only where a result of Z_2^64 has more than 2^53 steps is it rounded once, to float64.

Errors of the model do not add up over epochs if the *difference* to the rounded models sent before is multiplied
(``EncodedModel.value``): it shrinks as training converges, and so does the error.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import Float, Float64, Int64, UInt

from codedfl.cipher.seals.rings import PrimeField, Ring
from codedfl.cipher.seals.triangles import kernels, packed_size
from codedfl.errors import CipherError

# the share of the signed range that results may fill; the rest is the band that finds overflow
SAFE_SHARE = (15, 16)
# beyond this the step of a model would leave the normal numbers of float64
LARGEST_BITS = 900


@final
@dataclass(frozen=True, eq=False)
class EncodedModel:
    """theta^T as residues, class k in steps of 2^-bits[k]; no true result of class k exceeds limits[k] steps."""

    residues: UInt[np.ndarray, "c d"]
    bits: Int64[np.ndarray, "c"]
    limits: Int64[np.ndarray, "c"]
    value: Float64[np.ndarray, "d c"]


@final
@dataclass(frozen=True)
class FixedPoint:
    """The number format of a run: data in steps of 2^-data_bits, entries up to ``entry_bound`` on one device.

    Replies are sums over up to ``summands`` devices, entries of which are up to ``sum_bound`` before rounding.
    """

    ring: Ring
    data_bits: int
    entry_bound: float
    summands: int
    sum_bound: float

    def __post_init__(self) -> None:
        if not (0 < self.entry_bound < math.inf and 0 < self.sum_bound < math.inf and self.summands >= 1):
            raise CipherError(
                f"Bounds of {self.entry_bound} on an entry and {self.sum_bound} on the sum of {self.summands} are not "
                "positive numbers: state how large entries can be and how many devices are summed."
            )
        if self.model_budget < 1 or math.ldexp(self.entry_bound, self.data_bits) < 1:
            raise CipherError(
                f"{self.ring} is too small for entries up to {self.sum_bound:g} in steps of 2^{-self.data_bits}: "
                "take fewer data bits or a larger ring."
            )

    @classmethod
    def choose(
        cls,
        ring: Ring,
        *,
        entry_bound: float,
        summands: int,
        dimension: int,
        sum_bound: float | None = None,
        model_steps: float | None = None,
    ) -> "FixedPoint":
        """Return the format of most data bits that leaves room for models of ``model_steps`` steps an entry on average.

        Data of largest size n steps and a model of s steps on average need room for n s d N (N devices, d rows). The
        worst relative errors of the product are 1/(2n) from the data and 1/(2s) from the model; by default n = s, which
        makes the larger one least. Where the model's errors do not add up (see above), fewer steps, such as 16,
        leave more for the data.
        """
        total = entry_bound * summands if sum_bound is None else sum_bound
        if sum_bound is None and Fraction(total) < Fraction(entry_bound) * summands:
            total = math.nextafter(total, math.inf)
        room = ring.largest * SAFE_SHARE[0] // SAFE_SHARE[1]
        steps = math.sqrt(room / (dimension * total / entry_bound)) if model_steps is None else model_steps
        if not steps >= 1:
            raise CipherError(
                f"{ring} has no room for {dimension} rows summed over {summands} devices: take a larger ring."
            )
        needed = math.ceil(steps * dimension)
        bits = math.floor(math.log2(room / needed / total)) + 1
        # whole numbers decide, because floating point errs by a bit near 2^64
        while _sum_limit(total, bits, summands) * needed > room and math.ldexp(entry_bound, bits) >= 1:
            bits -= 1
        if math.ldexp(entry_bound, bits) < 1:
            raise CipherError(
                f"{ring} is too small for the sum of {summands} matrices with {dimension} rows and a model of "
                f"{steps:.3g} steps: take a larger ring or fewer model steps."
            )
        return cls(ring, bits, entry_bound, summands, total)

    @property
    def data_step(self) -> float:
        """The distance of neighbouring data values."""
        return math.ldexp(1.0, -self.data_bits)

    @cached_property
    def sum_limit(self) -> int:
        """The largest magnitude, in steps, of an entry of the sum of rounded data."""
        return _sum_limit(self.sum_bound, self.data_bits, self.summands)

    @cached_property
    def model_budget(self) -> int:
        """The largest sum of magnitudes, in steps, that a class of a model may have."""
        return self.ring.largest * SAFE_SHARE[0] // SAFE_SHARE[1] // self.sum_limit

    def encode(self, A: Float[np.ndarray, "..."], *, bound: float | None = None) -> UInt[np.ndarray, "..."]:
        """Return the residues of one device's data; ``bound`` is its share of ``sum_bound`` where devices differ."""
        allowed = self.entry_bound if bound is None else bound
        self._check_entries(bool(np.all(np.abs(A) <= allowed)), allowed)
        return self.ring.residues(_rounded(np.ldexp(A.astype(np.float64), self.data_bits)))

    def encode_symmetric(self, A: Float[np.ndarray, "d d"]) -> UInt[np.ndarray, "entries"]:
        """Return the upper triangle of ``encode``, in one pass over it; the lower triangle of A is not read."""
        rows, scale = np.ascontiguousarray(A), math.ldexp(1.0, self.data_bits)
        packed = np.empty(packed_size(len(A)), self.ring.dtype)
        wrap = self.ring.dtype.type(self.ring.modulus if isinstance(self.ring, PrimeField) else 0)
        encode = getattr(kernels(), f"encode_upper_{'wide' if self.ring.dtype.itemsize > 4 else 'narrow'}")
        self._check_entries(encode(rows, scale, self.entry_bound, wrap, packed), self.entry_bound)
        return packed

    def _check_entries(self, sound: bool, allowed: float) -> None:
        if not sound or not allowed <= self.entry_bound:
            raise CipherError(
                f"An entry of the data is beyond the agreed bound {min(allowed, self.entry_bound):g} or is no number: "
                "clean the data, or agree on a larger bound."
            )

    def decode_sum(self, residues: UInt[np.ndarray, "..."]) -> Float64[np.ndarray, "..."]:
        """Return the sum of the rounded data of up to ``summands`` devices; raise beyond the bound of such a sum."""
        integers = self.ring.centred(residues)
        _check_band(integers, self.sum_limit)
        return np.ldexp(integers.astype(np.float64), -self.data_bits)

    def encode_model(self, theta: Float[np.ndarray, "d c"], *, longest: float = math.inf) -> EncodedModel:
        """Return theta^T with the most bits for each class whose products with the data are sure to fit.

        ``longest`` bounds the Euclidean length of a class in steps beside that.
        """
        if not np.all(np.isfinite(theta)):
            raise CipherError("The model holds NaN or infinity: lower the learning rate.")
        columns = np.ascontiguousarray(theta.T, dtype=np.float64)
        norms, budget = np.abs(columns).sum(axis=1), self.model_budget
        bits = np.full(len(columns), LARGEST_BITS, np.int64)
        known = norms > 0
        bits[known] = np.minimum(np.floor(np.log2(budget) - np.log2(norms[known])) + 1, LARGEST_BITS)
        while True:
            integers = _rounded(np.ldexp(columns, bits[:, None]))
            sizes = np.abs(integers).sum(axis=1)
            large = (sizes > budget) | (np.linalg.norm(integers.astype(np.float64), axis=1) > longest)
            if not np.any(large):
                break
            bits[large] -= 1
        value = np.ldexp(integers.astype(np.float64), -bits[:, None]).T
        return EncodedModel(self.ring.residues(integers), bits, sizes * self.sum_limit, value)

    def decode_product(self, residues: UInt[np.ndarray, "c b"], model: EncodedModel) -> Float64[np.ndarray, "c b"]:
        """Return theta^T sum A of the rounded matrices; raise beyond the bound of such a product."""
        integers = self.ring.centred(residues)
        _check_band(integers, model.limits[:, None])
        return np.asarray(np.ldexp(integers.astype(np.float64), -(model.bits + self.data_bits)[:, None]))


def _sum_limit(bound: float, bits: int, summands: int) -> int:
    """Return the sum in steps; each summand may have been rounded up by one."""
    return math.floor(math.ldexp(bound, bits)) + summands


def _rounded(steps: Float64[np.ndarray, "..."]) -> Int64[np.ndarray, "..."]:
    return np.asarray(np.rint(steps)).astype(np.int64)


def _check_band(integers: Int64[np.ndarray, "..."], limit: int | Int64[np.ndarray, "..."]) -> None:
    # two comparisons, because the magnitude of the smallest 64-bit integer is not a 64-bit integer
    outside = np.count_nonzero((integers > limit) | (integers < -np.asarray(limit)))
    if outside:
        raise CipherError(
            f"{outside} of {integers.size} decoded numbers are larger than the bounds allow, so the sum overflowed or "
            "a pad does not match: check the bounds, the seeds and the exports that were summed."
        )
