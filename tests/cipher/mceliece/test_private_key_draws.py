"""How keys are drawn: codes, erasure sets and supports follow from the seed, and draws that fail are made again."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from codedfl.cipher.mceliece.parameters import Parameters
from codedfl.cipher.mceliece.private_key import PrivateKey, draw_code, generate_keys
from codedfl.cipher.mceliece.public_key import encrypt
from codedfl.cipher.randomness import Stream
from codedfl.codes.constant_weight import family
from codedfl.codes.erasure import DECODERS
from codedfl.codes.mdpc import MdpcCode
from codedfl.errors import CipherError, CodeError, UndecodableError

SEED = b"seed of thirty-two bytes, fixed."
SIZES = Parameters(n=24, k=12, degree=3, t_tot=6, t=3, M=2, beta=2)


def erasures(secret: bytes, attempt: int) -> np.ndarray:
    return Stream(secret, f"erasures {attempt}").permutation(24)[:6]


def restored(code: MdpcCode, positions: np.ndarray) -> bool:
    try:
        DECODERS["peeling"].prepare(code, np.sort(positions))
    except UndecodableError:
        return False
    return True


def secrets() -> Iterator[bytes]:
    return (bytes([number] * 32) for number in range(1, 200))


def test_everything_follows_from_the_seed() -> None:
    private = generate_keys(SIZES, dtype="float64", decoder="least-squares", seed=SEED).private
    drawn = Stream(SEED, "code 0").integer(256)
    code = MdpcCode.build(24, 12, 3, seed=drawn, weights="signed-uniform", construction="peg")
    assert np.array_equal(private.code.G, code.G)
    assert (private.erasures.tolist(), private.redrawn) == (erasures(SEED, 0).tolist(), 0)
    assert np.array_equal(private.family, family(6, 3, 2, seed=Stream(SEED, "family").integer()).sets)
    for index in (0, 1):
        support = private.support(index)
        assert support.positions.tolist() == sorted(private.erasures[private.family[index]].tolist())
        assert (support.index, support.key, support.size) == (index, private.key, 3)


def test_a_code_that_was_drawn_before_is_taken() -> None:
    code = draw_code(SIZES, bytes(32))
    keys = generate_keys(SIZES, dtype="float64", decoder="least-squares", seed=SEED, code=code)
    assert keys.private.code is code
    assert np.array_equal(keys.public.G, code.generator("float64"))


def test_erasure_sets_that_peeling_does_not_restore_are_drawn_again() -> None:
    """The first of the seed's sets that it restores; the number of those before is kept."""
    code = draw_code(SIZES, SEED)
    secret = next(one for one in secrets() if not restored(code, erasures(one, 0)))
    attempt = next(number for number in range(1, 100) if restored(code, erasures(secret, number)))
    private = generate_keys(SIZES, seed=secret, code=code).private
    assert (private.erasures.tolist(), private.redrawn) == (erasures(secret, attempt).tolist(), attempt)


def test_a_decoder_that_cannot_restore_the_set_is_named_without_positions() -> None:
    code = draw_code(SIZES, SEED)
    secret = next(one for one in secrets() if not restored(code, erasures(one, 0)))
    keys = generate_keys(SIZES, dtype="float64", decoder="least-squares", seed=secret, code=code)
    message = encrypt(keys.public, np.eye(12), keys.private.support(0))
    sentence = (
        "The decoder peeling cannot restore this key's erasure set in float64: decrypt with another decoder, or "
        "generate keys for this one."
    )
    with pytest.raises(CipherError) as refusal:
        keys.private.decrypt(message, "peeling")
    assert str(refusal.value) == sentence
    np.testing.assert_allclose(keys.private.decrypt(message), np.eye(12), atol=1e-9)


def test_plans_are_kept_for_each_decoder_and_precision() -> None:
    private = generate_keys(SIZES, seed=SEED).private
    plans = [private.plan(decoder, dtype) for decoder in DECODERS for dtype in ("float32", "float64")]
    assert len({id(plan) for plan in plans}) == len(plans)
    assert private.plan("peeling", "float64") is plans[[*DECODERS].index("peeling") * 2 + 1]


def test_codes_that_fail_are_drawn_again() -> None:
    """Four checks with two ones in every column are dependent in a third of all draws."""
    sizes = {"n": 8, "k": 4, "degree": 2, "weights": "ones", "construction": "configuration"}
    small = Parameters(**sizes, t_tot=1, t=1, M=1, beta=1)

    def built(secret: bytes, attempt: int) -> MdpcCode | None:
        drawn = Stream(secret, f"code {attempt}").integer(256)
        try:
            return MdpcCode.build(8, 4, 2, seed=drawn, weights="ones", construction="configuration")
        except CodeError:
            return None

    secret = next(one for one in secrets() if built(one, 0) is None)
    expected = next(code for attempt in range(1, 100) if (code := built(secret, attempt)))
    assert np.array_equal(draw_code(small, secret).G, expected.G)


def test_sizes_that_give_no_code_are_named() -> None:
    """Checks that hold every position with weight one are all the same."""
    same = Parameters(n=8, k=4, degree=4, t_tot=2, t=1, M=1, beta=1, weights="ones")
    with pytest.raises(CipherError, match=r"^None of 100 parity-check matrices 4 x 8 of degree 4 gave a code: change"):
        draw_code(same, SEED)


@pytest.mark.parametrize("row", [[0, 5, 5], [0, 0, 5], [5, 0, 5], [3, 3, 3]])
def test_a_member_twice_is_refused_wherever_it_stands(row: list[int]) -> None:
    private: PrivateKey = generate_keys(SIZES, seed=SEED).private
    for rows in ([row, [0, 1, 2]], [[0, 1, 2], row]):
        with pytest.raises(CipherError, match="2 sets of 3 distinct members"):
            dataclasses.replace(private, family=np.array(rows))
    assert dataclasses.replace(private, family=np.array([[5, 0, 3], [4, 1, 2]])).support(0).size == 3
