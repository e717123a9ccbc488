"""What the cipher refuses by itself, where no checks of types come first, and what is just allowed."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import shape_checker
from cipher.mceliece.misuse import SIZES, cases
from codedfl.cipher.mceliece.messages import Ciphertext, capital, named
from codedfl.cipher.mceliece.parameters import Parameters
from codedfl.cipher.mceliece.public_key import PublicKey
from codedfl.errors import CipherError
from tiny import is_one_sentence

BEGINNINGS = {
    "decrypt another key's ciphertext": "The message was made under key",
    "decrypt with an unknown decoder": "There is no decoder 'magic': choose from peeling, inactivation, least-squares.",
    "decrypt words of another length": "The words have length 20 and the code 24",
    "double precision under a single key": "The message was made under key",
    "encrypt with another key's support": "Support 0 belongs to key",
    "encrypt with a support of another size": "Support 0 does not hold 2 positions below 24",
    "encrypt with a support off the code": "Support 0 does not hold 2 positions below 24",
    "encrypt too few columns": "A plaintext of shape (3, 7) does not fit the key: give a matrix with 12 columns",
    "encrypt a vector": "A plaintext of shape (12,) does not fit the key",
    "encrypt no rows": "A plaintext of shape (0, 12) does not fit the key",
    "encrypt another precision": "The plaintext is float64 and the key float32",
    "encrypt whole numbers": "The plaintext is int64 and the key float32",
    "encrypt a NaN": "The plaintext holds NaN or infinity",
    "encrypt with a short seed": "A seed of 1 bytes is too short",
    "add an error under another key": "The message was made under key",
    "add under different keys": "A Ciphertext under key",
    "add another precision": "A Ciphertext of shape (3, 24) in float64 cannot be added to a Ciphertext of shape",
    "add another shape": "A Ciphertext of shape (3, 24) in float32 cannot be added to a Ciphertext of shape (2, 24)",
    "add a reply to a ciphertext": "A Ciphertext cannot be added to an EncryptedReply",
    "multiply by the wrong shape": "A multiplier of shape (2, 4) does not fit 3 rows of a Ciphertext",
    "multiply by another precision": "The multiplier is float64 and the Ciphertext float32",
    "a ciphertext of whole numbers": "Ciphertext needs a matrix of float32 or float64, not int64 of shape (2, 24)",
    "a support with a position twice": "Support 0 does not list distinct positions",
    "a support of rows of positions": "Support 0 does not list distinct positions",
    "a support of no positions": "Support 0 does not list distinct positions",
    "a support below the code": "Support 0 does not list distinct positions",
    "a support that does not exist": "There is no support 2: this key has 2",
    "a public key of another size": "The generator is float32 of shape (12, 20)",
    "a private key of another code": "The code has n = 24, k = 12 and the parameters n = 25, k = 12",
    "a private key with other supports": "The supports are not 2 sets of 2 distinct members",
    "a private key with other erasures": "The erasure set does not hold 4 distinct positions below 24",
    "keys of another precision": "Messages in 'float16' are not offered: choose float32 or float64.",
    "keys for an unknown decoder": "There is no decoder 'magic'",
    "erasures nobody restores": "None of 100 random sets of 12 positions can be restored by peeling",
    "hyperplanes that do not exist": "Supports of 3 in 4 positions are no hyperplanes",
    "k above n": "k is 24 and must not exceed n - 1 = 23.",
    "degree above the checks": "degree is 13 and must not exceed n - k = 12.",
    "t_tot above the checks": "t_tot is 13 and must not exceed n - k = 12.",
    "t above t_tot": "t is 5 and must not exceed t_tot = 4.",
    "beta above t": "beta is 3 and must not exceed t = 2.",
    "M of 0": "M is 0 and must be a whole number of at least 1.",
    "n of 24.0": "n is 24.0 and must be a whole number of at least 1.",
    "unknown weights": "weights is 'heavy': choose from",
    "unknown construction": "construction is 'lego': choose from",
    "unknown family": "family is 'royal': choose from auto, partition, affine, greedy.",
    "no noise": "noise is 0.0 and must be a positive finite number",
}


@pytest.fixture(scope="module")
def attempts() -> Iterator[dict[str, Callable[[], object]]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shape_checker, "CALLS", 0)
        yield cases()


@pytest.mark.parametrize("case", BEGINNINGS)
def test_values_that_do_not_fit_are_refused(attempts: dict[str, Callable[[], object]], case: str) -> None:
    with pytest.raises(CipherError) as refusal:
        attempts[case]()
    assert str(refusal.value).startswith(BEGINNINGS[case])
    assert is_one_sentence(str(refusal.value))


class TestParameters:
    @pytest.mark.parametrize(
        "changes",
        [
            {"degree": 12},
            {"t_tot": 12},
            {"t": 4},
            {"n": 16, "t": 4, "beta": 4},
            {"n": 4, "k": 1, "t": 3, "t_tot": 3, "beta": 1, "degree": 1},
            {"noise": 0.25},
            {"noise": 2},
        ],
        ids=str,
    )
    def test_limits_are_allowed(self, changes: dict[str, float]) -> None:
        made = Parameters(**SIZES | changes)
        assert all(getattr(made, name) == value for name, value in changes.items())

    @pytest.mark.parametrize(
        ("changes", "beginning"),
        [
            ({"k": 1, "t": 3, "t_tot": 3, "beta": 2}, "beta is 2 and must not exceed k = 1."),
            ({"noise": float("inf")}, "noise is inf and must be"),
            ({"noise": float("nan")}, "noise is nan and must be"),
            ({"noise": -1.0}, "noise is -1.0 and must be"),
            *(({name: 0}, f"{name} is 0 and must be a whole number of at least 1.") for name in SIZES),
            ({"beta": True}, "beta is True and must be a whole number of at least 1."),
        ],
        ids=str,
    )
    def test_beyond_them_nothing_is(self, changes: dict[str, float], beginning: str) -> None:
        with pytest.raises(CipherError) as refusal:
            Parameters(**SIZES | changes)
        assert str(refusal.value).startswith(beginning)


class TestPublicKey:
    @pytest.mark.parametrize(
        ("shape", "dtype"), [((12, 24), np.float16), ((24, 12), np.float32), ((12, 23), np.float64)]
    )
    def test_a_generator_of_another_kind(self, shape: tuple[int, int], dtype: type) -> None:
        with pytest.raises(CipherError, match="need float32 or float64 of shape"):
            PublicKey(Parameters(**SIZES), np.ones(shape, dtype))

    @pytest.mark.parametrize(
        "A", [np.ones((3, 7)), np.ones((0, 12)), np.full((1, 12), np.inf), np.ones((3, 12), np.float32)]
    )
    def test_what_cannot_be_encoded(self, A: np.ndarray) -> None:
        public = PublicKey(Parameters(**SIZES), np.ones((12, 24)))
        with pytest.raises(CipherError, match="plaintext"):
            public.encode(A)


def test_things_are_named_with_their_article() -> None:
    message = Ciphertext("key", np.ones((1, 2)))
    assert (named(message), capital(message)) == ("a Ciphertext", "A Ciphertext")
    assert (named(np.ones(2)), capital(np.ones(2)), named(3), named("x")) == ("an array", "An array", "an int", "a str")
