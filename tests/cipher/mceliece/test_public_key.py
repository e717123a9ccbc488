"""Public keys: their fingerprint, products by hand, and how large errors are beside columns with little data."""

import hashlib
import json
from dataclasses import asdict

import numpy as np
import pytest

from codedfl.cipher.mceliece.error_matrix import draw_error_matrix
from codedfl.cipher.mceliece.messages import Ciphertext, Encoded, EncryptedReply
from codedfl.cipher.mceliece.parameters import Parameters
from codedfl.cipher.mceliece.private_key import generate_keys
from codedfl.cipher.mceliece.public_key import PublicKey, encrypt
from codedfl.cipher.mceliece.supports import Support
from codedfl.errors import CipherError

PARAMETERS = Parameters(n=8, k=4, degree=2, t_tot=4, t=3, M=2, beta=2)
G = np.hstack([np.eye(4), 2 * np.eye(4)])
SEED = b"seed of thirty-two bytes, fixed."


def key(generator: np.ndarray = G) -> PublicKey:
    return PublicKey(PARAMETERS, generator)


def support(*positions: int) -> Support:
    return Support(key().fingerprint, 0, np.array(positions))


@pytest.mark.parametrize(("dtype", "width"), [("float32", "<f4"), ("float64", "<f8")])
def test_the_fingerprint_is_that_of_parameters_precision_and_generator(dtype: str, width: str) -> None:
    facts = json.dumps({"dtype": dtype, "parameters": dict(sorted(asdict(PARAMETERS).items()))})
    wanted = hashlib.sha256(facts.encode() + G.astype(width).tobytes()).hexdigest()
    assert key(G.astype(dtype)).fingerprint == key(np.asfortranarray(G.astype(dtype))).fingerprint == wanted


def test_keys_and_messages_cannot_be_changed() -> None:
    public = key()
    message = encrypt(public, np.eye(4), support(0, 5, 7))
    for array in (public.G, public.encode(np.eye(4)).words, message.words, support(0, 5, 7).positions):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_products_by_hand() -> None:
    A = np.arange(8.0).reshape(2, 4)
    encoded = key().encode(A)
    assert (encoded.rows, encoded.key, key().dtype) == (2, key().fingerprint, np.float64)
    np.testing.assert_array_equal(encoded.words, np.hstack([A, 2 * A]))
    multiple = np.array([[1.0, -1.0]]) @ encoded
    np.testing.assert_array_equal(multiple.words, [[-4] * 4 + [-8] * 4])
    np.testing.assert_array_equal((encoded + multiple_rows(multiple)).words, encoded.words + multiple.words[[0, 0]])


def multiple_rows(multiple: Encoded) -> Encoded:
    """The one row of a multiple, twice."""
    return np.ones((2, 1)) @ multiple


def test_replies_add_up_to_replies() -> None:
    message = encrypt(key(), np.eye(4), support(1, 2, 3))
    reply = np.ones((2, 4)) @ message
    for total in (reply + reply, reply + key().encode(np.ones((2, 4))), key().encode(np.ones((2, 4))) + reply):
        assert isinstance(total, EncryptedReply)
    assert isinstance(np.ones((1, 2)) @ reply, EncryptedReply)
    np.testing.assert_array_equal((reply + reply).words, 2 * reply.words)


def test_errors_are_added_to_ciphertexts_again() -> None:
    """Each on its own support; the message that they are added to stays as it was."""
    public, A = key(), np.arange(1.0, 17).reshape(4, 4)
    first = encrypt(public, A, support(0, 1, 2), seed=SEED)
    second = public.add_error(first, support(2, 6, 7), seed=SEED)
    assert isinstance(second, Ciphertext)
    assert np.flatnonzero(np.any(first.words != A @ G, axis=0)).tolist() == [0, 1, 2]
    assert np.flatnonzero(np.any(second.words != first.words, axis=0)).tolist() == [2, 6, 7]


@pytest.mark.parametrize(
    ("sizes", "errors"),
    [
        ((2.0, 4.0, 6.0), (2, 4, 6)),
        ((3.0, 0.0, 6.0), (3, 3, 6)),  # without data: the mean of all, 9 / 3
        ((0.0, 0.0, 0.0), (1, 1, 1)),
        ((3.0, 3.0, 2.001e-3), (3, 3, 2.001e-3)),  # just above a thousandth of the mean, 2.0007e-3
        ((3.0, 3.0, 2.0003e-3), (3, 3, 6.0020003 / 3)),
    ],
)
def test_errors_are_as_large_as_the_column_that_they_hide(sizes: tuple[float, ...], errors: tuple[float, ...]) -> None:
    """Root mean squares of whole blocks of beta = 2 rows; columns below a thousandth of the mean get the mean."""
    A = np.zeros((6, 4))
    A[:, :3] = sizes
    A[::2] *= -1
    error = encrypt(key(), A, support(0, 1, 2)).words - A @ G
    assert np.sqrt((error[:, :3] ** 2).mean(axis=0)) == pytest.approx(errors, rel=1e-9)


def test_the_error_is_the_matrix_drawn_from_the_seed() -> None:
    A = np.arange(1.0, 17).reshape(4, 4)
    scale = np.sqrt((A[:, [0, 1, 3]] ** 2).mean(axis=0)) * [1, 2, 2]
    error = draw_error_matrix(4, 2, scale, SEED).dense()
    expected = A @ G
    expected[:, [0, 5, 7]] += error
    np.testing.assert_allclose(encrypt(key(), A, support(0, 5, 7), seed=SEED).words, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (support(0, 1), "Support 0 does not hold 3 positions below 8"),
        (support(0, 1, 8), "Support 0 does not hold 3 positions below 8"),
        (Support("other", 0, np.arange(3)), "Support 0 belongs to key other"),
    ],
    ids=["too small", "beyond", "another key"],
)
def test_errors_are_added_on_supports_of_the_key_only(wrong: Support, sentence: str) -> None:
    for attempt in (lambda: key().add_error(key().encode(np.eye(4)), wrong), lambda: encrypt(key(), np.eye(4), wrong)):
        with pytest.raises(CipherError, match=sentence):
            attempt()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_entry_that_is_no_number_is_refused(value: float) -> None:
    A = np.eye(4)
    A[2, 1] = value
    for attempt in (lambda: key().encode(A), lambda: encrypt(key(), A, support(0, 1, 2))):
        with pytest.raises(CipherError, match="NaN or infinity"):
            attempt()


def test_keys_differ_by_their_seed() -> None:
    sizes = Parameters(n=24, k=12, degree=3, t_tot=4, t=2, M=2, beta=2)
    made = [generate_keys(sizes, seed=bytes([number] * 32)).public for number in (1, 1, 2)]
    assert made[0].fingerprint == made[1].fingerprint != made[2].fingerprint
