"""Delays of devices and links, and virtual time."""

from codedfl.delays.clock import VirtualClock
from codedfl.delays.model import Chance, DelayModel, RoundCosts, Step, TransferChance, TransferCosts
from codedfl.delays.stages import stage_seconds, stage_steps

__all__ = [
    "Chance",
    "DelayModel",
    "RoundCosts",
    "Step",
    "TransferChance",
    "TransferCosts",
    "VirtualClock",
    "stage_seconds",
    "stage_steps",
]
