"""Delays of devices and links, and virtual time."""

from codedfl.network.delays import Chance, DelayModel, RoundCosts, Step, TransferChance, TransferCosts
from codedfl.network.events import VirtualClock
from codedfl.network.load_allocation import Allocation, ReplyChances, allocate
from codedfl.network.stages import (
    StageChance,
    grant_seconds,
    relay_tries,
    stage_chance,
    stage_seconds,
    stage_steps,
)

__all__ = [
    "Allocation",
    "Chance",
    "DelayModel",
    "ReplyChances",
    "RoundCosts",
    "StageChance",
    "Step",
    "TransferChance",
    "TransferCosts",
    "VirtualClock",
    "allocate",
    "grant_seconds",
    "relay_tries",
    "stage_chance",
    "stage_seconds",
    "stage_steps",
]
