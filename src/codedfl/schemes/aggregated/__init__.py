"""Schemes whose server learns sums only."""
