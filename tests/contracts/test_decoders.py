"""What every erasure decoder promises."""

import numpy as np
import pytest

from codedfl.codes.erasure import DECODERS
from codedfl.codes.erasure.diagnosis import decodable, draw_support
from codedfl.codes.mdpc import MdpcCode
from codedfl.errors import CodeError, UndecodableError
from codes.tolerance import message_tolerance, restored_tolerance

SIZES = [(20, 10, 3), (60, 30, 5), (61, 23, 6), (200, 100, 9)]


@pytest.fixture(scope="module", params=SIZES, ids=str)
def code(request):
    n, k, degree = request.param
    return MdpcCode.build(n, k, degree, seed=n)


@pytest.fixture(params=DECODERS.values(), ids=DECODERS.keys())
def decoder(request):
    return request.param


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def dtype(request):
    return request.param


def erasable(code, size, rng):
    """A set that peeling can restore, hence every decoder."""
    return draw_support(code, size, rng, DECODERS["peeling"])


def test_restores_whatever_stands_at_the_erased_positions(code, decoder, dtype):
    rng = np.random.default_rng(1)
    erased = erasable(code, code.m // 6, rng)
    messages = rng.standard_normal((4, code.k))
    words = code.encode(messages)
    plan = decoder.prepare(code, erased, dtype)
    for garbage in (0.0, 1e30, np.nan, np.inf):
        damaged = words.astype(dtype)
        damaged[:, erased] = garbage
        before = damaged.copy()
        restored = plan.decode(damaged)
        assert restored.dtype == dtype
        assert np.abs(restored - words).max() <= restored_tolerance(plan, words)
        assert np.array_equal(np.delete(restored, erased, axis=1), np.delete(damaged, erased, axis=1))
        assert np.array_equal(damaged, before, equal_nan=True)
    assert np.abs(plan.message(damaged) - messages).max() <= message_tolerance(plan, words)


def test_the_order_of_the_positions_does_not_matter(code, decoder):
    rng = np.random.default_rng(2)
    erased = erasable(code, 3, rng)
    words = rng.standard_normal((2, code.n))
    first = decoder.prepare(code, erased).decode(words)
    assert np.array_equal(first, decoder.prepare(code, erased[::-1].copy()).decode(words))


def test_decoding_is_linear(code, decoder):
    rng = np.random.default_rng(3)
    plan = decoder.prepare(code, erasable(code, code.m // 6, rng))
    a, b = rng.standard_normal((2, 3, code.n))
    together, apart = plan.decode(a + b), plan.decode(a) + plan.decode(b)
    scale = max(np.abs(a).max(), np.abs(b).max())
    # each of the three decodings is within its bound of the exact linear map, the sums add one rounding
    assert np.abs(together - apart).max() <= 4 * (plan.error_bound + np.finfo(float).eps) * scale


def test_no_word_and_nothing_erased(code, decoder):
    plan = decoder.prepare(code, np.array([], dtype=np.int64))
    words = np.random.default_rng(4).standard_normal((3, code.n))
    assert np.array_equal(plan.decode(words), words)
    assert decoder.prepare(code, np.array([0])).decode(words[:0]).shape == (0, code.n)


def test_all_positions_erased(code, decoder):
    with pytest.raises(UndecodableError, match=f"{code.n} erased positions exceed the {code.m} parity checks"):
        decoder.prepare(code, np.arange(code.n))


@pytest.mark.parametrize(
    ("erased", "sentence"),
    [
        (np.array([3, 1, 3]), "position 3 is given twice: name every position once"),
        (np.array([-1]), "position -1 lies outside the code: give positions between 0 and"),
        (np.array([10**6]), "position 1000000 lies outside"),
    ],
)
def test_wrong_positions(code, decoder, erased, sentence):
    with pytest.raises(CodeError, match=sentence):
        decoder.prepare(code, erased)


def test_the_last_position_is_restored_and_the_one_after_it_refused(code, decoder):
    words = code.encode(np.random.default_rng(5).standard_normal((2, code.k)))
    damaged = words.copy()
    damaged[:, [0, code.n - 1]] = np.nan
    plan = decoder.prepare(code, np.array([0, code.n - 1]))
    assert np.abs(plan.decode(damaged) - words).max() <= restored_tolerance(plan, words)
    with pytest.raises(CodeError, match=f"position {code.n} lies outside the code: .* between 0 and {code.n - 1}"):
        decoder.prepare(code, np.array([0, code.n]))


def test_wrong_width_and_precision(code, decoder):
    plan = decoder.prepare(code, np.array([1]))
    with pytest.raises(CodeError, match=f"needs rows of {code.n}"):
        plan.decode(np.zeros((2, code.n + 1)))
    with pytest.raises(CodeError, match="float16 is not offered: use float32 or float64"):
        decoder.prepare(code, np.array([1]), np.float16)


def test_dependent_columns_are_named(decoder):
    code = MdpcCode.build(30, 10, 2, seed=0)
    rng = np.random.default_rng(0)
    sets = (np.sort(rng.choice(30, 20, replace=False)) for _ in range(1000))
    erased = next(positions for positions in sets if not decodable(code, positions))
    with pytest.raises(UndecodableError) as refusal:
        decoder.prepare(code, erased)
    sentence = str(refusal.value)
    assert "positions" in sentence and "draw another set" in sentence.lower()
