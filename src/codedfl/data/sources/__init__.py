"""Data sets known by name: where their files come from."""
