"""Gradient descent under differential privacy: noise on the sum of gradients, anew in every epoch.

A record (phi, y) changes a sum of gradients by phi r^T, where its residual r is clipped. So the sensitivity is the
product of both clips, whatever the model and the loss. All epochs together are as private as one release of the ratio
mu = sqrt(epochs) (sensitivity / noise), also if each model depends on the gradients before (``accounting.composed``).
"""

from dataclasses import dataclass
from math import sqrt
from typing import cast, final

import numpy as np
from jaxtyping import Float64, Int64

from codedfl.cipher.seals.pads import Seed
from codedfl.privacy.accounting import epsilon_of
from codedfl.privacy.noise import in_steps
from codedfl.privacy.promise import Promise, Unit
from codedfl.privacy.release import basis, calibrated
from codedfl.privacy.sampling import discrete_gaussian


@final
@dataclass(frozen=True, kw_only=True)
class GradientRelease(Promise):
    """The noise of a run that releases a sum of gradients in every epoch; make one by ``plan``."""

    clip_residuals: float
    loss: str
    """What the residuals are of: ``squared`` or ``softmax``."""
    bits: int
    """Gradients are rounded to multiples of 2^-bits."""
    steps: int
    """Noise of one device, in steps of the grid."""
    sensitivity: float
    """Frobenius norm of the largest change that one record (or device) makes, after rounding."""

    @classmethod
    def plan(
        cls,
        *,
        epsilon: float,
        delta: float,
        clip_features: float,
        clip_residuals: float,
        epochs: int,
        features: int,
        outputs: int,
        devices: int,
        largest_rows: int,
        records: int,
        colluding: int = 0,
        losses: int = 0,
        unit: str = "record",
        most_rows: float | None = None,
        loss: str = "squared",
        known_seed: bool = False,
    ) -> "GradientRelease":
        """Choose the grid and the noise; arguments and errors are those of :meth:`Release.plan`."""
        rows, changes, ratio = basis(
            epsilon=epsilon,
            delta=delta,
            features=features,
            outputs=outputs,
            devices=devices,
            largest_rows=largest_rows,
            records=records,
            colluding=colluding,
            losses=losses,
            unit=unit,
            most_rows=most_rows,
            releases=epochs,
            clip_features=clip_features,
            clip_residuals=clip_residuals,
        )
        product, honest = clip_features * clip_residuals, devices - colluding - losses
        largest = 2 * devices * rows * product  # noise takes less than the other half
        found = calibrated(changes * product, sqrt(features * outputs), ratio, honest, largest)
        mu = sqrt(epochs) * found.ratio(honest)
        return cls(
            epsilon=epsilon_of(mu, delta),
            delta=delta,
            mu=mu,
            clip_features=clip_features,
            clip_residuals=clip_residuals,
            features=features,
            outputs=outputs,
            devices=devices,
            colluding=colluding,
            losses=losses,
            rows=rows,
            unit=cast(Unit, unit),
            releases=epochs,
            loss=loss,
            known_seed=known_seed,
            bits=found.bits,
            steps=found.sigma,
            sensitivity=found.sensitivity,
        )

    @property
    def std(self) -> float:
        """Standard deviation of the noise of all devices in an entry of the sum of gradients."""
        return sqrt(self.devices) * self.steps * 2.0**-self.bits

    def counted(self, colluding: int) -> float:
        """How many shares of noise are counted on where so many devices collude."""
        return self.devices - colluding - self.losses

    @property
    def details(self) -> dict[str, float]:
        """The clip of residuals, and the noise of all devices."""
        return {"clip_residuals": self.clip_residuals, "gradient_noise_std": self.std}

    @property
    def covered(self) -> str:
        """All planned epochs, also if there are fewer: when to stop may follow from the data, and so tell of them."""
        return f"this run of at most {self.releases} epochs"


def noisy_gradient(
    gradient: Float64[np.ndarray, "d c"], release: GradientRelease, seed: bytes, epoch: int, digest: bytes
) -> Int64[np.ndarray, "d c"]:
    """Return a sum of clipped gradients with the device's share of noise, in steps of the grid.

    Parameters
    ----------
    gradient
        Of one device.
    release
        The noise and the grid.
    seed
        32 bytes that only this device knows, of one run.
    epoch, digest
        The noise is a function of them: the same for the same epoch and model, and independent for others.

    Raises
    ------
    DataError
        If an entry is larger than clipped gradients allow.
    """
    rounded = in_steps(gradient, release.bits, release.rows * release.clip_features * release.clip_residuals)
    purpose = f"codedfl noise of a gradient 1 {epoch} {digest.hex()}"
    drawn = discrete_gaussian(release.steps, gradient.size, Seed(seed).derive(purpose.encode()))
    return np.asarray(rounded.astype(np.int64) + drawn.reshape(gradient.shape))
