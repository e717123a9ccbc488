"""Masks that cancel in a sum: secure aggregation."""
