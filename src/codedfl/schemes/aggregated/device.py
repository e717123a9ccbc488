"""Secure aggregation, the device's side: keys, shares, masks, and the requests that a device refuses."""

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any, final

import numpy as np
from jaxtyping import UInt, UInt8, UInt32

from codedfl.cipher.masks.pairwise import AGREEMENT_OPERATIONS, AgreementKey, close_envelope, open_envelope
from codedfl.cipher.masks.shamir import SecretSharing
from codedfl.cipher.randomness import fresh_seed
from codedfl.cipher.seals import Z_64, FixedPoint, Ring
from codedfl.errors import CipherError
from codedfl.schemes.aggregated.server import MASK, Threshold, add_masks, number_of
from codedfl.schemes.contract import Device, ReplySum
from codedfl.schemes.messages import Message, Work

ENVELOPE = "envelope"
FORM = "form"
"""Entry of a request with the number format: how many bits after the binary point devices round to."""
SUM_BITS = 62
"""A sum is at most 2^62 steps in Z_2^64, plus one step of rounding per device."""
_OWN = ("senders", "envelopes", FORM)
_QUESTIONS = ("asked", "keys", "envelopes", "survivors")
"""Entries that identify the requests of the four rounds of a sum, in order."""
_SHARE = "<u4"


def form_message(bits: int) -> dict[str, Any]:
    """Return the entry of a request with the number format."""
    return {FORM: np.array(bits, np.int16)}


def number_form(bits: int, summands: int) -> FixedPoint:
    """Return the format with steps of 2^-bits for sums of at most 2^62 steps before rounding."""
    bound = math.ldexp(1.0, SUM_BITS - bits)
    return FixedPoint(Z_64, bits, bound, summands, bound)


def proper_form(request: Message, summands: int) -> FixedPoint | None:
    """Return the number format that a request declares, for so many summands; None if replies are residues."""
    return number_form(int(request[FORM]), summands) if FORM in request else None


def proper_request(request: Message) -> dict[str, Any]:
    """Return the inner scheme's request, without the entries of the protocol."""
    return {name: array for name, array in request.items() if name not in _OWN}


@final
class Masker:
    """A device's replies in the protocol: one in each of the four rounds of a sum, in order."""

    def __init__(self, index: int, threshold: Threshold) -> None:
        self._index = index
        self._threshold = threshold
        self._sum: _Sum | None = None
        self._answered = (0, 0)

    def answer(self, epoch: int, request: Message, work: Work) -> Message:
        """Reply in the first, second or last round of a sum; each sum begins with new keys."""
        if "asked" in request:
            self._sum, self._answered = _Sum(self._index, epoch, self._threshold.of(int(request["asked"]))), (epoch, 1)
            return self._sum.advertise(work)
        if "keys" in request:
            members = [int(device) for device in request["members"]]
            return self._next(epoch, 2).share(members, request["keys"], work)
        survivors, dropped = ([int(device) for device in request[name]] for name in ("survivors", "dropped"))
        return self._next(epoch, 4).reveal(survivors, dropped)

    def mask(
        self, epoch: int, request: Message, arrays: Mapping[str, UInt[np.ndarray, "..."]], ring: Ring, work: Work
    ) -> Message:
        """Reply in the third round: open the envelopes, and return copies of the arrays under all masks."""
        own = self._next(epoch, 3)
        own.open([int(device) for device in request["senders"]], request["envelopes"], work)
        return own.mask(arrays, ring, work)

    def _next(self, epoch: int, number: int) -> "_Sum":
        if self._sum is None or self._answered != (epoch, number - 1):
            raise CipherError(
                f"Device {self._index} was asked for round {number} of the sum of epoch {epoch} out of order: "
                "begin the sum again with new keys."
            )
        self._answered = (epoch, number)
        return self._sum


