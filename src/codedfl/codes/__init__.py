"""Codes over the reals."""
