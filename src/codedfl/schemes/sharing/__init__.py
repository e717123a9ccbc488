"""Schemes in which stragglers hand their data over."""
