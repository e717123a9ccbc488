"""CKKS through TenSEAL, and ciphertexts as arrays of words."""