@final
class _Sum:
    """A device's state for one sum: its keys, the seed of its own mask, and the shares it holds of others."""

    def __init__(self, index: int, epoch: int, threshold: int) -> None:
        self._index = index
        self._epoch = epoch
        self._t = threshold
        self._envelope_key, self._mask_key, self._seed = AgreementKey(), AgreementKey(), fresh_seed()
        self._mask_keys: dict[int, bytes] = {}
        self._agreed: dict[int, bytes] = {}
        self._held: dict[int, UInt32[np.ndarray, "2 limbs"]] = {}

    def advertise(self, work: Work) -> Message:
        """Return both public keys."""
        work.add(2 * AGREEMENT_OPERATIONS)
        return {"keys": np.stack([_as_array(key.public) for key in (self._envelope_key, self._mask_key)])}

    def share(self, members: Sequence[int], keys: UInt8[np.ndarray, "n 2 bytes"], work: Work) -> Message:
        """Split mask key and own seed into shares, and return one encrypted envelope for every other member."""
        self._check_enough(len(members), "keys")
        pairs = {device: (pair[0].tobytes(), pair[1].tobytes()) for device, pair in zip(members, keys, strict=True)}
        own = pairs.get(self._index) == (self._envelope_key.public, self._mask_key.public)
        if not own or len({key for pair in pairs.values() for key in pair}) != 2 * len(members):
            raise CipherError(
                f"Device {self._index} was sent keys without its own among them, or a key twice: begin the sum again."
            )
        self._mask_keys = {device: pair[1] for device, pair in pairs.items()}
        secrets = [self._mask_key.secret, self._seed]
        shares = SecretSharing(self._t).split(secrets, [number_of(device) for device in members])
        work.add(self._t * shares.size)
        self._held[self._index] = shares[members.index(self._index)]
        envelopes = []
        for device, contents in zip(members, shares, strict=True):
            if device != self._index:
                self._agreed[device] = self._envelope_key.agree(pairs[device][0], ENVELOPE)
                work.add(AGREEMENT_OPERATIONS + contents.size)
                address = self._address(self._index, device)
                closed = close_envelope(self._agreed[device], contents.astype(_SHARE).tobytes(), address)
                envelopes.append(_as_array(closed))
        return {"envelopes": np.stack(envelopes)}

    def open(self, senders: Sequence[int], envelopes: UInt8[np.ndarray, "n bytes"], work: Work) -> None:
        """Decrypt the envelopes of others, and keep their shares."""
        self._check_enough(len(senders) + 1, "envelopes")
        for sender, envelope in zip(senders, envelopes, strict=True):
            contents = open_envelope(self._agreed[sender], envelope.tobytes(), self._address(sender, self._index))
            self._held[sender] = np.frombuffer(contents, _SHARE).astype(np.uint32).reshape(2, -1)
            work.add(self._held[sender].size)

    def mask(self, arrays: Mapping[str, UInt[np.ndarray, "..."]], ring: Ring, work: Work) -> Message:
        """Return copies of the arrays under the own mask and a pairwise mask for each device whose shares it holds."""
        masked = {name: np.array(arrays[name], order="C") for name in sorted(arrays)}
        add_masks(ring, self._epoch, masked, self._seed, work, minus=False)
        for peer in self._held:
            if peer != self._index:
                work.add(AGREEMENT_OPERATIONS)
                agreed = self._mask_key.agree(self._mask_keys[peer], MASK)
                add_masks(ring, self._epoch, masked, agreed, work, minus=peer < self._index)
        return masked

    def reveal(self, survivors: Sequence[int], dropped: Sequence[int]) -> Message:
        """Return the share of each survivor's own mask and of each dropped device's key, in order of devices."""
        both = sorted(set(survivors) & set(dropped))
        if both:
            raise CipherError(
                f"Device {self._index} was asked for both the mask and the key of device {both[0]}, which would reveal "
                "its reply: ask for one of them only."
            )
        if sorted((*survivors, *dropped)) != sorted(self._held):
            raise CipherError(
                f"Device {self._index} was asked for shares of other devices than those of the sum: ask for one share "
                "of each device that had sent envelopes."
            )
        self._check_enough(len(survivors), "masked replies")
        chosen = [self._held[device][1 if device in survivors else 0] for device in sorted(self._held)]
        return {"shares": np.stack(chosen)}

    def _check_enough(self, count: int, what: str) -> None:
        if count < self._t:
            raise CipherError(
                f"Device {self._index} was told of {count} {what}, fewer than the threshold of {self._t}: begin the "
                "sum again with more devices."
            )

    def _address(self, sender: int, recipient: int) -> bytes:
        return b"".join(number.to_bytes(8, "big") for number in (self._epoch, sender, recipient))


def _as_array(text: bytes) -> UInt[np.ndarray, "bytes"]:
    return np.frombuffer(text, np.uint8)


@final
class MaskedDevice(Device):
    """Masks every reply of a device of the inner scheme; its parcels are those of the inner scheme.

    It refuses requests for a reply without masks. With ``alone`` it accepts them: in a scheme with hand-overs a single
    device may remain, and the sum over one device is its reply.
    """

    def __init__(
        self, index: int, inner: Device, reply_sum: ReplySum, share: float, threshold: Threshold, *, alone: bool = False
    ) -> None:
        """Take the device's share of all data points as ``share``."""
        self._index = index
        self._inner = inner
        self._reply_sum = reply_sum
        self._share = share
        self._alone = alone
        self._masker = Masker(index, threshold)

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Reply in a round of the protocol; in the third, the inner reply under masks."""
        if not any(name in request for name in _QUESTIONS):
            if not self._alone:
                raise CipherError(f"Device {self._index} was asked for a reply without masks: use secure aggregation.")
            return self._inner.reply(epoch, request, work)
        if "envelopes" not in request:
            return self._masker.answer(epoch, request, work)
        inner = proper_request(request)
        kind = self._reply_sum(epoch, inner)
        reply = self._inner.reply(epoch, inner, work)
        form = proper_form(request, 1)
        if isinstance(kind, Ring) or form is None:
            return self._masker.mask(epoch, request, reply, kind if isinstance(kind, Ring) else Z_64, work)
        # refuse entries above the device's share of the bound: the sum could overflow the ring undetected
        bound = form.sum_bound * self._share
        rounded = {name: form.encode(array, bound=bound) for name, array in reply.items()}
        return self._masker.mask(epoch, request, rounded, Z_64, work)

    def export(self, grant: Message, work: Work) -> Message:
        """Return the parcel of the inner scheme."""
        return self._inner.export(grant, work)

    def absorb_from(self, sender: int, parcel: Message, work: Work, owners: Set[int] = frozenset()) -> None:
        """Receive a parcel as in the inner scheme."""
        self._inner.absorb_from(sender, parcel, work, owners)

    def owners(self, grant: Message) -> Set[int]:
        """Return whose data a parcel of the inner scheme contains."""
        return self._inner.owners(grant)
