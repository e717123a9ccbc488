"""Schemes in which stragglers hand over their data."""
