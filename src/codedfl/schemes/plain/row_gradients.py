"""Devices that compute gradients from their rows in every epoch: of other losses, and with clipping and noise.

Under noise in each epoch, a device clips the features of its rows once and the residuals in every epoch, adds its share
of noise to their sum, and replies whole steps of the grid. The scheme around it adds such replies exactly.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

import numpy as np
from jaxtyping import Float, Int64

from codedfl.cipher.randomness import fresh_seed
from codedfl.cipher.seals import Z_64
from codedfl.errors import DataError, RefusalError, TrainingError
from codedfl.privacy.descent import GradientRelease, noisy_gradient
from codedfl.schemes.contract import Device
from codedfl.schemes.messages import Message, Work
from codedfl.task import Shard
from codedfl.task.losses import residuals

BELOW = 1 - 2.0**-40
"""Rows and residuals are scaled to a norm just below the clip, so that rounding does not lift them above it."""
Keep = Callable[[int, bytes], bytes]
_LARGEST = 1e100
"""Larger numbers could overflow, depending on the data."""


def factors(rows: Float[np.ndarray, "n k"], longest: float) -> Float[np.ndarray, "n"]:
    """Return by what to multiply rows so that none is longer."""
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    allowed = BELOW * longest
    return np.asarray(allowed / np.maximum(norms, allowed))


def model_digest(model: Float[np.ndarray, "d c"]) -> bytes:
    """Return what the noise for a model depends on."""
    return hashlib.sha256(f"{model.dtype.str} {model.shape} ".encode() + model.tobytes()).digest()


@final
class ClippedGradients:
    """The noisy gradients of one device in one run: at most one in each planned epoch.

    ``keep`` keeps digests of model and reply in an epoch, and returns those that were kept first. A site keeps them as
    long as the seed.
    """

    def __init__(
        self,
        shard: Shard,
        release: GradientRelease,
        seed: bytes | None,
        keep: Keep | None = None,
    ) -> None:
        self._x, self._y = (each.astype(np.float64, copy=False) for each in (shard.x, shard.y))
        for what, values in (("feature", self._x), ("target", self._y)):
            largest = float(np.max(np.abs(values), initial=0.0))
            if not largest <= _LARGEST:
                raise DataError(f"a {what} of size {largest:g} cannot be clipped; correct it, or scale the column")
        self._scales = factors(self._x, release.clip_features)[:, None]
        # below 1 only where all records of a device are hidden together
        self._weight = min(1.0, release.rows / len(self._x))
        self._release = release
        self._seed = fresh_seed(seed)
        kept: dict[int, bytes] = {}
        self._keep: Keep = kept.setdefault if keep is None else keep

    def steps(self, epoch: int, model: Float[np.ndarray, "d c"], work: Work) -> Int64[np.ndarray, "d c"]:
        """Return the noisy gradient at a model, in steps of the grid; refuse more than one for each planned epoch."""
        release = self._release
        if not 1 <= epoch <= release.releases:
            raise RefusalError(
                f"a gradient of epoch {epoch} was asked for, and the noise is sized for the epochs 1 to "
                f"{release.releases}; train no longer than planned"
            )
        if not float(np.max(np.abs(model), initial=0.0)) <= _LARGEST:
            raise TrainingError("training diverged: the model is too large; lower training.learning_rate")
        digest = model_digest(model)
        found = noisy_gradient(self._clipped(model, work), release, self._seed, epoch, digest)
        answer = digest + hashlib.sha256(found.tobytes()).digest()
        before = self._keep(epoch, answer)
        if not before.startswith(digest):
            raise RefusalError(
                f"epoch {epoch} was answered with another model, and a second gradient would be one release more than "
                "planned; begin another run"
            )
        if before != answer:  # the same noise on numbers that were rounded otherwise: threads, libraries
            raise RefusalError(
                f"the gradient of epoch {epoch} is not that of before to the last bit; begin another run"
            )
        return found

    def _clipped(self, model: Float[np.ndarray, "d c"], work: Work) -> Float[np.ndarray, "d c"]:
        """Return the sum of gradients of clipped rows and residuals."""
        found = residuals(self._release.loss, work.product(self._x, model) * self._scales, self._y)
        found *= factors(found, self._release.clip_residuals)[:, None]
        work.add(2 * found.size)  # the squares of residuals, and their scaling
        return work.product(self._x.T, found * (self._scales * self._weight))


@final
@dataclass(frozen=True, eq=False)
class NoisyGradients(Shard):
    """Data of a device that adds noise in each epoch; its rows are zeros, so that no scheme can send them."""

    gradients: ClippedGradients = field(kw_only=True, repr=False)


@final
class NoisyGradientDevice(Device):
    """Replies the noisy gradient of its clipped rows, in steps of the grid."""

    def __init__(self, gradients: ClippedGradients) -> None:
        self._gradients = gradients

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Reply the sum of the clipped gradients of all data points of the device, with noise."""
        return {"gradient": Z_64.residues(self._gradients.steps(epoch, request["model"], work))}


@final
class RowDevice(Device):
    """Replies the gradient of a loss from its rows, in clear."""

    def __init__(self, shard: Shard, loss: str) -> None:
        self._shard = shard
        self._loss = loss

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Reply the sum of the gradients of all data points of the device."""
        shard = self._shard
        found = residuals(self._loss, work.product(shard.x, request["model"]), shard.y)
        return {"gradient": work.product(shard.x.T, found)}
