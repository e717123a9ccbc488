"""Secure aggregation, the server's side: rounds that give the sum of the devices' replies, and no single reply.

The protocol of Bonawitz et al. ("Practical secure aggregation for privacy-preserving machine learning", CCS 2017). Each
round goes to the devices that replied in the previous one:

1. keys: every device sends two new public keys, one for envelopes and one for masks;
2. shares: it gets all keys, draws the seed of its own mask, and sends shares of that seed and of its mask key to every
   other device, in encrypted envelopes that the server forwards;
3. masked replies: it gets its envelopes and the inner request, and sends its reply plus its own mask, plus the pairwise
   masks with devices of higher numbers, minus the pairwise masks with devices of lower numbers;
4. opening: it is told whose masked replies arrived. It sends its shares of the seeds of these devices, and of the mask
   keys of all others, never both for one device.

Where devices sign (real sites with keys), the first reply carries a signature of the keys, which the second request
passes on together with a digest of the inner request. Envelopes open only at devices that were told the same digest, so
all devices of a sum reply to the same model. If devices dropped out before their masked reply, the survivors sign the
list of survivors in a round before the last, and the last request passes these signatures on. So a deviating server can
neither invent devices, nor tell two devices different lists, nor ask them different questions (docs/secagg.md).

The shares of any t devices (t is the threshold) give all masks that remain in the sum of the masked replies. A device
may drop out after any round. Before the third, the server computes its pairwise masks from its key and removes them;
after the third, its reply is in the sum.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import UInt, UInt8, UInt32

from codedfl.cipher.masks.pairwise import AGREEMENT_OPERATIONS, ENVELOPE_BYTES, KEY_BYTES, AgreementKey, add_mask
from codedfl.cipher.masks.shamir import LIMBS, SecretSharing
from codedfl.cipher.randomness import SEED_BYTES
from codedfl.cipher.seals import FIELD_31, Domain, Ring
from codedfl.errors import CipherError
from codedfl.schemes.contract import Round
from codedfl.schemes.messages import Layout, Message, Work
from codedfl.schemes.sealing import summed

MASK = "mask"
"""Purpose of the seeds of pairwise masks, in the key agreement."""
SIGNATURE_BYTES = 64
DIGEST_BYTES = 32
ENTRIES = ("senders", "envelopes")
"""Entries of a request for a masked reply that belong to the protocol, not to the inner scheme."""
_KEYS, _SHARES, _MASKED, _SURVIVORS, _OPENING = range(5)
_OCTET = np.dtype(np.uint8)

Residues = UInt[np.ndarray, "..."]


@final
@dataclass(frozen=True)
class Threshold:
    """How many devices' shares open a sum: by default two thirds of the devices in it, always more than half.

    More than half, so that no two disjoint groups can both reach the threshold with different requests. If a sum has
    fewer devices than ``given``, all of them are needed.

    >>> Threshold().of(25), Threshold(20).of(12)
    (17, 12)
    """

    given: int | None = None

    def of(self, asked: int) -> int:
        """Return t for a sum over so many devices."""
        if self.given is not None:
            return min(self.given, asked)
        return max(-(-2 * asked // 3), asked // 2 + 1)


def number_of(device: int) -> int:
    """Return the number of a device's share; number 0 would be the secret itself."""
    return device + 1


def request_digest(request: Message) -> UInt8[np.ndarray, "bytes"]:
    """Return the digest of the inner scheme's request with its number format, which must be the same for all devices.

    Replies to different requests do not add up to anything but the reply of one device: with a model of zeros for all
    others, their sum would be that of a single device (Pasquini et al., "Eluding secure aggregation in federated
    learning via model inconsistency", CCS 2022).
    """
    digest = hashlib.sha256()
    for name, array in sorted(request.items()):
        if name not in ENTRIES:
            digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            digest.update(array.tobytes())
    return np.frombuffer(digest.digest(), np.uint8)


