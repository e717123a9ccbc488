"""Costs of the rounds of a secure sum in which nobody drops out, by the sizes of what is sent and computed.

Every device has the same costs, because all circles have one size (``schemes.aggregated.graph``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from codedfl.cipher.masks.graph import MaskGraph
from codedfl.cipher.masks.pairwise import AGREEMENT_OPERATIONS, ENVELOPE_BYTES, KEY_BYTES
from codedfl.cipher.masks.shamir import LIMBS
from codedfl.network import RoundCosts
from codedfl.schemes.aggregated.server import Threshold
from codedfl.schemes.contract import CountedCosts
from codedfl.schemes.messages import Message

_INT, _WORD = 32, 32
"""Bits of a device's number, and of a limb of a share, in a message."""
Each = tuple[int, int, int]
"""Bits down, operations and bits up of one device."""


@final
@dataclass(frozen=True)
class SumRounds:
    """What the protocol of one sum adds to a device in each of its four rounds, and to the server by device."""

    each: tuple[Each, Each, Each, Each]
    server: int
    least: int
    """How many replies a round needs: the threshold of all devices."""
    quorum: int
    """How many replies the last round awaits if devices may be lost."""


def sum_rounds(graph: MaskGraph, threshold: Threshold, words: int, bits: int, *, spare: int = 0) -> SumRounds:
    """Return the costs of a sum of replies of so many words of some bits; ``spare`` bits more are told at the end."""
    m, t = graph.size, threshold.within(graph)
    envelope = 8 * (ENVELOPE_BYTES + 2 * LIMBS * 4)
    keys = m * (_INT + 16 * KEY_BYTES)
    sharing = t * m * 2 * LIMBS + (m - 1) * (AGREEMENT_OPERATIONS + 2 * LIMBS)
    masking = (m - 1) * (2 * LIMBS + AGREEMENT_OPERATIONS) + m * words
    rounds = (
        (_INT, 2 * AGREEMENT_OPERATIONS, 16 * KEY_BYTES),
        (keys, sharing, (m - 1) * envelope),
        ((m - 1) * (_INT + envelope), masking, words * bits),
        (m * _INT, 0, m * LIMBS * _WORD + spare),
    )
    least = threshold.of(graph.devices)
    quorum = least if graph.complete and not spare else graph.devices
    return SumRounds(rounds, t * LIMBS + 2 * words, least, quorum)


def with_sum(alone: RoundCosts, rounds: SumRounds) -> list[RoundCosts]:
    """Return the four rounds of a sum over all asked devices, of which those above the threshold may be lost."""
    n = len(alone.asked)
    *first, last = (replace(costs, quorum=n, least=rounds.least) for costs in _added(alone, rounds, n))
    return [*first, replace(last, quorum=rounds.quorum)]


def _added(alone: RoundCosts, rounds: SumRounds, devices: int) -> list[RoundCosts]:
    """Add the costs of the protocol to those of a reply without masks, which is sent in the third round."""
    none = 0 * alone.asked
    proper = replace(alone, up_bits=none, server_macs=0)
    nothing = replace(proper, down_bits=none, macs=none)
    bare = nothing, nothing, proper, replace(nothing, server_macs=alone.server_macs + devices * rounds.server)
    return [
        replace(costs, down_bits=costs.down_bits + down, macs=costs.macs + macs, up_bits=costs.up_bits + up)
        for costs, (down, macs, up) in zip(bare, rounds.each, strict=True)
    ]


def masked_epochs(
    inner: CountedCosts, graph: MaskGraph, threshold: Threshold, words: int, form: int
) -> CountedCosts | None:
    """Return the costs of an inner scheme's epochs under masks in Z_2^64; None if it does not await all devices.

    A request names the number format in ``form`` bits.
    """
    rounds, epochs = sum_rounds(graph, threshold, words, 64), []
    for (costs,) in inner.epochs:
        if min(costs.quorum, len(costs.asked)) < graph.devices or np.isfinite(costs.deadline):
            return None
        epochs.append(with_sum(replace(costs, down_bits=costs.down_bits + form), rounds))
    return CountedCosts(epochs, inner.stages)


def question_costs(active: int, threshold: Threshold, alone: RoundCosts, reply: Message) -> Sequence[RoundCosts]:
    """Return the costs of the four rounds of a sum over the active devices' replies, where devices hand over.

    ``alone`` are the costs of a reply without masks; the third round costs these plus those of the protocol.
    """
    wide = any(array.dtype.itemsize > 4 or array.dtype.kind == "f" for array in reply.values())
    words = sum(array.size for array in reply.values())
    return _added(alone, sum_rounds(MaskGraph(active), threshold, words, 64 if wide else 32), active)
