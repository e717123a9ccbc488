"""Interleaved McEliece over real MDPC codes: the cipher of the paper (sections IV-A and V).

**This cipher is broken.** An error matrix has rank beta = 4, so with N a basis of the null space of the
public G, the product C N^T = E N^T has rank 4, and its left kernel gives all but 4 combinations of the rows
of A exactly, from one ciphertext and the public key alone; symmetry of A leaves 10 unknown numbers. The
paper *claims* 92 and 128 bits. The package exists to reproduce the paper and to be attacked; data that must
stay private does not belong under it.

    keys = generate_keys(PAPER_92)                     # server
    support = keys.private.support(0)                  # server -> one device, over a secure channel
    C = encrypt(keys.public, A, support)               # device: A G + E
    reply = theta_T @ C                                # another device, on encrypted data
    keys.private.decrypt(reply)                        # server: theta_T @ A
"""

from codedfl.cipher.error_matrix import ErrorMatrix, draw_error_matrix
from codedfl.cipher.files import (
    load_ciphertext,
    load_encoded,
    load_private_key,
    load_public_key,
    load_reply,
    load_support,
    save,
)
from codedfl.cipher.messages import Ciphertext, Encoded, EncryptedReply
from codedfl.cipher.parameters import PAPER_92, PAPER_128, Parameters
from codedfl.cipher.private_key import KeyPair, PrivateKey, decrypt, generate_keys
from codedfl.cipher.public_key import PublicKey, encrypt
from codedfl.cipher.supports import Support

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
    "load_ciphertext",
    "load_encoded",
    "load_private_key",
    "load_public_key",
    "load_reply",
    "load_support",
    "save",
]
