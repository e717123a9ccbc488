"""Secure aggregation, the device's side of one sum after the other: keys, shares, masks, and what it refuses.

A device takes part in one sum per epoch, and epochs increase. A refused request changes nothing, so the proper one can
follow. Where devices sign (``Cohort.signed``), it accepts keys only from devices whose signature it can check. If
devices dropped out, it signs one list of survivors, and helps to open a sum only if t devices signed that very list.

In large fleets it knows from the number of devices who is in its circle (``schemes.aggregated.graph``), and t is that
of the circle. The list is then that of all absent devices of the cohort, so that it is the same for everyone.
"""

from collections.abc import Mapping, Sequence, Set
from typing import final

import numpy as np
from jaxtyping import UInt, UInt8, UInt32

from codedfl.cipher.masks.pairwise import (
    AGREEMENT_OPERATIONS,
    ENVELOPE_BYTES,
    KEY_BYTES,
    close_envelope,
    open_envelope,
)
from codedfl.cipher.masks.shamir import LIMBS, SecretSharing
from codedfl.cipher.randomness import SEED_BYTES, fresh_seed
from codedfl.cipher.seals import Ring
from codedfl.errors import CipherError
from codedfl.schemes.aggregated.cohort import Cohort, numbers_in, octets_in
from codedfl.schemes.aggregated.server import DIGEST_BYTES, MASK, SIGNATURE_BYTES, add_masks, number_of, request_digest
from codedfl.schemes.identity import Identity
from codedfl.schemes.messages import Message, Work
from codedfl.storage import roomy

ENVELOPE = "envelope"
KEYS, SHARES, MASKED, SURVIVORS, OPENING = "keys", "shares", "masked replies", "survivors", "opening"
"""The rounds of a sum; the fourth only if devices dropped out and devices sign."""
_AFTER = {SHARES: {KEYS}, MASKED: {SHARES}, SURVIVORS: {MASKED}, OPENING: {MASKED, SURVIVORS}}
_SHARE = "<u4"

Keys = UInt8[np.ndarray, "2 bytes"]


@final
class Masker:
    """A device's replies in the protocol. With ``once`` it takes part in a single sum.

    It tells the ``spare`` seed of its noise when a sum is opened from which nobody dropped out.
    """

    def __init__(self, index: int, cohort: Cohort, *, once: bool = False, spare: bytes | None = None) -> None:
        self._index = index
        self._cohort = cohort
        self._once = once
        self._spare = spare
        self._identity: Identity | None = None
        self._sum: _Sum | None = None
        self._answered = ""
        self._masked = 0
        """The last epoch in which it sent a masked reply."""

    def identify(self, identity: Identity) -> None:
        """Take the keys to sign with; refuse if those of others are not known."""
        unknown = self._cohort.circle(self._index) - identity.known - {self._index} if self._cohort.signed else ()
        if unknown:
            raise CipherError(
                f"Device {self._index} knows no key of device {min(unknown)}, and secure aggregation needs the "
                "signature of every device: pin the keys of all."
            )
        self._identity = identity

    def answer(self, epoch: int, request: Message, work: Work, held: Set[int] = frozenset()) -> Message:
        """Reply in a round other than the third; a device that hands data over says whose data it ``held``."""
        if "asked" in request:
            return self._begin(epoch, work, held)
        if "keys" in request:
            name = SHARES
            reply = self._next(epoch, name).share(request, work)
        elif "listed" in request:
            name = SURVIVORS
            reply = self._next(epoch, name).agree(request)
        else:
            name = OPENING
            reply = self._next(epoch, name).reveal(request)
            if self._spare is not None:
                # a device that sees its circle only cannot tell whether all devices are in the sum
                everyone = not self._cohort.degree and len(request["survivors"]) == self._cohort.devices
                told = self._spare if everyone else bytes(SEED_BYTES)
                reply = {**reply, "spare": _as_array(told)}
        self._answered = name
        return reply

    def mask(
        self,
        epoch: int,
        request: Message,
        arrays: Mapping[str, UInt[np.ndarray, "..."]],
        ring: Ring,
        work: Work,
        held: Set[int] = frozenset(),
    ) -> Message:
        """Reply in the third round: open the envelopes, and return copies of the arrays under all masks."""
        masked = self._next(epoch, MASKED).mask(request, arrays, ring, work, held)
        self._answered, self._masked = MASKED, epoch
        return masked

    def _begin(self, epoch: int, work: Work, held: Set[int]) -> Message:
        """Begin a sum with new keys."""
        if self._masked and (self._once or epoch <= self._masked):
            when = "one sum only" if self._once else "one sum per epoch, and epochs increase"
            raise CipherError(
                f"Device {self._index} has sent a masked reply in epoch {self._masked} and was asked for a sum in "
                f"epoch {epoch}: it takes part in {when}, because the difference of two sums reveals single replies."
            )
        begun = _Sum(self._index, epoch, self._cohort, self._identity, held)
        reply = begun.advertise(work)
        self._sum, self._answered = begun, KEYS
        return reply

    def _next(self, epoch: int, name: str) -> "_Sum":
        if self._sum is None or self._sum.epoch != epoch or self._answered not in _AFTER[name]:
            raise CipherError(
                f"Device {self._index} was asked for the round '{name}' of the sum of epoch {epoch} out of order: "
                "begin the sum again with new keys."
            )
        return self._sum


