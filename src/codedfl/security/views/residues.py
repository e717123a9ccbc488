"""Views of residues: sealed, masked and encrypted data as an attacker reads them."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Float, UInt

from codedfl.cipher.seals.fixed_point import FixedPoint
from codedfl.cipher.seals.rings import Ring
from codedfl.security.transcript import Exposure, RecordedParcel
from codedfl.security.views.kinds import ForwardView, PairView, ParcelView, RepliesView, RowView, SharedSupportView
from codedfl.task import Shard


def as_seen(ring: Ring, residues: UInt[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return residues as the signed numbers that an attacker reads."""
    return ring.centred(residues).astype(np.float64)


@lru_cache(maxsize=4)
def steps(d: int, step: float) -> Float[np.ndarray, "d d"]:
    """Return the public map of fixed-point encoding, one array for all devices."""
    return np.asarray(np.eye(d) / step)


def sealed_exposures(
    form: FixedPoint, words: Float[np.ndarray, "d d"], device: int, gram: Float[np.ndarray, "d d"]
) -> list[Exposure]:
    """Return one sealed Gram matrix as every kind of view that an attack accepts."""
    G = steps(len(words), form.data_step)
    views = (ParcelView(G, words, 0, 0), SharedSupportView(G, words, np.zeros(0, np.int64)))
    row = Exposure(RowView(G, words[0], 0), device, gram[:1])
    return [*(Exposure(view, device, gram) for view in views), row]


def parcel_exposures(
    form: FixedPoint,
    parcels: Sequence[RecordedParcel],
    words: Mapping[int, Float[np.ndarray, "d d"]],
    shards: Sequence[Shard],
    modulus: float,
) -> list[Exposure]:
    """Return every parcel of a device's own data, two of different devices, and all forwarded ones for their senders.

    ``words`` are the parcels as an attacker reads them, by the ``id`` of the entry.
    """
    own = [entry for entry in parcels if len(entry.contents) == 1]
    found = []
    for entry in own:
        found += sealed_exposures(form, words[id(entry)], entry.sender, shards[entry.sender].gram)
    if len(own) >= 2:
        pair = PairView(words[id(own[0])], words[id(own[1])], modulus, form.data_step)
        one, other = (shards[entry.sender].gram for entry in own[:2])
        found.append(Exposure(pair, own[0].sender, one - other))
    for entry in [entry for entry in parcels if entry.received]:
        sent = tuple(words[id(parcel)] for parcel in entry.received if id(parcel) in words)
        gram = shards[entry.sender].gram
        view = ForwardView(steps(len(gram), form.data_step), sent, words[id(entry)])
        found.append(Exposure(view, entry.sender, gram))
    return found


def opened_parcel(
    form: FixedPoint, clear: Float[np.ndarray, "d d"], device: int, gram: Float[np.ndarray, "d d"]
) -> Exposure:
    """Return a parcel that a server opens because a device gives it away; it is off by steps, whoever sent it."""
    view = ParcelView(steps(len(clear), form.data_step), clear, 0, 0)
    words = "the recipient of a parcel gives it to the server"
    return Exposure(view, device, gram, assumption=words, adversary="server and devices")


def rounded(form: FixedPoint, gram: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "d d"]:
    """Return a Gram matrix as it is rounded to steps."""
    return as_seen(form.ring, form.encode(gram)) * form.data_step


def everyone(view: RepliesView, shards: Sequence[Shard]) -> Exposure:
    """Return sums over all devices as an exposure of all of them."""
    parts = {device: shard.gram for device, shard in enumerate(shards)}
    return Exposure(view, None, total_of(parts), parts=parts)


def total_of(parts: Mapping[int, Float[np.ndarray, "d d"]]) -> Float[np.ndarray, "d d"]:
    """Return the sum in float64."""
    return np.asarray(np.sum(list(parts.values()), axis=0, dtype=np.float64))


def sealed_pair(
    form: FixedPoint,
    first: tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d d"]],
    second: tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d d"]],
) -> Exposure:
    """Return two sealed matrices; the attack is after the difference of the data. Arguments are (words, gram)."""
    view = PairView(first[0], second[0], float(form.ring.modulus), form.data_step)
    return Exposure(view, 0, first[1] - second[1])
