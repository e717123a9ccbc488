"""Delays of devices and links, and virtual time."""

from codedfl.delays.clock import VirtualClock
from codedfl.delays.model import Chance, DelayModel, RoundCosts, Step, TransferChance, TransferCosts

__all__ = ["Chance", "DelayModel", "RoundCosts", "Step", "TransferChance", "TransferCosts", "VirtualClock"]
