"""Vectors computed elsewhere in exact fractions (tests/golden/make_cipher.py)."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from codedfl.cipher.mceliece.error_matrix import ErrorMatrix
from codedfl.cipher.mceliece.messages import Ciphertext
from codedfl.cipher.mceliece.parameters import Parameters
from codedfl.cipher.mceliece.private_key import KeyPair, PrivateKey
from codedfl.cipher.mceliece.public_key import PublicKey
from codedfl.codes.erasure import DECODERS
from codedfl.codes.mdpc import MdpcCode

VECTORS = json.loads((Path(__file__).parents[2] / "golden" / "cipher_small.json").read_text())
TIGHT = {"rtol": 0, "atol": 1e-12}


def real(rows: list[Any]) -> np.ndarray:
    return np.array([[float(Fraction(value)) for value in row] for row in rows])


@pytest.fixture(scope="module")
def keys() -> KeyPair:
    sizes = {name: VECTORS[name] for name in ("n", "k", "degree", "t_tot", "t", "beta")}
    parameters = Parameters(**sizes, M=len(VECTORS["supports"]))
    code = MdpcCode(csr_matrix(real(VECTORS["H"])), real(VECTORS["G"]), np.array(VECTORS["information"]))
    public = PublicKey(parameters, code.generator(np.float64))
    erasures, supports = np.array(VECTORS["erasures"]), np.array(VECTORS["supports"])
    return KeyPair(public, PrivateKey(parameters, public.fingerprint, code, erasures, supports))


def golden_ciphertexts(keys: KeyPair) -> list[Ciphertext]:
    return [Ciphertext(keys.public.fingerprint, real(C)) for C in VECTORS["C"]]


@pytest.mark.parametrize("j", [0, 1])
def test_encryption_is_the_golden_one(keys: KeyPair, j: int) -> None:
    """A G, and E' from its factors on the golden support."""
    words = keys.public.encode(real(VECTORS["A"][j])).words.copy()
    E = ErrorMatrix(real(VECTORS["blocks"][j]), real(VECTORS["generators"][j])).dense()
    np.testing.assert_allclose(E, real(VECTORS["errors"][j]), **TIGHT)
    words[:, keys.private.support(j).positions] += E
    np.testing.assert_allclose(words, real(VECTORS["C"][j]), **TIGHT)


@pytest.mark.parametrize("decoder", sorted(DECODERS))
@pytest.mark.parametrize("j", [0, 1])
def test_decryption_is_the_golden_one(keys: KeyPair, decoder: str, j: int) -> None:
    decrypted = keys.private.decrypt(golden_ciphertexts(keys)[j], decoder)
    np.testing.assert_allclose(decrypted, real(VECTORS["A"][j]), **TIGHT)


@pytest.mark.parametrize("decoder", sorted(DECODERS))
def test_the_sum_and_the_reply_are_the_golden_ones(keys: KeyPair, decoder: str) -> None:
    first, second = golden_ciphertexts(keys)
    reply = real(VECTORS["theta_T"]) @ (first + second)
    np.testing.assert_allclose(reply.words, real(VECTORS["reply"]), **TIGHT)
    np.testing.assert_allclose(
        keys.private.decrypt(reply, decoder), real(VECTORS["decrypted_reply"]), rtol=0, atol=1e-11
    )
