"""Messages of the cipher: what sums and multiples of encoded data and ciphertexts are and hold."""

import numpy as np
import pytest

from codedfl.cipher.mceliece.messages import Ciphertext, Encoded, EncryptedReply, Words
from codedfl.cipher.mceliece.parameters import Parameters
from codedfl.cipher.mceliece.private_key import KeyPair, generate_keys
from codedfl.cipher.mceliece.public_key import encrypt

RNG = np.random.default_rng(3)
A, B = RNG.standard_normal((2, 3, 12))
THETA_T = RNG.standard_normal((2, 3))


@pytest.fixture(scope="module")
def keys() -> KeyPair:
    parameters = Parameters(n=24, k=12, degree=3, t_tot=4, t=2, M=2, beta=2)
    return generate_keys(parameters, dtype="float64", seed=b"a" * 32)


@pytest.mark.parametrize(
    ("left", "right", "kind"),
    [("encoded", "encoded", Encoded), ("encoded", "hidden", Ciphertext), ("hidden", "encoded", Ciphertext),
     ("hidden", "hidden", Ciphertext)],
)  # fmt: skip
def test_sums_and_multiples_are_those_of_the_plaintexts(
    keys: KeyPair, left: str, right: str, kind: type[Words]
) -> None:
    """(A + B) G + E is as hidden as the more hidden summand; a multiple of what is hidden is a reply."""
    public, private = keys.public, keys.private
    one = public.encode(A) if left == "encoded" else encrypt(public, A, private.support(0))
    other = public.encode(B) if right == "encoded" else encrypt(public, B, private.support(1))
    total = one + other
    assert type(total) is kind
    multiple = THETA_T @ total
    assert type(multiple) is (Encoded if kind is Encoded else EncryptedReply)
    assert multiple.key == total.key == public.fingerprint
    np.testing.assert_allclose(multiple.words, THETA_T @ total.words, rtol=1e-12, atol=1e-12)
    if kind is Encoded:
        np.testing.assert_allclose(multiple.words, public.encode(THETA_T @ (A + B)).words, rtol=1e-9, atol=1e-9)
    for found, true in ((total, A + B), (multiple, THETA_T @ (A + B))):
        np.testing.assert_allclose(private.decrypt(found), true, atol=1e-9)
