"""The explorer: a local page that asks "what if" of a scenario."""

from codedfl.report.explorer.application import explorer_routes
from codedfl.report.explorer.session import ExplorerSession

__all__ = ["ExplorerSession", "explorer_routes"]
