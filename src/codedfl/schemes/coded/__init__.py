"""Schemes that code data across devices."""
