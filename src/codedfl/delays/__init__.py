"""Delays of devices and links, and virtual time."""

from codedfl.delays.clock import VirtualClock
from codedfl.delays.load_allocation import Allocation, ReplyChances, allocate
from codedfl.delays.model import Chance, DelayModel, RoundCosts, Step, TransferChance, TransferCosts
from codedfl.delays.stages import (
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
