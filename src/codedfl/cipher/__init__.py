"""Ciphers."""