@final
class MaskedSum:
    """One sum, from the first round to the result.

    ``requests`` are those of the inner scheme. The server awaits ``awaited`` masked replies until the ``deadline``;
    after that, or if devices are lost, ``needed`` suffice. Both are at least t. ``proper`` has the replies' layouts.
    With ``spares``, devices tell seeds of their spare noise in the last round, which then awaits all of them.
    Keys and lists of survivors are ``signed``; with ``holdings``, devices that hand data over say whose of so many
    devices' data they hold.
    """

    def __init__(
        self,
        epoch: int,
        requests: Mapping[int, Message],
        threshold: Threshold,
        ring: Ring,
        *,
        awaited: int,
        needed: int,
        proper: Mapping[int, Layout] | None = None,
        deadline: float | None = None,
        signed: bool = False,
        holdings: int = 0,
        spares: bool = False,
    ) -> None:
        self._epoch = epoch
        self._spares = spares
        self._signed = signed
        self._holdings = holdings
        self._proper = proper
        self._deadline = deadline
        self._requests = requests
        self._ring = ring
        self._t = threshold.of(len(requests))
        self._awaited = max(awaited, self._t)
        self._needed = max(needed, self._t)
        self._asked: tuple[int, ...] = tuple(sorted(requests))
        self._stage = _KEYS
        self._keys: dict[int, UInt8[np.ndarray, "2 bytes"]] = {}
        self._members: tuple[int, ...] = ()
        self._masked: Mapping[int, Message] = {}

    @property
    def survivors(self) -> tuple[int, ...]:
        """The devices whose replies are in the sum."""
        return tuple(sorted(self._masked))

    @property
    def _dropped(self) -> list[int]:
        """Members whose masked replies did not arrive."""
        return [device for device in self._members if device not in self._masked]

    def _expected(self) -> dict[int, Layout] | None:
        """Return the layout of the current round's replies; None if that of masked replies is not declared."""
        if self._stage == _MASKED:
            return None if self._proper is None else {device: self._proper[device] for device in self._asked}
        others, members = len(self._asked) - 1, len(self._members)
        signature = {"@signature": (_OCTET, (SIGNATURE_BYTES,))}
        keys: Layout = {"keys": (_OCTET, (2, KEY_BYTES))}
        if self._signed:
            keys = {**keys, **signature}
        if self._signed and self._holdings:
            keys = {**keys, "@holdings": (_OCTET, (self._holdings,))}
        envelopes: Layout = {"envelopes": (_OCTET, (others, ENVELOPE_BYTES + 2 * LIMBS * 4))}
        shares: Layout = {"shares": (np.dtype(np.uint32), (members, LIMBS))}
        if self._spares:
            shares = {**shares, "spare": (_OCTET, (SEED_BYTES,))}
        return dict.fromkeys(self._asked, (keys, envelopes, {}, signature, shares)[self._stage])

    def begin(self) -> Round:
        """Return the round of keys; its request has the number of devices, which devices do not rely on."""
        message = {"asked": np.array(len(self._asked), np.int32)}
        return self._round(dict.fromkeys(self._asked, message))

    def follow_up(self, replies: Mapping[int, Message]) -> Round | None:
        """Return the next round, given the replies to the previous one; None if the sum can be opened.

        The third round requests masked replies; the last requests shares from the devices that sent them.
        """
        if self._stage == _OPENING:
            return None
        self._asked = tuple(sorted(replies))
        self._stage += 1
        if self._stage == _SURVIVORS:
            self._masked = replies
            if not (self._signed and self._dropped):
                self._stage = _OPENING
                return self._round(self._ask_shares({}))
        if self._stage == _OPENING:  # those that signed too late can help to open
            self._asked = self.survivors
        return self._round(
            (self._pass_keys, self._pass_envelopes, self._pass_survivors, self._ask_shares)[self._stage - 1](replies)
        )

    def _round(self, requests: Mapping[int, Message]) -> Round:
        """Return a round that awaits all replies, except the third and, if devices may be lost, those after it.

        Any t shares open a sum; if all devices are needed, the last round awaits all of them.
        """
        quorum, least = len(requests), self._needed
        if self._stage == _MASKED:
            quorum = min(self._awaited, quorum)
        elif self._stage > _MASKED:
            any_will_do = self._needed < len(self._requests) and not self._spares
            quorum, least = self._t if any_will_do else quorum, self._t
        deadline = self._deadline if self._stage == _MASKED else None
        return Round(self._epoch, requests, quorum=quorum, least=least, deadline=deadline, expected=self._expected())

    def _pass_keys(self, replies: Mapping[int, Message]) -> dict[int, Message]:
        self._keys = {device: replies[device]["keys"] for device in self._asked}
        message = {
            "members": np.array(self._asked, np.int32),
            "keys": np.stack([self._keys[device] for device in self._asked]),
        }
        names = {"@signatures": "@signature", "@holdings": "@holdings"} if self._signed else {}
        for name, each in names.items():
            if each in replies[self._asked[0]]:
                message[name] = np.stack([replies[device][each] for device in self._asked])
        if not self._signed:
            return dict.fromkeys(self._asked, message)
        return {device: {**message, "@request": request_digest(self._requests[device])} for device in self._asked}

    def _pass_envelopes(self, replies: Mapping[int, Message]) -> dict[int, Message]:
        """Forward envelopes to their recipients; a sender orders its envelopes as all other devices that sent keys."""
        self._members = self._asked
        known = tuple(self._keys)
        place = {sender: {peer: n for n, peer in enumerate(_without(known, sender))} for sender in self._members}
        questions: dict[int, Message] = {}
        for device in self._members:
            senders = _without(self._members, device)
            envelopes = [replies[sender]["envelopes"][place[sender][device]] for sender in senders]
            questions[device] = {
                **self._requests[device],
                "senders": np.array(senders, np.int32),
                "envelopes": np.stack(envelopes),
            }
        return questions

    def _pass_survivors(self, replies: Mapping[int, Message]) -> dict[int, Message]:
        message = {"listed": np.array(self.survivors, np.int32)}
        return dict.fromkeys(self._asked, message)

    def _ask_shares(self, replies: Mapping[int, Message]) -> dict[int, Message]:
        message = {"survivors": np.array(self.survivors, np.int32), "dropped": np.array(self._dropped, np.int32)}
        if replies:
            signers = sorted(replies)
            message["@signers"] = np.array(signers, np.int32)
            message["@signatures"] = np.stack([replies[device]["@signature"] for device in signers])
        return dict.fromkeys(self._asked, message)

    def opened(self, replies: Mapping[int, Message], work: Work) -> dict[str, Residues]:
        """Add up the masked replies and remove the remaining masks, given the shares of t devices."""
        helpers = sorted(replies)
        shares = np.stack([_shares(device, replies[device]) for device in helpers])
        secrets = SecretSharing(self._t).join([number_of(device) for device in helpers], shares)
        work.add(self._t * shares[0].size)
        totals = {}
        for name in sorted(next(iter(self._masked.values()))):
            totals[name] = summed(self._ring, [self._masked[device][name] for device in self.survivors])
            work.add(totals[name].size * len(self._masked))
        for device, secret in zip(self._members, secrets, strict=True):
            if device in self._masked:
                add_masks(self._ring, self._epoch, totals, secret, work, minus=True)
            else:
                self._remove_pairs(totals, device, secret, work)
        return totals

    def _remove_pairs(self, totals: Mapping[str, Residues], dropped: int, secret: bytes, work: Work) -> None:
        """Remove a dropped device's pairwise masks; of a pair, the higher number had subtracted the mask."""
        key = AgreementKey(secret)
        if key.public != self._keys[dropped][1].tobytes():
            raise CipherError(f"The shares of device {dropped} do not give the key that it sent: begin the sum again.")
        for device in self.survivors:
            work.add(AGREEMENT_OPERATIONS)
            seed = key.agree(self._keys[device][1].tobytes(), MASK)
            add_masks(self._ring, self._epoch, totals, seed, work, minus=device < dropped)


def _shares(device: int, reply: Message) -> UInt32[np.ndarray, "members limbs"]:
    """Return the shares of a device; name it if they are none."""
    try:
        return FIELD_31.from_wire(reply["shares"])
    except CipherError as error:
        raise CipherError(f"The shares of device {device} cannot be used: {error}") from None


def add_masks(
    ring: Ring, epoch: int, arrays: Mapping[str, Residues], secret: bytes, work: Work, *, minus: bool
) -> None:
    """Add a secret's masks to arrays in place, or subtract them; each array has its own mask."""
    for block, name in enumerate(sorted(arrays)):
        add_mask(ring, secret, Domain(0, epoch, block), arrays[name].reshape(-1), minus=minus)
        work.add(arrays[name].size)


def _without(devices: Sequence[int], one: int) -> tuple[int, ...]:
    return tuple(device for device in devices if device != one)
