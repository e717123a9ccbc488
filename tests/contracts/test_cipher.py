"""The contract of the cipher, for every precision, decoder and law of edge weights."""

from itertools import product

import numpy as np
import pytest

from cipher.seals.rounding import bound, tracked, worst
from codedfl.cipher.mceliece.messages import EncryptedReply
from codedfl.cipher.mceliece.parameters import Parameters
from codedfl.cipher.mceliece.private_key import KeyPair, generate_keys
from codedfl.cipher.mceliece.public_key import encrypt
from codedfl.codes.erasure import DECODERS
from codedfl.codes.mdpc import WEIGHTS

CHOICES = sorted(product(["float32", "float64"], DECODERS, WEIGHTS))


@pytest.fixture(scope="module", params=CHOICES, ids=lambda choice: "-".join(choice))
def choice(request: pytest.FixtureRequest) -> tuple[KeyPair, str, str]:
    dtype, decoder, weights = request.param
    parameters = Parameters(n=120, k=60, degree=7, t_tot=16, t=8, M=4, beta=4, weights=weights)
    return generate_keys(parameters, dtype=dtype, decoder=decoder, seed=b"contract of cipher"), dtype, decoder


def test_a_round_of_training(choice: tuple[KeyPair, str, str]) -> None:
    """Encrypt, hand on, add, multiply, sum, decrypt: within the derived bound, whatever the choices."""
    keys, dtype, decoder = choice
    rng = np.random.default_rng(7)
    A = [rng.standard_normal((60, 60)).astype(dtype) for _ in range(5)]
    held = tracked(keys, keys.public.encode(A[4]), A[4])
    for index in range(4):
        held = held + tracked(keys, encrypt(keys.public, A[index], keys.private.support(index)), A[index])
    reply = rng.standard_normal((10, 60)).astype(dtype) @ held
    assert isinstance(reply.message, EncryptedReply)
    assert (worst(keys.private, reply, decoder) <= bound(keys.private, reply, decoder)).all()
    assert worst(keys.private, reply, decoder).max() < (1e-2 if dtype == "float32" else 1e-10)


def test_precision_is_kept(choice: tuple[KeyPair, str, str]) -> None:
    keys, dtype, decoder = choice
    A = np.eye(60, dtype=dtype)
    C = encrypt(keys.public, A, keys.private.support(0))
    assert (C.words.dtype, keys.private.decrypt(C, decoder).dtype) == (np.dtype(dtype), np.dtype(dtype))


def test_plans_are_prepared_once(choice: tuple[KeyPair, str, str]) -> None:
    keys, dtype, decoder = choice
    assert keys.private.plan(decoder, dtype) is keys.private.plan(decoder, dtype)


def test_supports_are_sets_of_the_erasure_set(choice: tuple[KeyPair, str, str]) -> None:
    keys, _, _ = choice
    supports = [set(keys.private.support(j).positions.tolist()) for j in range(4)]
    assert all(len(s) == 8 and s <= set(keys.private.erasures.tolist()) for s in supports)
    assert len({frozenset(s) for s in supports}) == 4


def test_the_public_key_shows_no_column_in_clear(choice: tuple[KeyPair, str, str]) -> None:
    """A unit column of G would print a column of A in the ciphertext."""
    keys, _, _ = choice
    G = np.abs(keys.public.G)
    assert (G.max(axis=0) < 0.9 * np.linalg.norm(G, axis=0)).all()


def test_the_cipher_is_broken_as_its_docstring_says(choice: tuple[KeyPair, str, str]) -> None:
    """From the public key and one ciphertext: all but beta combinations of the rows of A, exactly."""
    keys, dtype, _ = choice
    A = np.random.default_rng(5).standard_normal((60, 60)).astype(dtype)
    C, G = encrypt(keys.public, A, keys.private.support(2)).words, keys.public.G
    N = np.linalg.svd(G)[2][60:]
    left, values, _ = np.linalg.svd(C @ N.T)
    assert values[4] < 1e-3 * values[3]
    V = left[:, 4:].T
    found = np.linalg.lstsq(G.T, (V @ C).T)[0].T
    np.testing.assert_allclose(found, V @ A, atol=1e-3 if dtype == "float32" else 1e-10)
