"""Interleaved McEliece over real MDPC codes: the cipher of the paper (sections IV-A and V). And one that holds.

**The paper's cipher is broken.** An error matrix has rank beta = 4, so with N a basis of the null space of the
public G, the product C N^T = E N^T has rank 4, and its left kernel gives all but 4 combinations of the rows
of A exactly, from one ciphertext and the public key alone; symmetry of A leaves 10 unknown numbers. The
paper *claims* 92 and 128 bits. The package exists to reproduce the paper and to be attacked; data that must
stay private does not belong under it.

    keys = generate_keys(PAPER_92)                     # server
    support = keys.private.support(0)                  # server -> one device, over a secure channel
    C = encrypt(keys.public, A, support)               # device: A G + E
    reply = theta_T @ C                                # another device, on encrypted data
    keys.private.decrypt(reply)                        # server: theta_T @ A

What holds is sealed sharing: fixed-point residues under one-time pads from AES-256.

    numbers = FixedPoint.choose(Z_32, entry_bound=2.4, summands=25, dimension=2000, model_steps=16)
    seed, ledger = Seed(), PadLedger()                 # device and server share the seed over a secure channel
    pad = Pad(Z_32, seed, Domain(device=7, export=0))
    C = seal(numbers.encode_symmetric(A), pad, ledger)             # device: upper triangle, 64 Mbit
    model = numbers.encode_model(theta)                            # server
    reply = Z_32.product(model.residues, unpack_upper(C))          # another device, on sealed data
    mask = symmetric_pad_product(model.residues, [pad])            # server, from the seed
    numbers.decode_product(Z_32.subtract(reply, mask), model)      # theta_T @ A, both rounded
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
from codedfl.cipher.fixed_point import EncodedModel, FixedPoint
from codedfl.cipher.masks import AgreementKey, add_mask, close_envelope, open_envelope
from codedfl.cipher.messages import Ciphertext, Encoded, EncryptedReply
from codedfl.cipher.pads import Domain, Pad, PadLedger, Seed, pad_product, seal, symmetric_pad_product
from codedfl.cipher.parameters import PAPER_92, PAPER_128, Parameters
from codedfl.cipher.private_key import KeyPair, PrivateKey, decrypt, generate_keys
from codedfl.cipher.public_key import PublicKey, encrypt
from codedfl.cipher.rings import FIELD_31, FIELD_48, RINGS, Z_32, Z_64, PowerOfTwoRing, PrimeField, Ring
from codedfl.cipher.shamir import SecretSharing
from codedfl.cipher.supports import Support
from codedfl.cipher.triangles import pack_upper, packed_size, unpack_upper

__all__ = [
    "FIELD_31",
    "FIELD_48",
    "PAPER_92",
    "PAPER_128",
    "RINGS",
    "Z_32",
    "Z_64",
    "AgreementKey",
    "Ciphertext",
    "Domain",
    "Encoded",
    "EncodedModel",
    "EncryptedReply",
    "ErrorMatrix",
    "FixedPoint",
    "KeyPair",
    "Pad",
    "PadLedger",
    "Parameters",
    "PowerOfTwoRing",
    "PrimeField",
    "PrivateKey",
    "PublicKey",
    "Ring",
    "SecretSharing",
    "Seed",
    "Support",
    "add_mask",
    "close_envelope",
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
    "open_envelope",
    "pack_upper",
    "packed_size",
    "pad_product",
    "save",
    "seal",
    "symmetric_pad_product",
    "unpack_upper",
]
