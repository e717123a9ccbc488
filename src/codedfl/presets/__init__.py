"""Scenarios that ship with the package."""
