"""Secure aggregation, the server's side: four questions give the sum of the devices' replies, and nothing of one alone.

The protocol of Bonawitz et al. ("Practical secure aggregation for privacy-preserving machine learning", CCS 2017) for a
server that keeps to it. With t the threshold, each question goes to those who answered the one before:

1. keys: every device sends two fresh public keys, one for envelopes and one for masks;
2. shares: it gets all keys, draws a seed for a mask of its own, and sends shares of that seed and of its mask key to
   every other device, in envelopes that the server passes on and cannot open;
3. masked replies: it gets its envelopes and the question proper, and sends its reply plus its own mask, plus the masks
   agreed on with devices of higher numbers, minus those agreed on with devices of lower numbers;
4. shares again: it is told whose masked replies arrived, and gives its shares of their own masks' seeds, and of the
   mask keys of all others: never both for one device.

Any t devices' shares give all that has to be taken away from the sum of the masked replies. A device may vanish after
any of its answers: if it is before the third, its pairwise masks are made from its key; if after, it is in the sum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import UInt, UInt8

from codedfl.cipher.masks.pairwise import AGREEMENT_OPERATIONS, ENVELOPE_BYTES, KEY_BYTES, AgreementKey, add_mask
from codedfl.cipher.masks.shamir import LIMBS, SecretSharing
from codedfl.cipher.seals import Domain, Ring
from codedfl.errors import CipherError
from codedfl.schemes.contract import Round
from codedfl.schemes.messages import Layout, Message, Work
from codedfl.schemes.sealing import summed

MASK = "mask"
"""The purpose that pairs of devices agree on seeds for."""

Residues = UInt[np.ndarray, "..."]


@final
@dataclass(frozen=True)
class Threshold:
    """How many devices' shares open a sum: as given, else two thirds of those asked, and always more than half.

    With more than half, no two groups of devices can be told different things and both answer. Where fewer devices
    are asked than the given number, all of them are needed.
    """

    given: int | None = None

    def of(self, asked: int) -> int:
        """Return t for so many devices."""
        if self.given is not None:
            return min(self.given, asked)
        return max(-(-2 * asked // 3), asked // 2 + 1)


def number_of(device: int) -> int:
    """Return the number of a device's share; number 0 would be the secret itself."""
    return device + 1


@final
class MaskedSum:
    """One sum, from the first question to the result.

    ``requests`` are the questions proper. Of the masked replies ``awaited`` are waited for until the ``deadline``, and
    ``needed`` suffice when no more come; t at least. ``proper`` gives their layouts.
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
    ) -> None:
        self._epoch = epoch
        self._proper = proper
        self._deadline = deadline
        self._requests = requests
        self._ring = ring
        self._t = threshold.of(len(requests))
        self._awaited = max(awaited, self._t)
        self._needed = max(needed, self._t)
        self._asked: tuple[int, ...] = tuple(sorted(requests))
        self._stage = 0
        self._keys: dict[int, UInt8[np.ndarray, "2 bytes"]] = {}
        self._members: tuple[int, ...] = ()
        self._masked: Mapping[int, Message] = {}

    @property
    def survivors(self) -> tuple[int, ...]:
        """The devices whose replies are in the sum."""
        return tuple(sorted(self._masked))

    def _expected(self) -> dict[int, Layout] | None:
        """Return the layout of the replies to the newest question; None if that of the masked ones is not given."""
        if self._stage == 2:
            return None if self._proper is None else {device: self._proper[device] for device in self._asked}
        others, members = len(self._asked) - 1, len(self._members)
        keys = {"keys": (np.dtype(np.uint8), (2, KEY_BYTES))}
        envelopes = {"envelopes": (np.dtype(np.uint8), (others, ENVELOPE_BYTES + 2 * LIMBS * 4))}
        shares = {"shares": (np.dtype(np.uint32), (members, LIMBS))}
        return dict.fromkeys(self._asked, (keys, envelopes, {}, shares)[self._stage])

    def begin(self) -> Round:
        """Ask for keys; how many are asked tells the threshold."""
        message = {"asked": np.array(len(self._asked), np.int32)}
        return self._round(dict.fromkeys(self._asked, message))

    def follow_up(self, replies: Mapping[int, Message]) -> Round | None:
        """Return the next round, given the replies to the one before; None when the sum can be opened.

        The third round asks for the replies proper; the last has its survivors' shares.
        """
        if self._stage == 3:
            return None
        self._asked = tuple(sorted(replies))
        self._stage += 1
        return self._round((self._pass_keys, self._pass_envelopes, self._ask_shares)[self._stage - 1](replies))

    def _round(self, requests: Mapping[int, Message]) -> Round:
        """Await all replies, but for the third round and, if devices may go, the last.

        Any t shares open a sum; where all devices are needed anyway, all are awaited to the end.
        """
        quorum, least = len(requests), self._needed
        if self._stage == 2:
            quorum = min(self._awaited, quorum)
        elif self._stage == 3:
            quorum, least = self._t if self._needed < len(self._requests) else quorum, self._t
        deadline = self._deadline if self._stage == 2 else None
        return Round(self._epoch, requests, quorum=quorum, least=least, deadline=deadline, expected=self._expected())

    def _pass_keys(self, replies: Mapping[int, Message]) -> dict[int, Message]:
        self._keys = {device: replies[device]["keys"] for device in self._asked}
        message = {
            "members": np.array(self._asked, np.int32),
            "keys": np.stack([self._keys[device] for device in self._asked]),
        }
        return dict.fromkeys(self._asked, message)

    def _pass_envelopes(self, replies: Mapping[int, Message]) -> dict[int, Message]:
        """Give everyone what was sent to it; a device's envelopes are in the order of all others who sent a key."""
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

    def _ask_shares(self, replies: Mapping[int, Message]) -> dict[int, Message]:
        self._masked = replies
        dropped = [device for device in self._members if device not in replies]
        message = {"survivors": np.array(self._asked, np.int32), "dropped": np.array(dropped, np.int32)}
        return dict.fromkeys(self._asked, message)

    def opened(self, replies: Mapping[int, Message], work: Work) -> dict[str, Residues]:
        """Add the masked replies up and take all masks away that are left, given t devices' shares."""
        helpers = sorted(replies)
        shares = np.stack([replies[device]["shares"] for device in helpers])
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
        """Take away what survivors added for a device that dropped out; the higher number had taken the mask away."""
        key = AgreementKey(secret)
        if key.public != self._keys[dropped][1].tobytes():
            raise CipherError(f"The shares of device {dropped} do not give the key that it had sent: a share is wrong.")
        for device in self.survivors:
            work.add(AGREEMENT_OPERATIONS)
            seed = key.agree(self._keys[device][1].tobytes(), MASK)
            add_masks(self._ring, self._epoch, totals, seed, work, minus=device < dropped)


def add_masks(
    ring: Ring, epoch: int, arrays: Mapping[str, Residues], secret: bytes, work: Work, *, minus: bool
) -> None:
    """Add a secret's masks to arrays in place, or take them away; each array has a mask of its own."""
    for block, name in enumerate(sorted(arrays)):
        add_mask(ring, secret, Domain(0, epoch, block), arrays[name].reshape(-1), minus=minus)
        work.add(arrays[name].size)


def _without(devices: Sequence[int], one: int) -> tuple[int, ...]:
    return tuple(device for device in devices if device != one)
