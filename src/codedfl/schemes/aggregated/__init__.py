"""Schemes whose server learns only sums over devices."""
