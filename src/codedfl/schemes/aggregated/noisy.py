"""Gradients of noisy sums in Z_2^64, for secure aggregation in many epochs.

Devices round A_i and B_i once, to steps far finer than their noise. From then on all is exact: A_i Theta - B_i is
linear in them, and so the sum over all devices, at any models and in any number of epochs, tells nothing but the sums
of A_i and B_i. Products in floating point, rounded device by device, would tell single devices apart by and by.
"""

import math
from typing import final

import numpy as np
from jaxtyping import Float, UInt64

from codedfl.cipher.seals import Z_64
from codedfl.errors import CipherError
from codedfl.privacy.release import Release
from codedfl.schemes.messages import Message, Work
from codedfl.task import Shard

_LARGEST = 2.0**62
"""Of a model, in steps."""


def kept_bits(release: Release) -> tuple[int, int]:
    """Return the bits after the binary point of Gram matrices and right-hand sides: those of their grids, or fewer."""
    grids = release.gram_bits, release.moments_bits
    gram, moments = (min(b, math.ceil(-math.log2(c))) for b, c in zip(grids, release.coarsest_steps, strict=True))
    return gram, moments


def model_steps(model: Float[np.ndarray, "d c"], bits: int) -> Float[np.ndarray, "d c"]:
    """Return a model in whole steps of 2^-bits."""
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.rint(np.ldexp(model.astype(np.float64), bits))
    if not np.all(np.abs(steps) < _LARGEST):
        raise CipherError(f"A model in steps of 2^-{bits} does not fit Z_2^64: ask for coarser steps.")
    return np.asarray(steps)


@final
class ExactReplies:
    """The replies of one device."""

    def __init__(self, shard: Shard, release: Release) -> None:
        self._bits = kept_bits(release)
        self._gram, self._side = (
            _residues(np.rint(np.ldexp(each, bits)))
            for each, bits in zip((shard.gram, shard.moments), self._bits, strict=True)
        )

    def reply(self, model: Float[np.ndarray, "d c"], bits: int, work: Work) -> Message:
        """Return A_i Theta - B_i in steps of 2^-bits, at the nearest model in whole steps.

        Steps are at most those of the right-hand side, which the device has checked.
        """
        if model.shape != self._side.shape:
            raise CipherError(f"A model of shape {model.shape} is refused: {self._side.shape} is agreed.")
        steps = _residues(model_steps(model, bits - self._bits[0]))
        work.macs += steps.size * len(self._gram)
        product = Z_64.product(np.ascontiguousarray(steps.T), self._gram).T
        scale = pow(2, bits - self._bits[1], 1 << 64)
        return {"gradient": product - self._side * np.uint64(scale)}


def _residues(steps: Float[np.ndarray, "d k"]) -> UInt64[np.ndarray, "d k"]:
    return steps.astype(np.int64).view(np.uint64)
