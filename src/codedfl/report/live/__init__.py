"""The live page of a training, simulated or deployed: a small server shows its state as it changes."""

from codedfl.report.live.following import followed_status
from codedfl.report.live.page import EMULATED, REAL, VIRTUAL, about_training
from codedfl.report.live.results import finished_table, result_of
from codedfl.report.live.session import LivePage, is_awaited
from codedfl.report.live.simulation import SimulationObserver

__all__ = [
    "EMULATED",
    "REAL",
    "VIRTUAL",
    "LivePage",
    "SimulationObserver",
    "about_training",
    "finished_table",
    "followed_status",
    "is_awaited",
    "result_of",
]
