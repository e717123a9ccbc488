"""Costs and random delays of devices and links, and virtual time."""

from codedfl.network.clock import Clock, Draws, Step
from codedfl.network.costs import RoundCosts, StageCosts, TransferCosts, TransferTable
from codedfl.network.delays import Chance, DelayModel, RandomBook, TransferChance
from codedfl.network.load_allocation import Allocation, ReplyChances, allocate
from codedfl.network.pipeline import OverlappingStage, PipelineTimes, sending_order

__all__ = [
    "Allocation",
    "Chance",
    "Clock",
    "DelayModel",
    "Draws",
    "OverlappingStage",
    "PipelineTimes",
    "RandomBook",
    "ReplyChances",
    "RoundCosts",
    "StageCosts",
    "Step",
    "TransferChance",
    "TransferCosts",
    "TransferTable",
    "allocate",
    "sending_order",
]
