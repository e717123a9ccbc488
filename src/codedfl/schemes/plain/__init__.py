"""Schemes without coding or encryption."""
