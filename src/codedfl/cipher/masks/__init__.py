"""Masks that cancel in a sum: secure aggregation."""

from codedfl.cipher.masks.pairwise import AgreementKey, add_mask, close_envelope, open_envelope
from codedfl.cipher.masks.shamir import SecretSharing

__all__ = [
    "AgreementKey",
    "SecretSharing",
    "add_mask",
    "close_envelope",
    "open_envelope",
]
