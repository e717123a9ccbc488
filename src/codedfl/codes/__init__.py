"""Codes over the reals: graphs, generators, erasure decoders, supports; MDS and gradient codes over prime fields."""
