"""Costs of the rounds of a secure sum, measured by running the protocol on zeros."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from codedfl.cipher.seals import Z_32, Z_64
from codedfl.network import RoundCosts
from codedfl.schemes.aggregated.cohort import Cohort
from codedfl.schemes.aggregated.masker import Masker
from codedfl.schemes.aggregated.server import MaskedSum, Threshold
from codedfl.schemes.contract import Round
from codedfl.schemes.messages import Message, Work, message_bits

Each = tuple[int, int, int]
"""Bits down, operations and bits up of one device; all devices have the same."""


def question_costs(active: int, threshold: Threshold, alone: RoundCosts, reply: Message) -> Sequence[RoundCosts]:
    """Return the costs of the four rounds of a sum over the active devices' replies.

    ``alone`` are the costs of a reply without masks; the third round costs these plus those of the protocol.
    """
    sizes = tuple((name, array.size) for name, array in reply.items())
    wide = any(array.dtype.itemsize > 4 or array.dtype.kind == "f" for array in reply.values())
    each, server = _measured(active, threshold, sizes, wide)
    none = 0 * alone.asked
    proper = replace(alone, up_bits=none, server_macs=0)
    nothing = replace(proper, down_bits=none, macs=none)
    bare = (nothing, nothing, proper, replace(nothing, server_macs=alone.server_macs + server))
    return [
        replace(costs, down_bits=costs.down_bits + down, macs=costs.macs + macs, up_bits=costs.up_bits + up)
        for costs, (down, macs, up) in zip(bare, each, strict=True)
    ]


@lru_cache(maxsize=256)
def _measured(
    devices: int, threshold: Threshold, sizes: tuple[tuple[str, int], ...], wide: bool
) -> tuple[tuple[Each, ...], int]:
    """Run the protocol on zeros; return the costs of each round, and the server's operations to open the sum."""
    ring = Z_64 if wide else Z_32
    zeros = {name: np.zeros(size, ring.dtype) for name, size in sizes}
    maskers = [Masker(index, Cohort(devices, threshold)) for index in range(devices)]
    total = MaskedSum(1, {index: {} for index in range(devices)}, threshold, ring, awaited=devices, needed=devices)
    question: Round | None = total.begin()
    counted: list[Each] = []
    while question is not None:
        replies: dict[int, Message] = {}  # the sum keeps those of the third round
        for index, request in question.requests.items():
            work = Work()
            if "envelopes" in request:
                replies[index] = maskers[index].mask(1, request, zeros, ring, work)
            else:
                replies[index] = maskers[index].answer(1, request, work)
            each = message_bits(request), work.macs, message_bits(replies[index])
        counted.append(each)
        question = total.follow_up(replies)
    opening = Work()
    total.opened(replies, opening)
    return tuple(counted), opening.macs
