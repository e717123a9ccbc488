"""Masks under the seals of ``sealed-coded``: pairs of devices share one, and all cancel in the sum over all devices.

Each device draws one X25519 key for one set-up and sends the public half to the devices it shares masks with: all
others, or in a large fleet its neighbours on a ring. For every such pair u < v and every chunk, u adds the pair's mask
to its pieces and v subtracts it. So whoever knows all seals and all masks of some devices learns the sum over the
others only, as long as the others are connected by masks that they keep: data moved along a mask, and the mask by its
negative, changes nothing that anyone sees. All pairs: any two others are. k neighbours: any k - 1 devices taken out
leave the rest connected.
"""

from collections.abc import Set
from typing import final

import numpy as np
from jaxtyping import UInt, UInt8

from codedfl.cipher.masks.pairwise import AGREEMENT_OPERATIONS, KEY_BYTES, add_mask
from codedfl.cipher.seals import Domain, Ring, Seed
from codedfl.errors import CipherError
from codedfl.schemes.messages import Message, Work
from codedfl.schemes.public import Public

MASKS = "sealed-coded masks"
"""What the agreed secrets are for."""
_SESSION_MASKS = b"codedfl session masks 1 "


@final
class PairwiseMasks:
    """One device's key, and the seeds that it shares with the ``others``; for one set-up only."""

    def __init__(self, index: int, public: Public, others: Set[int]) -> None:
        self._index = index
        self._public = public
        self._others = others
        self._key = public.agreement()
        self._counted = False
        """Whether the work of making the key is counted."""
        self._keys: dict[int, bytes] = {}
        self._seeds: dict[int, bytes] = {}

    def export(self, work: Work) -> UInt8[np.ndarray, "bytes"]:
        """Return the public key."""
        if not self._counted:
            self._count(AGREEMENT_OPERATIONS, work)
            self._counted = True
        return np.frombuffer(self._key.public, np.uint8)

    def absorb(self, sender: int, parcel: Message, work: Work) -> None:
        """Take the key of another device, once, and agree on a seed."""
        key = parcel.get("key")
        if key is None or key.dtype != np.uint8 or key.shape != (KEY_BYTES,):
            raise self._refusal(sender, f"is not one of {KEY_BYTES} bytes")
        if sender not in self._others or sender in self._keys:
            raise self._refusal(sender, "is not the first key of a device that it shares masks with")
        given = key.tobytes()
        if given == self._key.public:
            raise self._refusal(sender, f"is that of device {self._index} itself")
        if same := [device for device, known in self._keys.items() if known == given]:
            raise self._refusal(sender, f"is that of device {same[0]} too")
        first, second = sorted((self._index, sender))
        nonces = self._public.nonce(first) + self._public.nonce(second)
        seed = Seed(self._key.agree(given, MASKS)).derive(_SESSION_MASKS + nonces)
        self._count(AGREEMENT_OPERATIONS, work)
        self._keys[sender], self._seeds[sender] = given, seed

    @property
    def missing(self) -> Set[int]:
        """Devices whose keys have not arrived."""
        return self._others - self._keys.keys()

    def add_to(self, pieces: UInt[np.ndarray, "size"], chunk: int, ring: Ring, work: Work) -> None:
        """Add the masks of a chunk in place: plus with later devices, minus with earlier ones."""
        for other in self._seeds:
            self.add_one(other, pieces, chunk, ring)
        self._count(len(self._seeds) * pieces.size, work)

    def add_one(self, other: int, pieces: UInt[np.ndarray, "size"], chunk: int, ring: Ring) -> None:
        """Add the mask that is shared with one device. Law: what the other one adds is its negative."""
        first, second = sorted((self._index, other))
        add_mask(ring, self._seeds[other], Domain(first, second, chunk), pieces, minus=self._index > other)

    def _count(self, operations: int, work: Work) -> None:
        """Count work that depends on no data and no model, so devices that compute in advance do it in advance."""
        if self._public.first_offline:
            work.beforehand += operations
        else:
            work.add(operations)

    def _refusal(self, sender: int, reason: str) -> CipherError:
        return CipherError(
            f"Device {self._index} refuses the mask key of device {sender}, which {reason}: begin the set-up again."
        )
