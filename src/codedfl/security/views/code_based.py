"""Views of ``code-based``: parcels under the paper's cipher, forwarded parcels, supports issued twice, and replies."""

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float, Int64

from codedfl.cipher.mceliece.messages import EncryptedReply
from codedfl.cipher.mceliece.private_key import KeyPair
from codedfl.cipher.mceliece.public_key import PublicKey
from codedfl.cipher.mceliece.supports import Support
from codedfl.schemes.sharing.code_based import CodeBased, granted_supports
from codedfl.security.transcript import Exposure, RecordedParcel, RecordedReply, Transcript
from codedfl.security.views.kinds import ForwardView, ParcelView, RowView, SharedSupportView
from codedfl.security.views.replies import Stacks, longest_of_each, reply_series
from codedfl.task import Shard

_SEED = hashlib.sha256(b"codedfl code-based 0 errors of full rank").digest()


def code_based_exposures(scheme: CodeBased, transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return what eavesdroppers, earlier senders, holders of the same support and the server see."""
    keys, sent = scheme.keys, transcript.parcels
    found = [*_parcels(keys.public, sent, shards), *_forwarded(keys.public, sent, shards)]
    return [*found, *_known_supports(keys.public, sent, shards), *_replies(keys, transcript, shards)]


def _parcels(public: PublicKey, sent: Iterable[RecordedParcel], shards: Sequence[Shard]) -> Iterable[Exposure]:
    """Yield each device's own data under a fresh error, one row of it, and the same under errors of full rank."""
    for entry in sent:
        supports = granted_supports(entry.grant)
        if len(entry.contents) == 1 and supports:
            G, words, positions = public.G, entry.parcel["words"], _union(supports)
            # errors on two supports are errors on their union, of twice the rank
            rank = min(len(supports) * public.parameters.beta, positions.size)
            size = dataclasses.replace(public.parameters, t=positions.size, beta=rank)
            gram = shards[entry.sender].gram
            yield Exposure(ParcelView(G, words, size.t, size.beta), entry.sender, gram, positions)
            yield Exposure(RowView(G, words[0], size.t), entry.sender, gram[:1], positions)
            repaired = PublicKey(dataclasses.replace(size, beta=positions.size), G)
            support = Support(repaired.fingerprint, 0, positions)
            words = repaired.add_error(repaired.encode(gram), support, seed=_SEED).words
            view = ParcelView(G, words, size.t, positions.size)
            yield Exposure(view, entry.sender, gram, positions, f"errors of rank t = {size.t} instead of beta")


def _forwarded(public: PublicKey, sent: Iterable[RecordedParcel], shards: Sequence[Shard]) -> Iterable[Exposure]:
    """Yield parcels forwarded without a fresh support: earlier senders can subtract their own parcels.

    One with several senders, who must collude, and one with a single sender: a device that received one forwarded sum.
    """
    known: set[bool] = set()
    for entry in sent:
        alone = len(entry.received) == 1
        if "positions" not in entry.grant and alone not in known:
            known.add(alone)
            received = tuple(parcel.parcel["words"] for parcel in entry.received)
            view = ForwardView(public.G, received, entry.parcel["words"])
            party = "device" if alone else "devices"
            yield Exposure(view, entry.sender, shards[entry.sender].gram, adversary=party)


def _known_supports(public: PublicKey, sent: Iterable[RecordedParcel], shards: Sequence[Shard]) -> Iterable[Exposure]:
    """Yield a parcel under a support that was issued before, and is known to the device that had it."""
    known: set[int] = set()
    for entry in sent:
        supports = granted_supports(entry.grant)
        numbers = {number for number, _ in supports}
        if supports and numbers <= known:
            positions = _union(supports)
            total = np.sum([shards[device].gram for device in entry.contents], axis=0)
            view = SharedSupportView(public.G, entry.parcel["words"], positions)
            yield Exposure(view, entry.sender, total, positions)
            return
        known |= numbers


def _union(supports: Sequence[tuple[int, Int64[np.ndarray, "t"]]]) -> Int64[np.ndarray, "positions"]:
    """Return the positions of all supports of a grant."""
    return np.unique(np.concatenate([positions for _, positions in supports]))


def _replies(keys: KeyPair, transcript: Transcript, shards: Sequence[Shard]) -> Iterable[Exposure]:
    """Yield the replies of the devices with the data of fewest, which the server decrypts with the private key."""

    def read(entry: RecordedReply) -> Float[np.ndarray, "d c"]:
        return np.asarray(keys.private.decrypt(EncryptedReply(keys.public.fingerprint, entry.reply["words"])).T)

    stacks = Stacks()
    for entries in longest_of_each(transcript.single()) or transcript.series()[:1]:
        total = np.sum([shards[device].gram for device in entries[0].contents], axis=0)
        yield Exposure(reply_series(entries, read, stacks), entries[0].device, total)
