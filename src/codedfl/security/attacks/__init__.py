"""Attacks that run, one a file; each is given only the view that its threat model allows."""
