"""What a device of secure aggregation knows of the cohort by itself, and the statements that devices sign in a sum.

A device takes the number of devices and the threshold from the agreed scenario, never from a request. Statements are
bound to the session by the nonces of all devices, each of which is sure that its own is new. So neither keys nor lists
of survivors of one session are accepted in another.
"""

import hashlib
import struct
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import final

import numpy as np
from jaxtyping import Int, UInt8

from codedfl.cipher.masks.graph import MaskGraph
from codedfl.cipher.masks.pairwise import AgreementKey, KeyAgreement
from codedfl.errors import CipherError
from codedfl.schemes.aggregated.server import Threshold
from codedfl.schemes.messages import Message
from codedfl.schemes.public import Public

_KEYS, _SURVIVORS = b"codedfl secagg keys 1", b"codedfl secagg survivors 1"
_ABSENT = b"codedfl secagg absent 1"
_LENGTH = struct.Struct("<Q")


@final
@dataclass(frozen=True)
class Cohort:
    """The devices of a run, as one of them knows them.

    >>> Cohort(5, Threshold()).threshold_of(range(4)), Cohort(5, Threshold(), hands_over=True).threshold_of(range(2))
    (4, 2)
    """

    devices: int
    threshold: Threshold
    least: int = 0
    """How many devices' data a sum must cover; it matters where devices hand data over."""
    hands_over: bool = False
    """Whether devices hand data over, so that few devices may hold the data of all."""
    signed: bool = False
    """Whether keys and lists of survivors are signed, as on real sites with keys."""
    digest: bytes = b""
    """Identifies session and devices."""
    degree: int = 0
    """Neighbours of a device in the graph of masks; 0: all other devices."""
    agreement: KeyAgreement = field(default=AgreementKey, compare=False)
    """What makes the keys of its sums."""

    @classmethod
    def of(
        cls, public: Public, threshold: Threshold, *, survives: int, hands_over: bool = False, degree: int = 0
    ) -> "Cohort":
        """Derive the cohort from public facts; a sum lacks the data of at most ``survives`` devices."""
        sizes = (*public.samples, public.features, public.outputs, threshold.of(public.devices))
        sizes += (degree,) if degree else ()
        digest = hashlib.sha256(_joined(*(_LENGTH.pack(size) for size in sizes), *public.nonces)).digest()
        least = public.devices - survives
        return cls(
            public.devices,
            threshold,
            least,
            hands_over=hands_over,
            signed=public.signed,
            digest=digest,
            degree=degree,
            agreement=public.agreement,
        )

    @property
    def everyone(self) -> Set[int]:
        """All devices."""
        return frozenset(range(self.devices))

    @property
    def graph(self) -> MaskGraph:
        """Who masks with whom."""
        return MaskGraph(self.devices, self.degree)

    def circle(self, device: int) -> Set[int]:
        """Return the devices that a device shares secrets with, and itself."""
        return frozenset(self.graph.circle(device))

    def threshold_of(self, members: Sequence[int]) -> int:
        """Return t: that of all devices, or, where the others have handed over, that of the remaining ones.

        Of a circle it is that of the whole circle.
        """
        return self.threshold.of(len(members)) if self.hands_over else self.threshold.within(self.graph)

    def keys_statement(self, epoch: int, device: int, keys: UInt8[np.ndarray, "2 bytes"], held: Set[int]) -> bytes:
        """Return what a device signs with its keys: they are its own in this epoch, and whose data it holds."""
        return self._statement(_KEYS, epoch, _packed([device]), keys.tobytes(), _packed(sorted(held)))

    def survivors_statement(
        self, epoch: int, keys: Mapping[int, UInt8[np.ndarray, "2 bytes"]], survivors: Sequence[int]
    ) -> bytes:
        """Return what a device signs of a sum: its members with their keys, and whose masked replies arrived."""
        members = sorted(keys)
        packed = b"".join(keys[device].tobytes() for device in members)
        return self._statement(_SURVIVORS, epoch, _packed(members), packed, _packed(sorted(survivors)))

    def absent_statement(self, epoch: int, absent: Sequence[int]) -> bytes:
        """Return what a device of a circle signs of a sum: all devices of the cohort whose replies are not in it."""
        return self._statement(_ABSENT, epoch, _packed(sorted(absent)))

    def _statement(self, label: bytes, epoch: int, *parts: bytes) -> bytes:
        return _joined(label, self.digest, _LENGTH.pack(epoch), *parts)


def _packed(numbers: Sequence[int]) -> bytes:
    return b"".join(_LENGTH.pack(number) for number in numbers)


def _joined(*parts: bytes) -> bytes:
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def numbers_in(request: Message, name: str) -> list[int]:
    """Return the device numbers of a request; refuse anything that is no list of different ones."""
    array: Int[np.ndarray, "..."] = request.get(name, np.zeros(()))
    if array.ndim != 1 or array.dtype.kind != "i" or len(np.unique(array)) != array.size or (array < 0).any():
        raise CipherError(f"A request whose '{name}' are no list of different devices is refused: name each once.")
    return [int(number) for number in array]


def octets_in(request: Message, name: str, shape: tuple[int, ...]) -> UInt8[np.ndarray, "..."]:
    """Return the bytes of a request in a given shape."""
    array = request.get(name)
    if array is None or array.dtype != np.uint8 or array.shape != shape:
        raise CipherError(f"A request whose '{name}' are no bytes of shape {shape} is refused: send what was received.")
    return array
