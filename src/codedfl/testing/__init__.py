"""Contract tests and helpers that an author of a scheme may import."""
