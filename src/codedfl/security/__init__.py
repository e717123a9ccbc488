"""Views, attacks, estimates and the audit: what single parties learn from the messages of a scheme."""

__all__ = ["MARGIN"]

MARGIN = 30
"""Epochs of a tapped run beyond d / c: exact replies tell c dimensions each, and hand-overs take some epochs."""
