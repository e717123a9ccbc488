"""Options of commands whose training a page can follow."""

from codedfl.cli.live.deployment import deployment_page, finish, followed
from codedfl.cli.live.options import Live, LiveChoice, LiveHost, LivePort, checked_live, live_simulation, show_finished

__all__ = [
    "Live",
    "LiveChoice",
    "LiveHost",
    "LivePort",
    "checked_live",
    "deployment_page",
    "finish",
    "followed",
    "live_simulation",
    "show_finished",
]
