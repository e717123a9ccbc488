"""Secure aggregation, the device's side: keys, shares, masks, and what it refuses to give away."""

import math
from collections.abc import Mapping, Sequence
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
"""Where a question says in which steps numbers are to be rounded: it gives the bits after the binary point."""
SUM_BITS = 62
"""A sum has at most 2^62 steps in Z_2^64, and as many more as devices are rounded up."""
_OWN = ("senders", "envelopes", FORM)
_QUESTIONS = ("asked", "keys", "envelopes", "survivors")
"""What tells the four questions of a sum, in their order."""
_SHARE = "<u4"


def form_message(bits: int) -> dict[str, Any]:
    """Return the part of a question that tells devices the number format."""
    return {FORM: np.array(bits, np.int16)}


def number_form(bits: int, summands: int) -> FixedPoint:
    """Return the format of numbers in steps of 2^-bits whose sum does not exceed 2^62 steps, rounding aside."""
    bound = math.ldexp(1.0, SUM_BITS - bits)
    return FixedPoint(Z_64, bits, bound, summands, bound)


def proper_form(request: Message, summands: int) -> FixedPoint | None:
    """Return the number format that a question tells, for sums of so many; None where replies are residues already."""
    return number_form(int(request[FORM]), summands) if FORM in request else None


def proper_request(request: Message) -> dict[str, Any]:
    """Return the question proper, without what belongs to the protocol."""
    return {name: array for name, array in request.items() if name not in _OWN}


@final
class Masker:
    """What a device does for one sum after the other: four answers, each once and in their order."""

    def __init__(self, index: int, threshold: Threshold) -> None:
        self._index = index
        self._threshold = threshold
        self._sum: _Sum | None = None
        self._answered = (0, 0)

    def answer(self, epoch: int, request: Message, work: Work) -> Message:
        """Answer the first, second or last question of a sum; each sum begins with fresh keys."""
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
        """Answer the third question: open the envelopes, and return copies of the arrays under all masks."""
        own = self._next(epoch, 3)
        own.open([int(device) for device in request["senders"]], request["envelopes"], work)
        return own.mask(arrays, ring, work)

    def _next(self, epoch: int, question: int) -> "_Sum":
        if self._sum is None or self._answered != (epoch, question - 1):
            raise CipherError(
                f"Device {self._index} was asked question {question} of the sum of epoch {epoch} out of turn: begin "
                "the sum again with fresh keys."
            )
        self._answered = (epoch, question)
        return self._sum


@final
class _Sum:
    """What a device keeps for one sum: its keys, its own mask's seed, and the shares of others that it holds."""

    def __init__(self, index: int, epoch: int, threshold: int) -> None:
        self._index = index
        self._epoch = epoch
        self._t = threshold
        self._envelope_key, self._mask_key, self._seed = AgreementKey(), AgreementKey(), fresh_seed()
        self._mask_keys: dict[int, bytes] = {}
        self._agreed: dict[int, bytes] = {}
        self._held: dict[int, UInt32[np.ndarray, "2 limbs"]] = {}

    def advertise(self, work: Work) -> Message:
        """Send both public keys."""
        work.add(2 * AGREEMENT_OPERATIONS)
        return {"keys": np.stack([_words(key.public) for key in (self._envelope_key, self._mask_key)])}

    def share(self, members: Sequence[int], keys: UInt8[np.ndarray, "n 2 bytes"], work: Work) -> Message:
        """Cut the mask key and the seed of the own mask into shares, and close one envelope for every other member."""
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
                envelopes.append(_words(closed))
        return {"envelopes": np.stack(envelopes)}

    def open(self, senders: Sequence[int], envelopes: UInt8[np.ndarray, "n bytes"], work: Work) -> None:
        """Take the shares of others out of their envelopes."""
        self._check_enough(len(senders) + 1, "envelopes")
        for sender, envelope in zip(senders, envelopes, strict=True):
            contents = open_envelope(self._agreed[sender], envelope.tobytes(), self._address(sender, self._index))
            self._held[sender] = np.frombuffer(contents, _SHARE).astype(np.uint32).reshape(2, -1)
            work.add(self._held[sender].size)

    def mask(self, arrays: Mapping[str, UInt[np.ndarray, "..."]], ring: Ring, work: Work) -> Message:
        """Return copies of the arrays under the own mask and those agreed on with everyone whose shares are held."""
        masked = {name: np.array(arrays[name], order="C") for name in sorted(arrays)}
        add_masks(ring, self._epoch, masked, self._seed, work, minus=False)
        for peer in self._held:
            if peer != self._index:
                work.add(AGREEMENT_OPERATIONS)
                agreed = self._mask_key.agree(self._mask_keys[peer], MASK)
                add_masks(ring, self._epoch, masked, agreed, work, minus=peer < self._index)
        return masked

    def reveal(self, survivors: Sequence[int], dropped: Sequence[int]) -> Message:
        """Give the share of each survivor's own mask and of each dropped device's key, in the order of the devices."""
        both = sorted(set(survivors) & set(dropped))
        if both:
            raise CipherError(
                f"Device {self._index} was asked for both the mask and the key of device {both[0]}, which would show "
                "its reply: it gives one of them only."
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
                f"Device {self._index} was told of {count} {what}, fewer than the threshold of {self._t}: a sum over "
                "so few is not opened."
            )

    def _address(self, sender: int, recipient: int) -> bytes:
        return b"".join(number.to_bytes(8, "big") for number in (self._epoch, sender, recipient))


def _words(text: bytes) -> UInt[np.ndarray, "bytes"]:
    return np.frombuffer(text, np.uint8)


@final
class MaskedDevice(Device):
    """A device whose replies leave it under masks only; what it sends to other devices is as the inner scheme seals it.

    Where the inner scheme shares data, a request to a device ``alone`` is answered as it is: the sum over one device
    is its reply. Else a request that would be answered in clear is refused.
    """

    def __init__(
        self, index: int, inner: Device, reply_sum: ReplySum, share: float, threshold: Threshold, *, alone: bool = False
    ) -> None:
        """``share`` is the device's share of all data points."""
        self._index = index
        self._inner = inner
        self._reply_sum = reply_sum
        self._share = share
        self._alone = alone
        self._masker = Masker(index, threshold)

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Answer a question of the protocol; the third with the inner reply under masks."""
        if not any(name in request for name in _QUESTIONS):
            if not self._alone:
                raise CipherError(f"Device {self._index} was asked for a reply without masks, and gives none.")
            return self._inner.reply(epoch, request, work)
        if "envelopes" not in request:
            return self._masker.answer(epoch, request, work)
        inner = proper_request(request)
        kind = self._reply_sum(epoch, inner)
        reply = self._inner.reply(epoch, inner, work)
        form = proper_form(request, 1)
        if isinstance(kind, Ring) or form is None:
            return self._masker.mask(epoch, request, reply, kind if isinstance(kind, Ring) else Z_64, work)
        # what is beyond the device's share of the bound is refused: the sum could leave the ring unnoticed
        bound = form.sum_bound * self._share
        rounded = {name: form.encode(array, bound=bound) for name, array in reply.items()}
        return self._masker.mask(epoch, request, rounded, Z_64, work)

    def export(self, grant: Message, work: Work) -> Message:
        """Send as the inner scheme does."""
        return self._inner.export(grant, work)

    def absorb(self, parcel: Message, work: Work) -> None:
        """Take in as the inner scheme does."""
        self._inner.absorb(parcel, work)
