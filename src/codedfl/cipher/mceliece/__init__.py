"""Interleaved McEliece over real MDPC codes: the paper's cipher."""

from codedfl.cipher.mceliece.error_matrix import ErrorMatrix, draw_error_matrix
from codedfl.cipher.mceliece.messages import Ciphertext, Encoded, EncryptedReply
from codedfl.cipher.mceliece.parameters import PAPER_92, PAPER_128, Parameters
from codedfl.cipher.mceliece.private_key import KeyPair, PrivateKey, decrypt, generate_keys
from codedfl.cipher.mceliece.public_key import PublicKey, encrypt
from codedfl.cipher.mceliece.supports import Support

__all__ = [
    "PAPER_92",
    "PAPER_128",
    "Ciphertext",
    "Encoded",
    "EncryptedReply",
    "ErrorMatrix",
    "KeyPair",
    "Parameters",
    "PrivateKey",
    "PublicKey",
    "Support",
    "decrypt",
    "draw_error_matrix",
    "encrypt",
    "generate_keys",
]
