"""Ciphers: the paper's McEliece (broken), one-time pads, masks that cancel in a sum, and CKKS."""
