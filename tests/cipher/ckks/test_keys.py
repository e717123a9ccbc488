"""CKKS through TenSEAL: exact numbers, arithmetic as SEAL does it, noise as derived, and refusals.

Randomness is the operating system's; statistical limits are passed by chance less than once in ten million.
"""

import sys
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from codedfl.cipher.ckks import keys as ckks
from codedfl.cipher.ckks.lattice import KEY_PEAK, LIMIT, SCALE, STANDARD_BITS, Lattice
from codedfl.errors import CipherError, MissingExtraError
from tiny import is_one_sentence

LATTICE = Lattice(4096)
SLOTS = 2048
needs_tenseal = pytest.mark.skipif(not ckks.installed(), reason="TenSEAL is not installed")


@cache
def keys() -> tuple[ckks.CkksSecretKey, ckks.CkksPublicKey]:
    secret = ckks.CkksSecretKey(LATTICE)
    return secret, ckks.CkksPublicKey(LATTICE, secret.public_words)


def opened(secret: ckks.CkksSecretKey, ciphertexts: np.ndarray) -> np.ndarray:
    """Slots before rounding, in steps of an integer."""
    with ckks._scratch() as path:
        return np.stack([secret._slots(words, path) for words in ciphertexts])


@needs_tenseal
@given(st.integers(1, 5), st.sampled_from([1, 7, SLOTS]), st.integers(0, 2**32 - 1))
@settings(max_examples=15)
def test_what_is_decrypted_is_what_was_encrypted(rows: int, entries: int, seed: int) -> None:
    secret, public = keys()
    sent = np.random.default_rng(seed).integers(-LIMIT + 1, LIMIT - 1, (rows, entries), endpoint=True)
    sent.flat[0] = LIMIT - 1
    found = secret.decrypt(public.encrypt(sent))
    assert found.shape == (LATTICE.count(rows), 2, SLOTS)
    assert np.array_equal(found.reshape(-1, SLOTS)[:rows, :entries], sent)


@needs_tenseal
@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 3), st.integers(0, 2**32 - 1))
@settings(max_examples=15)
def test_products_with_sums_are_exact(outputs: int, rows: int, summands: int, seed: int) -> None:
    """As large as the limits allow: multipliers near the longest, results near 2^31."""
    secret, public = keys()
    rng = np.random.default_rng(seed)
    left = rng.integers(-9, 9, (outputs, rows), endpoint=True)
    left[:, 0] = int(LATTICE.longest(summands)) - 30
    assert np.all(np.linalg.norm(left, axis=1) <= LATTICE.longest(summands))
    largest = (LIMIT - 1) // (int(np.abs(left).sum(axis=1).max()) * summands)
    data = rng.integers(-largest, largest, (summands, rows, 20), endpoint=True)
    total = public.encrypt(data[0])
    for part in data[1:]:
        total = public.add(total, public.encrypt(part))
    assert np.array_equal(secret.decrypt(public.multiply(left, total))[:, 0, :20], left @ data.sum(axis=0))


@needs_tenseal
def test_arithmetic_on_words_is_that_of_seal() -> None:
    """To the last bit: (a - b X^(N/2)) C is a product with a plaintext, and sums are sums."""
    _, public = keys()
    tools: Any = ckks._tools(LATTICE.degree)
    seal, form = tools.seal, tools.ciphertexts
    C = public.encrypt(np.arange(40).reshape(4, 10))
    left = np.array([[3, -7, 0, 12], [-1, 0, 5, 9]])
    evaluator = seal.Evaluator(tools.context)
    found = public.multiply(left, C)
    with ckks._scratch() as path:
        for output, multipliers in enumerate(left):
            terms = []
            for pair in range(2):
                a, b = multipliers[2 * pair : 2 * pair + 2]
                terms.append(form.fill(seal.Ciphertext(), tools.context, C[pair], path))
                evaluator.multiply_plain_inplace(terms[-1], tools.encode(a - b * tools.iota, 1.0))
            evaluator.add_inplace(terms[0], terms[1])
            assert np.array_equal(form.words(terms[0], path), found[output])


@needs_tenseal
def test_security_is_that_of_the_standards_table() -> None:
    seal: Any = ckks._seal()
    for degree, bits in STANDARD_BITS.items():
        assert seal.CoeffModulus.MaxBitCount(degree, seal.SEC_LEVEL_TYPE.TC128) == bits


