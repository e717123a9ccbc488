"""Attacks of the review, as tests: each reads what it did before, and is refused now."""
