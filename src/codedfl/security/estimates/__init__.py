"""Estimates of the decoding problem behind the level that the paper claims; one algorithm a file."""