@needs_tenseal
def test_noise_is_as_derived() -> None:
    """The variance of a part of slot k is V |m|^2 (N/2) (2 + |s_k|^2) / 12; here for sums and products, too.

    Parts divided by that deviation are normal to good precision and hardly depend on each other: their mean square
    over n of them has a deviation of sqrt(2/n), and six of these are allowed.
    """
    secret, public = keys()
    words = np.concatenate([np.zeros(4096, np.uint64), np.ones(4096, np.uint64)])  # decrypts to the key itself
    peaks = np.abs(opened(secret, words[None])[0] * SCALE) ** 2
    assert peaks.max() <= KEY_PEAK * 2 * 4096 / 3
    assert secret.peak == pytest.approx(peaks.max() / (2 * 4096 / 3), rel=1e-9)
    # by Parseval as many as there are coefficients that are not 0: binomial of 4096 and 2/3
    assert abs(peaks.mean() - 2 * 4096 / 3) < 6 * np.sqrt(4096 * 2 / 9)
    deviation = np.sqrt(2048 * (2 + peaks) / 12)
    assert deviation.max() <= LATTICE.largest_noise
    data = np.arange(6 * 2048).reshape(6, 2048)
    C = public.encrypt(data)
    fresh = opened(secret, C) - (data[0::2] + ckks._tools(4096).iota * data[1::2])
    parts = np.stack([fresh.real, fresh.imag]) * SCALE / deviation
    assert abs(np.mean(parts**2) - 1) < 6 * np.sqrt(2 / parts.size)
    left = np.array([[3, -4, 12, 84, 0, 7]])
    product = opened(secret, public.multiply(left, public.add(C, public.encrypt(data))))[0].real
    scaled = (product - 2 * (left @ data)[0]) * SCALE / (deviation * np.sqrt(2) * np.linalg.norm(left))
    assert abs(np.mean(scaled**2) - 1) < 6 * np.sqrt(2 / scaled.size)


@needs_tenseal
def test_ciphertexts_of_the_same_rows_look_uniform_and_differ() -> None:
    """Chi-square of the highest eight bits, for words, and for differences of ciphertexts of the same data."""
    _, public = keys()
    one, other = (public.encrypt(np.zeros((8, 2048), np.int64)) for _ in range(2))
    gap = public.add(one, public.q - other)
    for found in (one, gap):
        counts = np.bincount((found >> np.uint64(52)).ravel().astype(np.int64), minlength=256)
        expected = found.size / 256
        assert chi2.sf(np.sum((counts - expected) ** 2 / expected), 255) > 1e-7


@needs_tenseal
def test_another_key_reads_nothing() -> None:
    _, public = keys()
    with pytest.raises(CipherError, match="larger than any sum"):
        ckks.CkksSecretKey(LATTICE).decrypt(public.encrypt(np.zeros((2, 5), np.int64)))


@needs_tenseal
def test_what_is_no_key_or_ciphertext_is_refused() -> None:
    secret, public = keys()
    with pytest.raises(CipherError, match="no key or ciphertext"):
        secret.decrypt(np.full((1, LATTICE.words), public.q, np.uint64))
    with pytest.raises(CipherError, match="no key or ciphertext"):
        ckks.CkksPublicKey(LATTICE, np.full(LATTICE.key_words, 2**63, np.uint64))
    with pytest.raises(CipherError, match="has 16384 words"):
        ckks.CkksPublicKey(LATTICE, secret.public_words[1:])
    with pytest.raises(CipherError, match="no room"):
        public.encrypt(np.zeros((1, 2049), np.int64))


@needs_tenseal
def test_a_key_of_too_high_a_peak_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of |s_k|^2 is 2N/3, so that no key stays below a tenth of it."""
    drawn: list[float] = []
    peak = ckks.CkksSecretKey.peak.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(ckks.CkksSecretKey, "peak", property(lambda self: drawn.append(peak(self)) or drawn[-1]))
    monkeypatch.setattr(ckks, "_MAX_KEY_DRAWS", 3)
    monkeypatch.setattr(ckks, "KEY_PEAK", 0.1)
    with pytest.raises(CipherError, match="No key"):
        ckks.CkksSecretKey(LATTICE)
    assert len(set(drawn)) == 3


def test_without_tenseal_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tenseal", None)
    monkeypatch.setitem(sys.modules, "tenseal.sealapi", None)
    assert not ckks.installed()
    with pytest.raises(MissingExtraError, match=r"pip install 'codedfl\[he\]'") as error:
        ckks._seal()
    assert is_one_sentence(str(error.value))