@final
class _Sum:
    """A device's state for one sum: its keys, the seed of its own mask, and the shares it holds of others.

    Every method checks the request first, and changes the state last.
    """

    def __init__(self, index: int, epoch: int, cohort: Cohort, identity: Identity | None, held: Set[int]) -> None:
        if cohort.signed and identity is None:
            raise CipherError(f"Device {index} has no key to sign with: give its site one.")
        self._index = index
        self.epoch = epoch
        self._cohort = cohort
        self._identity = identity if cohort.signed else None
        self._claims = {index: held}
        self._t = 0
        self._request = b""
        """Digest of the inner scheme's request, as announced with the keys; where devices sign."""
        self._envelope_key, self._mask_key, self._seed = cohort.agreement(), cohort.agreement(), fresh_seed()
        self._keys: dict[int, Keys] = {}
        self._agreed: dict[int, bytes] = {}
        self._held: dict[int, UInt32[np.ndarray, "2 limbs"]] = {}

    def advertise(self, work: Work) -> Message:
        """Return both public keys, with a signature, and with whose data this device holds where that changes."""
        work.add(2 * AGREEMENT_OPERATIONS)
        keys = np.stack([_as_array(key.public) for key in (self._envelope_key, self._mask_key)])
        self._keys = {self._index: keys}
        if self._identity is None:
            return {"keys": keys}
        held = self._claims[self._index]
        statement = self._cohort.keys_statement(self.epoch, self._index, keys, held)
        claim = {"@holdings": self._flags(held)} if self._cohort.hands_over else {}
        return {"keys": keys, "@signature": _as_array(self._identity.sign(statement)), **claim}

    def share(self, request: Message, work: Work) -> Message:
        """Split mask key and own seed into shares, and return one encrypted envelope for every other member."""
        members = numbers_in(request, "members")
        pairs = octets_in(request, "keys", (len(members), 2, KEY_BYTES))
        keys = dict(zip(members, pairs, strict=True))
        if strangers := set(members) - self._cohort.circle(self._index):
            raise CipherError(f"Device {self._index} was told of device {max(strangers)}, which is not in its cohort.")
        own = self._index in keys and np.array_equal(keys[self._index], self._keys[self._index])
        if not own or len({key.tobytes() for pair in pairs for key in pair}) != 2 * len(members):
            raise CipherError(
                f"Device {self._index} was sent keys without its own among them, or a key twice: begin the sum again."
            )
        claims = self._verified(members, keys, request)
        announced = b"" if self._identity is None else octets_in(request, "@request", (DIGEST_BYTES,)).tobytes()
        t = self._cohort.threshold_of(members)
        self._check_enough(members, "keys", t, claims)
        secrets = [self._mask_key.secret, self._seed]
        shares = SecretSharing(t).split(secrets, [number_of(device) for device in members])
        work.add(t * shares.size)
        agreed, envelopes = {}, []
        for device, contents in zip(members, shares, strict=True):
            if device != self._index:
                agreed[device] = self._envelope_key.agree(keys[device][0].tobytes(), ENVELOPE)
                work.add(AGREEMENT_OPERATIONS + contents.size)
                address = self._address(self._index, device, announced)
                closed = close_envelope(agreed[device], contents.astype(_SHARE).tobytes(), address)
                envelopes.append(_as_array(closed))
        self._t, self._keys, self._claims, self._agreed, self._request = t, keys, claims, agreed, announced
        self._held = {self._index: shares[members.index(self._index)]}
        return {"envelopes": np.stack(envelopes)}

    def _verified(self, members: Sequence[int], keys: Mapping[int, Keys], request: Message) -> dict[int, Set[int]]:
        """Return whose data each member holds, if all have signed so; without signatures, of this device alone."""
        if self._identity is None:
            return dict(self._claims)
        signatures = octets_in(request, "@signatures", (len(members), SIGNATURE_BYTES))
        flags = np.zeros((len(members), 0), np.uint8)
        if self._cohort.hands_over:
            flags = octets_in(request, "@holdings", (len(members), self._cohort.devices))
        claims: dict[int, Set[int]] = {}
        for device, signature, row in zip(members, signatures, flags, strict=True):
            claims[device] = frozenset(np.flatnonzero(row).tolist())
            statement = self._cohort.keys_statement(self.epoch, device, keys[device], claims[device])
            if not self._identity.verify(device, statement, signature.tobytes()):
                raise CipherError(
                    f"The keys of device {device} are not signed by its pinned key for epoch {self.epoch} of this "
                    f"session: device {self._index} shares no secrets with an unknown device."
                )
        return claims

    def mask(
        self,
        request: Message,
        arrays: Mapping[str, UInt[np.ndarray, "..."]],
        ring: Ring,
        work: Work,
        held: Set[int],
    ) -> Message:
        """Keep the shares of others; return copies of the arrays under the own mask and those with each of them."""
        if held != self._claims[self._index]:
            raise CipherError(f"Device {self._index} holds other data than when it sent its keys: begin the sum again.")
        shares = self._opened(request, work)
        masked = {name: _copied(arrays[name]) for name in sorted(arrays)}
        add_masks(ring, self.epoch, masked, self._seed, work, minus=False)
        for peer in shares:
            work.add(AGREEMENT_OPERATIONS)
            agreed = self._mask_key.agree(self._keys[peer][1].tobytes(), MASK)
            add_masks(ring, self.epoch, masked, agreed, work, minus=peer < self._index)
        self._held |= shares
        return masked

    def _opened(self, request: Message, work: Work) -> dict[int, UInt32[np.ndarray, "2 limbs"]]:
        """Decrypt the envelopes of others."""
        senders = numbers_in(request, "senders")
        envelopes = octets_in(request, "envelopes", (len(senders), ENVELOPE_BYTES + 2 * LIMBS * 4))
        if not set(senders) <= set(self._agreed):
            raise CipherError(f"Device {self._index} was sent envelopes of devices that sent no keys: begin again.")
        self._check_enough([*senders, self._index], "envelopes", self._t, self._claims)
        if self._identity is not None and request_digest(request).tobytes() != self._request:
            raise CipherError(
                f"Device {self._index} was sent another request than the one announced with the keys: all devices of a "
                "sum reply to the same model in the same number format."
            )
        found = {}
        for sender, envelope in zip(senders, envelopes, strict=True):
            address = self._address(sender, self._index, self._request)
            contents = open_envelope(self._agreed[sender], envelope.tobytes(), address)
            found[sender] = np.frombuffer(contents, _SHARE).astype(np.uint32).reshape(2, -1)
            work.add(found[sender].size)
        return found

    def agree(self, request: Message) -> Message:
        """Sign the list of survivors; only one for a sum."""
        survivors = numbers_in(request, "listed")
        if self._cohort.degree and self._identity is not None:
            absent = self._absent(request, survivors)
            return {"@signature": _as_array(self._identity.sign(self._cohort.absent_statement(self.epoch, absent)))}
        if self._identity is None or not set(survivors) < set(self._held):
            raise CipherError(f"Device {self._index} signs no list of survivors that names nobody as dropped out.")
        self._check_enough(survivors, "masked replies", self._t, self._claims)
        return {"@signature": _as_array(self._identity.sign(self._survivors_statement(survivors)))}

    def reveal(self, request: Message) -> Message:
        """Return the share of each survivor's own mask and of each dropped device's key, in order of devices."""
        survivors, dropped = (numbers_in(request, name) for name in ("survivors", "dropped"))
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
        self._check_enough(survivors, "masked replies", self._t, self._claims)
        if dropped and self._identity is not None:
            self._check_agreed(survivors, request, self._identity)
        chosen = [self._held[device][1 if device in survivors else 0] for device in sorted(self._held)]
        return {"shares": np.stack(chosen)}

    def _check_agreed(self, survivors: Sequence[int], request: Message, identity: Identity) -> None:
        """Refuse a list of survivors that fewer than t devices signed: others may have been told another one."""
        signers = numbers_in(request, "@signers")
        signatures = octets_in(request, "@signatures", (len(signers), SIGNATURE_BYTES))
        if self._cohort.degree:
            statement = self._cohort.absent_statement(self.epoch, self._absent(request, survivors))
        else:
            statement = self._survivors_statement(survivors)
        pairs = zip(signers, signatures, strict=True)
        valid = [who for who, signature in pairs if identity.verify(who, statement, signature.tobytes())]
        count = len(set(valid) & set(survivors))
        if count < self._t:
            raise CipherError(
                f"Device {self._index} was told of devices that dropped out, and {count} devices signed this list, "
                f"fewer than the threshold of {self._t}: have the survivors sign one list."
            )

    def _absent(self, request: Message, survivors: Sequence[int]) -> Sequence[int]:
        """Return the absent devices of the cohort; refuse a list that leaves too few devices of any circle.

        So the survivors stay connected by masks without some that collude (docs/secagg.md).
        """
        absent, cohort = numbers_in(request, "@absent"), self._cohort
        present = cohort.everyone - set(absent)
        self._check_enough(survivors, "masked replies", self._t, self._claims)
        if not set(absent) <= cohort.everyone or set(survivors) != set(self._held) & present:
            raise CipherError(
                f"Device {self._index} was told of other survivors in its circle than in the whole cohort: tell it of "
                "one list."
            )
        if len(present) < cohort.threshold.of(cohort.devices) or cohort.graph.present(present).min() < self._t:
            raise CipherError(
                f"Device {self._index} was told that {len(absent)} of {cohort.devices} devices dropped out, which "
                f"leaves fewer than {self._t} devices in some circle: begin the sum again with more devices."
            )
        return absent

    def _survivors_statement(self, survivors: Sequence[int]) -> bytes:
        keys = {device: self._keys[device] for device in self._held}
        return self._cohort.survivors_statement(self.epoch, keys, survivors)

    def _check_enough(self, devices: Sequence[int], what: str, t: int, claims: Mapping[int, Set[int]]) -> None:
        """Refuse sums over too few devices, and, where holdings are signed, sums over the data of too few."""
        if len(devices) < t or self._index not in devices:
            raise CipherError(
                f"Device {self._index} was told of {len(devices)} {what}, fewer than the threshold of {t} or without "
                "its own: begin the sum again with more devices."
            )
        if not self._cohort.hands_over or self._identity is None:
            return
        held = [owner for device in devices for owner in claims[device]]
        if len(held) != len(set(held)) or len(held) < self._cohort.least:
            raise CipherError(
                f"Device {self._index} was asked for a sum over devices that hold the data of {len(set(held))} devices "
                f"instead of {self._cohort.least}, or of one twice: it takes part in sums over all data only."
            )

    def _flags(self, held: Set[int]) -> UInt8[np.ndarray, "n"]:
        flags = np.zeros(self._cohort.devices, np.uint8)
        flags[sorted(held)] = 1
        return flags

    def _address(self, sender: int, recipient: int, announced: bytes) -> bytes:
        return b"".join(number.to_bytes(8, "big") for number in (self.epoch, sender, recipient)) + announced


def _copied(array: UInt[np.ndarray, "..."]) -> UInt[np.ndarray, "..."]:
    copy = roomy(array.shape, array.dtype)
    copy[...] = array
    return copy


def _as_array(text: bytes) -> UInt8[np.ndarray, "bytes"]:
    return np.frombuffer(text, np.uint8)
