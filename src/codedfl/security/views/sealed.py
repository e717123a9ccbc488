"""What attackers are given of sealed data: residues as they would read them, with the truth beside them."""

import numpy as np
from jaxtyping import Float, UInt

from codedfl.cipher.seals import FixedPoint, Ring
from codedfl.security.transcript import Exposure
from codedfl.security.views.kinds import PairView, ParcelView, RepliesView, RowView, SharedSupportView

__all__ = ["as_seen", "from_models", "opened_parcel", "sealed_exposures", "sealed_pair"]


def as_seen(ring: Ring, residues: UInt[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return residues as the signed numbers that an attacker would read."""
    return ring.centred(residues).astype(np.float64)


def sealed_exposures(
    form: FixedPoint, words: Float[np.ndarray, "d d"], device: int, gram: Float[np.ndarray, "d d"]
) -> list[Exposure]:
    """Return every view that the suite knows of one sealed Gram matrix."""
    G = np.eye(len(words)) / form.data_step
    views = (ParcelView(G, words, 0, 0), SharedSupportView(G, words, np.zeros(0, np.int64)))
    row = Exposure(RowView(G, words[0], 0), device, gram[:1])
    return [*(Exposure(view, device, gram) for view in views), row]


def opened_parcel(
    form: FixedPoint, words: Float[np.ndarray, "d d"], device: int, gram: Float[np.ndarray, "d d"], assumption: str
) -> Exposure:
    """Return a parcel as somebody reads it who has taken its pad away."""
    view = ParcelView(np.eye(len(words)) / form.data_step, words, 0, 0)
    return Exposure(view, device, gram, assumption=assumption)


def from_models(
    form: FixedPoint, models: Float[np.ndarray, "epochs d c"], device: int, gram: Float[np.ndarray, "d d"]
) -> Exposure:
    """Return what all other devices together can work out at best: models tell gradients, theirs they know.

    Two models of gradient descent in a row tell the summed gradient; whoever knows all data but one device's is left
    with that device's own.
    """
    rounded = as_seen(form.ring, form.encode(gram)) * form.data_step
    view = RepliesView(models, np.asarray(rounded @ models))
    return Exposure(view, device, gram, assumption="all other devices together, from the models")


def sealed_pair(
    form: FixedPoint,
    first: tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d d"]],
    second: tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d d"]],
) -> Exposure:
    """Return two sealed matrices beside each other; what is attacked is the difference of the data."""
    view = PairView(first[0], second[0], float(form.ring.modulus), form.data_step)
    return Exposure(view, 0, first[1] - second[1])
