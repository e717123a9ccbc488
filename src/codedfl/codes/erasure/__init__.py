"""Erasure decoders."""
