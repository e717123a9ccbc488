"""What each device receives, sends and multiplies, added up from the costs of rounds and parcels."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from codedfl.network import RoundCosts, TransferCosts
from codedfl.training import History

__all__ = ["LINKS", "Spent", "add_round", "add_transfers", "mean_and_largest", "nothing", "spent_in"]

LINKS = ("down", "up", "d2d")
"""Received from the server, sent to it, sent to other devices."""

Spent = dict[str, Int[np.ndarray, "n"]]
"""Bits by link, and multiplications (``macs``), one number a device."""


def nothing(devices: int) -> Spent:
    """Return what so many devices have spent at the beginning."""
    return {name: np.zeros(devices, np.int64) for name in (*LINKS, "macs")}


def spent_in(history: History, devices: int) -> Spent:
    """Return what each device spent in a training."""
    spent = nothing(devices)
    numbers = [number for questions in history.questions() for number in questions]
    for number, times in zip(*np.unique(numbers, return_counts=True), strict=True):
        add_round(spent, history.rounds[number], times=int(times))
    add_transfers(spent, [costs for _, _, costs in history.transfers])
    for _, stage in history.stages:
        add_transfers(spent, stage)
    return spent


def add_round(spent: Spent, costs: RoundCosts, places: slice | list[int] = slice(None), times: int = 1) -> None:
    """Add a question that was put so many times; ``places`` says to whom of those who are asked."""
    asked = costs.asked[places]
    spent["down"][asked] += times * costs.down_bits[places]
    spent["up"][asked] += times * costs.up_bits[places]
    spent["macs"][asked] += times * costs.macs[places]


def add_transfers(spent: Spent, transfers: Sequence[TransferCosts]) -> None:
    """Add parcels: what is relayed comes down to its recipient, the rest counts for the sender."""
    for costs in transfers:
        sent = costs.bits()
        spent["down"][costs.sender] += costs.grant_bits
        spent["up"][costs.sender] += sent["up"]
        spent["d2d"][costs.sender] += sent["d2d"]
        spent["macs"][costs.sender] += costs.export_macs
        if costs.relayed:
            spent["down"][costs.recipient] += costs.parcel_bits
        if not costs.uploaded:
            spent["macs"][costs.recipient] += costs.absorb_macs


def mean_and_largest(each: Int[np.ndarray, "n"]) -> dict[str, float]:
    """Return the mean and the largest of all devices."""
    return {"mean": float(each.mean()), "largest": float(each.max())}
