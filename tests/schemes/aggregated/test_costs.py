"""Costs of a secure sum, by hand: bits are those of the arrays that are sent, t of n devices open it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from codedfl.cipher.masks.graph import MaskGraph
from codedfl.cipher.masks.pairwise import AGREEMENT_OPERATIONS as AGREEMENT
from codedfl.network import RoundCosts
from codedfl.schemes.aggregated.costs import masked_epochs, question_costs, sum_rounds, with_sum
from codedfl.schemes.aggregated.server import Threshold
from codedfl.schemes.contract import CountedCosts

FIVE = MaskGraph(5)
ENVELOPE = 800
"""Bits of an envelope: a nonce of 12 bytes, a tag of 16, and two shares of nine words of 32 bits."""


def alone(n: int, **changes: object) -> RoundCosts:
    """Replies of n devices, of which the second does more than the others."""
    more = np.arange(n) == 1
    costs = RoundCosts(np.arange(n), np.full(n, 64), 100 + 10 * more, 300 + 20 * more, quorum=n, server_macs=7)
    return replace(costs, **changes)


def test_rounds_of_five_devices() -> None:
    """t = 4: numbers of 32 bits, keys of 512, ten words of 32 bits under five masks, shares of nine words."""
    found = sum_rounds(FIVE, Threshold(), 10, 32)
    assert found.each == (
        (32, 2 * AGREEMENT, 512),
        (5 * (32 + 512), 4 * 5 * 18 + 4 * (AGREEMENT + 18), 4 * ENVELOPE),
        (4 * (32 + ENVELOPE), 4 * (18 + AGREEMENT) + 5 * 10, 320),
        (5 * 32, 0, 5 * 9 * 32),
    )
    assert (found.server, found.least, found.quorum) == (4 * 9 + 2 * 10, 4, 4)


def test_who_is_awaited_at_the_end() -> None:
    """Any t of all; where seeds of noise are told, or masks are those of circles, everybody."""
    spare = sum_rounds(FIVE, Threshold(3), 10, 64, spare=256)
    assert (spare.least, spare.quorum) == (3, 5)
    assert spare.each[2][2] == 640
    assert spare.each[3] == (160, 0, 5 * 9 * 32 + 256)
    circles = sum_rounds(MaskGraph(20, 8), Threshold(), 10, 32)
    assert (circles.least, circles.quorum) == (14, 20)
    assert circles.each[3] == (9 * 32, 0, 9 * 9 * 32)
    assert circles.server == 6 * 9 + 20


@pytest.mark.parametrize("threshold", [3, 5])
def test_a_reply_is_sent_under_masks_in_the_third_round_and_opened_in_the_last(threshold: int) -> None:
    rounds = sum_rounds(FIVE, Threshold(threshold), 10, 32)
    found = with_sum(alone(5), rounds)
    assert [costs.asked.tolist() for costs in found] == [[0, 1, 2, 3, 4]] * 4
    assert [costs.down_bits.tolist() for costs in found] == [
        [down + 64 * (number == 2)] * 5 for number, (down, _, _) in enumerate(rounds.each)
    ]
    assert [costs.up_bits.tolist() for costs in found] == [[up] * 5 for _, _, up in rounds.each]
    for number, (costs, (_, macs, _)) in enumerate(zip(found, rounds.each, strict=True)):
        own = [100, 110, 100, 100, 100] if number == 2 else [0] * 5
        assert costs.macs.tolist() == [macs + each for each in own]
    assert [costs.server_macs for costs in found] == [0, 0, 0, 7 + 5 * rounds.server]
    assert [costs.quorum for costs in found] == [5, 5, 5, threshold]
    assert [costs.least for costs in found] == [threshold] * 4


def test_epochs_of_an_inner_scheme_under_masks() -> None:
    """Six words of 64 bits, and 16 bits of the request that name the number format."""
    inner = CountedCosts([[alone(5)], [alone(5, down_bits=np.full(5, 8))]])
    found = masked_epochs(inner, FIVE, Threshold(), 6, 16)
    assert found is not None
    rounds = sum_rounds(FIVE, Threshold(), 6, 64)
    assert [len(epoch) for epoch in found.epochs] == [4, 4]
    for epoch, down in zip(found.epochs, (64, 8), strict=True):
        assert [costs.key() for costs in epoch] == [
            costs.key() for costs in with_sum(alone(5, down_bits=np.full(5, down + 16)), rounds)
        ]


@pytest.mark.parametrize(
    "other",
    [alone(5, quorum=4), alone(5, deadline=3.0), alone(5, quorum=4, deadline=3.0), alone(4), alone(4, quorum=5)],
)
def test_epochs_that_do_not_await_all_devices_cannot_be_counted(other: RoundCosts) -> None:
    """Nor those that ask only some of them, whatever number of replies they await."""
    assert masked_epochs(CountedCosts([[alone(5)], [other]]), FIVE, Threshold(), 6, 16) is None
    assert math.isinf(alone(5).deadline)


@pytest.mark.parametrize(
    ("dtypes", "bits"),
    [
        (["uint32", "uint32"], 32),
        (["uint64", "uint64"], 64),
        (["float32", "float32"], 64),
        (["float64", "float64"], 64),
        (["uint32", "uint64"], 64),
    ],
)
def test_residues_of_few_bits_stay_so_and_numbers_become_words_of_64(dtypes: list[str], bits: int) -> None:
    """2 + 6 words of the replies of three devices that are left; their number decides on all costs."""
    reply = {"a": np.zeros(2, dtypes[0]), "b": np.zeros((2, 3), dtypes[1])}
    found = question_costs(3, Threshold(), alone(3), reply)
    rounds = sum_rounds(MaskGraph(3), Threshold(), 8, bits)
    assert found[2].up_bits.tolist() == [8 * bits] * 3
    assert [costs.down_bits[0] for costs in found] == [
        down + 64 * (number == 2) for number, (down, _, _) in enumerate(rounds.each)
    ]
    assert found[2].macs.tolist() == [rounds.each[2][1] + own for own in (100, 110, 100)]
    assert found[3].server_macs == 7 + 3 * (2 * 9 + 2 * 8)
