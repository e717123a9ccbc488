"""What every party knows before the first epoch, and what follows from it for sums over all devices."""

import math
import statistics
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from codedfl.cipher.masks.pairwise import AgreementKey, KeyAgreement
from codedfl.network import DelayModel
from codedfl.privacy.descent import GradientRelease
from codedfl.privacy.release import Release
from codedfl.schemes.messages import Message


@dataclass(frozen=True)
class Public:
    """What every party knows before the first epoch.

    >>> public = Public(samples=(60, 40), features=8, outputs=2, dtype=np.dtype("float32"))
    >>> public.devices, public.model_layout
    (2, (dtype('float32'), (8, 2)))
    """

    samples: tuple[int, ...]
    features: int
    outputs: int
    dtype: "np.dtype[Any]"
    largest_feature: float = 1.0
    """An agreed bound on the magnitude of every feature; devices refuse data that exceed it."""
    largest_target: float = 1.0
    """The same for targets."""
    delays: DelayModel | None = None
    """What is known of the fleet and its links, declared or measured; None: nothing."""
    first_offline: bool = True
    """Whether devices compute the first gradient beforehand (``training.first_epoch_offline``)."""
    fresh_keys: bool = False
    """Whether the server draws keys from the operating system, as on real sites; else from seeds of the scenario."""
    accuracy: float = 0.05
    """The largest error that number formats may cause in a gradient, relative to its natural size."""
    feature_energy: float | None = None
    """A bound on the sum of x_j^2 over the data points of all devices, for every feature j; None: unknown."""
    target_energy: float | None = None
    """The same for targets."""
    nonces: tuple[bytes, ...] = field(default=(), repr=False, compare=False)
    """On real sites: random bytes that each device draws for a session, at the device its own; empty in virtual time.

    They enter pads and signatures, so neither can be used in a second session.
    """
    signed: bool = False
    """Whether devices sign for each other in secure aggregation, as real sites with keys do."""
    claims: tuple[tuple[float, float], ...] = ()
    """The bounds on features and targets that each device publishes; empty: the largest are typical."""
    bound_share: float = math.inf
    """The largest error that the bound of one device may cause, relative to the size of typical data."""
    names: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """What error messages call the devices; empty: their numbers."""
    release: Release | GradientRelease | None = None
    """What the run releases with noise, once or in each epoch; None: devices add none."""
    loss: str = "squared"
    """What devices compute gradients of: ``squared`` or ``softmax``."""
    announced: Message | None = field(default=None, repr=False, compare=False)
    """At a real site: the server's :meth:`Scheme.announcement`. None at the server and in virtual time."""
    agreement: KeyAgreement = field(default=AgreementKey, repr=False, compare=False)
    """How devices agree on secrets: by X25519, unless all of them are simulated in one process."""

    def __post_init__(self) -> None:
        if self.agreement is not AgreementKey and (self.signed or self.nonces or self.announced is not None):
            raise TypeError("the facts are those of real sites, whose keys are those of X25519")

    @property
    def devices(self) -> int:
        """Number of devices N."""
        return len(self.samples)

    @cached_property
    def total(self) -> int:
        """Number of data points m of all devices."""
        return sum(self.samples)

    @cached_property
    def most(self) -> int:
        """The largest number of data points of a device."""
        return max(self.samples)

    def nonce(self, device: int) -> bytes:
        """Return a device's nonce of the session; nothing in virtual time."""
        return self.nonces[device] if self.nonces else b""

    @property
    def model_layout(self) -> tuple["np.dtype[Any]", tuple[int, int]]:
        """Number format and shape of a model or gradient in a message."""
        return self.dtype, (self.features, self.outputs)

    def name(self, device: int) -> str:
        """Return what a device is called."""
        return self.names[device] if self.names else f"device {device}"

    @property
    def typical(self) -> "Public":
        """The same with the median of the bounds that devices publish: one device cannot move it far."""
        largest = self.largest_feature, self.largest_target
        # zeros say nothing about the size of data
        feature, target = (
            statistics.median_low([claim[place] for claim in self.claims if claim[place] > 0] or [largest[place]])
            for place in (0, 1)
        )
        return replace(self, largest_feature=feature, largest_target=target)

    @property
    def gram_bound(self) -> float:
        """A bound on the magnitude of every entry of the sum of Gram matrices, and of every part of this sum.

        By the Cauchy-Schwarz inequality, the sum of |x_j x_l| is at most the larger of the energies of j and l.
        """
        most = self.total * self.largest_feature**2
        return most if self.feature_energy is None else min(most, self.feature_energy)

    @property
    def moments_bound(self) -> float:
        """The same for the sum of right-hand sides."""
        most, total = self.total * self.largest_feature * self.largest_target, self.total
        if self.feature_energy is None and self.target_energy is None:
            return most
        energy = total * self.largest_target**2 if self.target_energy is None else self.target_energy
        return min(most, math.sqrt(self.gram_bound) * math.sqrt(energy))
