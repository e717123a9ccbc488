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

In large fleets devices agree on masks and share secrets within their circles only (``schemes.aggregated.graph``): all
that is said above of every other device holds for every other device of the circle.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Int32, Shaped, UInt, UInt8, UInt32

from codedfl.cipher.masks.graph import MaskGraph
from codedfl.cipher.masks.pairwise import (
    AGREEMENT_OPERATIONS,
    ENVELOPE_BYTES,
    KEY_BYTES,
    AgreementKey,
    KeyAgreement,
    add_mask,
)
from codedfl.cipher.masks.shamir import LIMBS, SecretSharing
from codedfl.cipher.randomness import SEED_BYTES
from codedfl.cipher.seals import FIELD_31, Domain, Ring
from codedfl.errors import CipherError, LostDevicesError
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

    def within(self, graph: MaskGraph) -> int:
        """Return how many shares of a circle open its secrets: of a circle the same part as of all devices."""
        if self.given is None or graph.complete:
            return self.of(graph.size)
        return max(-(-self.of(graph.devices) * graph.size // graph.devices), graph.size // 2 + 1)


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
    devices' data they hold. Masks are those of a ``graph``, by default of every two devices.
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
        graph: MaskGraph | None = None,
        agreement: KeyAgreement = AgreementKey,
    ) -> None:
        self._epoch = epoch
        self._agreement = agreement
        self._graph = None if graph is None or graph.complete else graph
        self._spares = spares
        self._signed = signed
        self._holdings = holdings
        self._proper = proper
        self._deadline = deadline
        self._requests = requests
        self._ring = ring
        self._t = threshold.of(len(requests))
        self._shares = self._t if self._graph is None else threshold.within(self._graph)
        """How many shares open a secret."""
        self._awaited = max(awaited, self._t)
        self._needed = max(needed, self._t)
        self._asked: tuple[int, ...] = tuple(sorted(requests))
        self._stage = _KEYS
        self._keys: dict[int, UInt8[np.ndarray, "2 bytes"]] = {}
        self._known: tuple[int, ...] = ()
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
        signature = {"@signature": (_OCTET, (SIGNATURE_BYTES,))}
        keys: Layout = {"keys": (_OCTET, (2, KEY_BYTES))}
        if self._signed:
            keys = {**keys, **signature}
        if self._signed and self._holdings:
            keys = {**keys, "@holdings": (_OCTET, (self._holdings,))}
        if self._stage in (_KEYS, _SURVIVORS):
            return dict.fromkeys(self._asked, keys if self._stage == _KEYS else signature)
        seen = self._asked if self._stage == _SHARES else self._members
        found = {count: self._sized(count) for count in {len(self._near(device, seen)) for device in self._asked}}
        return {device: found[len(self._near(device, seen))] for device in self._asked}

    def _sized(self, count: int) -> Layout:
        """Return the layout of replies of envelopes, or of shares, for so many devices of a circle."""
        if self._stage == _SHARES:
            return {"envelopes": (_OCTET, (count - 1, ENVELOPE_BYTES + 2 * LIMBS * 4))}
        spare: Layout = {"spare": (_OCTET, (SEED_BYTES,))} if self._spares else {}
        return {"shares": (np.dtype(np.uint32), (count, LIMBS)), **spare}

    def _near(self, device: int, devices: Sequence[int]) -> Sequence[int]:
        """Return those of some devices, given in order, that are in a device's circle."""
        if self._graph is None:
            return devices
        circle = self._graph.circle(device)
        if len(devices) == self._graph.devices:
            return circle
        places = [bisect_left(devices, each) for each in circle]
        return [each for each, place in zip(circle, places, strict=True) if devices[place : place + 1] == (each,)]

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
            self._check_circles(self.survivors)
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
            any_will_do = self._needed < len(self._requests) and not self._spares and self._graph is None
            quorum, least = self._t if any_will_do else quorum, self._t
        deadline = self._deadline if self._stage == _MASKED else None
        return Round(self._epoch, requests, quorum=quorum, least=least, deadline=deadline, expected=self._expected())

    def _pass_keys(self, replies: Mapping[int, Message]) -> dict[int, Message]:
        self._keys = {device: replies[device]["keys"] for device in self._asked}
        message = {
            "members": np.array(self._asked, np.int32),
            "keys": np.stack([self._keys[device] for device in self._asked]),
        }
        self._known = self._asked
        names = {"@signatures": "@signature", "@holdings": "@holdings"} if self._signed else {}
        for name, each in names.items():
            if each in replies[self._asked[0]]:
                message[name] = np.stack([replies[device][each] for device in self._asked])
        if self._graph is None and not self._signed:
            return dict.fromkeys(self._asked, message)
        told = {device: message if self._graph is None else self._nearby(device, message) for device in self._asked}
        if not self._signed:
            return told
        return {device: {**each, "@request": request_digest(self._requests[device])} for device, each in told.items()}

    def _nearby(self, device: int, message: Message) -> Message:
        """Return the rows of a message to all members that concern a device's circle."""
        rows = [bisect_left(self._known, each) for each in self._near(device, self._known)]
        return {name: array[rows] for name, array in message.items()}

    def _pass_envelopes(self, replies: Mapping[int, Message]) -> dict[int, Message]:
        """Forward envelopes to their recipients; a sender orders its envelopes as all other devices that sent keys."""
        self._members = self._asked
        near = {sender: self._near(sender, self._known) for sender in self._members}
        questions: dict[int, Message] = {}
        for device in self._members:
            senders = _without(self._near(device, self._members), device)
            # a sender makes no envelope for itself
            places = [bisect_left(near[sender], device) - (device > sender) for sender in senders]
            pairs = zip(senders, places, strict=True)
            envelopes = [replies[sender]["envelopes"][place] for sender, place in pairs]
            questions[device] = {
                **self._requests[device],
                "senders": np.array(senders, np.int32),
                "envelopes": np.stack(envelopes),
            }
        return questions

    def _pass_survivors(self, replies: Mapping[int, Message]) -> dict[int, Message]:
        survivors = self.survivors
        if self._graph is None:
            message = {"listed": np.array(survivors, np.int32)}
            return dict.fromkeys(self._asked, message)
        near, absent = {device: self._near(device, survivors) for device in self._asked}, self._absent(survivors)
        return {device: {"listed": np.array(each, np.int32), "@absent": absent} for device, each in near.items()}

    def _absent(self, survivors: Sequence[int]) -> Int32[np.ndarray, "_"]:
        """Return all devices of the graph that are no survivors."""
        assert self._graph is not None  # noqa: S101 - only circles need it
        return np.setdiff1d(np.arange(self._graph.devices, dtype=np.int32), np.array(survivors, np.int32))

    def _ask_shares(self, replies: Mapping[int, Message]) -> dict[int, Message]:
        signers, lists = tuple(sorted(replies)), {"survivors": self.survivors, "dropped": tuple(self._dropped)}
        if self._graph is not None:
            return self._ask_nearby(lists, signers, replies)
        message = {name: np.array(each, np.int32) for name, each in lists.items()}
        if replies:
            message["@signers"] = np.array(signers, np.int32)
            message["@signatures"] = np.stack([replies[device]["@signature"] for device in signers])
        return dict.fromkeys(self._asked, message)

    def _ask_nearby(
        self, lists: Mapping[str, tuple[int, ...]], signers: tuple[int, ...], replies: Mapping[int, Message]
    ) -> dict[int, Message]:
        """Ask for shares of circles; where any of one dropped out, pass on which of its survivors signed the list."""
        absent, questions = self._absent(lists["survivors"]), dict[int, Message]()
        for device in self._asked:
            message: dict[str, Shaped[np.ndarray, "..."]] = {
                name: np.array(self._near(device, each), np.int32) for name, each in lists.items()
            }
            if signers and len(message["dropped"]):
                own = self._near(device, signers)
                message |= {"@signers": np.array(own, np.int32), "@absent": absent}
                message["@signatures"] = np.stack([replies[each]["@signature"] for each in own])
            questions[device] = message
        return questions

    def _check_circles(self, helpers: Sequence[int]) -> None:
        """Refuse to go on where too few devices of a circle are left to open its secrets."""
        if self._graph is not None and (counts := self._graph.present(helpers)).min() < self._shares:
            raise LostDevicesError(
                f"{counts.min()} devices of the circle of device {counts.argmin()} are left, fewer than the "
                f"{self._shares} whose shares open its masks; the run is saved up to there: let it go on when devices "
                "are back, or lower the threshold"
            )

    def _secrets(self, replies: Mapping[int, Message], work: Work) -> list[bytes]:
        """Return the opened secret of every member, from the shares of its circle."""
        helpers, sharing = tuple(sorted(replies)), SecretSharing(self._shares)
        if self._graph is None:
            shares = np.stack([_shares(device, replies[device]) for device in helpers])
            work.add(self._shares * shares[0].size)
            return sharing.join([number_of(device) for device in helpers], shares)
        self._check_circles(helpers)
        sent = {device: _shares(device, replies[device]) for device in helpers}
        places = {device: {each: n for n, each in enumerate(self._near(device, self._members))} for device in helpers}
        near = [self._near(device, helpers)[: self._shares] for device in self._members]
        pairs = zip(self._members, near, strict=True)
        rows = np.stack([np.stack([sent[each][places[each][device]] for each in others]) for device, others in pairs])
        work.add(rows.size)
        return sharing.join_each(np.array(near) + number_of(0), rows)

    def opened(self, replies: Mapping[int, Message], work: Work) -> dict[str, Residues]:
        """Add up the masked replies and remove the remaining masks, given the shares of t devices of each circle."""
        secrets = self._secrets(replies, work)
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
        key = self._agreement(secret)
        if key.public != self._keys[dropped][1].tobytes():
            raise CipherError(f"The shares of device {dropped} do not give the key that it sent: begin the sum again.")
        for device in self._near(dropped, self.survivors):
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
