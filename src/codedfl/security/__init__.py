"""Views, attacks, estimates and the audit: what single parties learn from the messages of a scheme."""

__all__ = ["EPOCHS"]

EPOCHS = 100
"""Epochs that a tapped run takes by default: enough for every hand-over, and for the server to see many replies."""
