"""The kinds of views: all that an attack is given.

A view contains what the threat model sends to its holder and what is public (by Kerckhoffs's principle: the scheme, its
sizes and the public key). The truth is in ``codedfl.security.scoring``, which no attack imports.

Linearly encoded data is described by the public map ``G``: words = A G + noise. For the paper's cipher G is the public
key (k x n). For residues G is the scale of the fixed-point encoding times the identity, and the words are the residues
as signed numbers, so that every attack can be tried on them unchanged.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int


@dataclass(frozen=True, eq=False)
class View:
    """Base of all views; ``holder`` says in words who has it, ``adversary`` in one, ``label`` what it is."""

    holder: ClassVar[str]
    label: ClassVar[str]
    adversary: ClassVar[str] = "server"
    """Who has it in the table of verdicts, unless the exposure says otherwise."""


@dataclass(frozen=True, eq=False)
class ParcelView(View):
    """One parcel that a device handed over: words = A G + E."""

    holder = "an eavesdropper on the link, or the recipient"
    label = "one parcel"
    adversary = "eavesdropper"
    G: Float[np.ndarray, "k n"]
    words: Float[np.ndarray, "d n"]
    t: int
    """Public size of an error support; 0 where the scheme has none."""
    beta: int
    """Public rank of an error matrix; 0 where the scheme has none."""


@dataclass(frozen=True, eq=False)
class RowView(View):
    """A single row of a parcel: word = a G + e with e zero outside t positions."""

    holder = "an eavesdropper who caught one row"
    label = "one row"
    adversary = "eavesdropper"
    G: Float[np.ndarray, "k n"]
    word: Float[np.ndarray, "n"]
    t: int


@dataclass(frozen=True, eq=False)
class ForwardView(View):
    """A parcel forwarded by a device that received parcels and added its own data; their senders see it."""

    holder = "the devices that sent to the forwarding one, together"
    label = "a forwarded parcel"
    adversary = "devices"
    G: Float[np.ndarray, "k n"]
    sent: tuple[Float[np.ndarray, "d n"], ...]
    """The parcels that they sent, one or more, errors included: they made them."""
    forwarded: Float[np.ndarray, "d n"]


@dataclass(frozen=True, eq=False)
class SharedSupportView(View):
    """The parcel of a device that was given the support that the attacker had used before."""

    holder = "a device that was given the same support earlier"
    label = "a parcel, support known"
    adversary = "device"
    G: Float[np.ndarray, "k n"]
    words: Float[np.ndarray, "d n"]
    positions: Int[np.ndarray, "t"]
    """The attacker's own error support; empty where the scheme has none."""


@dataclass(frozen=True, eq=False)
class PairView(View):
    """Two sealed parcels of different devices, as signed residues of one ring; data has steps of ``step``."""

    holder = "an eavesdropper on two links"
    label = "two sealed parcels"
    adversary = "eavesdropper"
    first: Float[np.ndarray, "d d"]
    second: Float[np.ndarray, "d d"]
    modulus: float
    step: float


@dataclass(frozen=True, eq=False)
class RepliesView(View):
    """Models sent to one device and its replies: replies[e] = A models[e], without the right-hand side."""

    holder = "the server"
    label = "replies of one device"
    models: Float[np.ndarray, "epochs d c"]
    replies: Float[np.ndarray, "epochs d c"]
    unit: float | None = None
    """Public unit of rounding of the replies, relative to their size; that of their data type if None."""


@dataclass(frozen=True, eq=False)
class MaskedRepliesView(RepliesView):
    """The same under masks: the words as the server reads them."""

    label = "masked replies of one device"


UNSTEADY = 0.01
"""Unit of a sum that is scaled to all devices where the cohort changes."""


@dataclass(frozen=True, eq=False)
class SummedRepliesView(RepliesView):
    """The same where the server gets sums over devices only: A is the sum of their Gram matrices."""

    label = "sums over all devices"


@dataclass(frozen=True, eq=False)
class KnownOthersView(RepliesView):
    """The same for one device, as all others together compute it: two models in a row tell the summed gradient."""

    holder = "all other devices together"
    label = "models"
    adversary = "devices"


@dataclass(frozen=True, eq=False)
class CohortsView(View):
    """Sums of gradients over cohorts of devices, one an epoch, each at its own model."""

    holder = "the server"
    label = "sums over cohorts"
    models: Float[np.ndarray, "epochs d c"]
    sums: Float[np.ndarray, "epochs d c"]
    cohorts: Bool[np.ndarray, "epochs devices"]
    """Whose gradients are in each sum."""
    points: Int[np.ndarray, "devices"]
    """Public numbers of data points."""


@dataclass(frozen=True, eq=False)
class TwoRunsView(View):
    """The sums of Gram matrices that the server got in two runs; one device more took part in the first."""

    holder = "the server"
    label = "sums of two runs"
    with_device: Float[np.ndarray, "d d"]
    without: Float[np.ndarray, "d d"]


@dataclass(frozen=True, eq=False)
class ModelView(View):
    """The released model, and candidate data points with their targets."""

    holder = "whoever reads the released model"
    label = "the released model"
    adversary = "model reader"
    model: Float[np.ndarray, "d c"]
    candidates: Float[np.ndarray, "m d"]
    targets: Float[np.ndarray, "m c"]


@dataclass(frozen=True, eq=False)
class MembershipView(View):
    """A Gram matrix, true or recovered, and candidate data points."""

    holder = "whoever has a Gram matrix"
    label = "a Gram matrix"
    gram: Float[np.ndarray, "d d"]
    candidates: Float[np.ndarray, "m d"]


@dataclass(frozen=True, eq=False)
class ParityView(View):
    """Parity data of one batch of one device: parity = G W X, targets = G W Y, one secret Gaussian G for both."""

    holder = "the server"
    label = "parity data of one batch"
    parity: Float[np.ndarray, "c d"]
    targets: Float[np.ndarray, "c outputs"]
    points: int
    """Public number n of data points with a weight above zero."""
    mass: float
    """Public sum of their squared weights; the single weights are secret."""


@dataclass(frozen=True, eq=False)
class ParityMembershipView(View):
    """Parity data of one batch of one device, and candidate data points."""

    holder = "the server"
    label = "parity data of one batch"
    parity: Float[np.ndarray, "c d"]
    points: int
    candidates: Float[np.ndarray, "m d"]
