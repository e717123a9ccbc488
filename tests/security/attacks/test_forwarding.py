"""Forwarding without a fresh mask falls to the earlier senders; a fresh pad stops them, a fresh error does not."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.cipher.mceliece.private_key import KeyPair
from codedfl.cipher.mceliece.public_key import encrypt
from codedfl.security.attacks.forwarding import Forwarding
from codedfl.security.attacks.left_kernel import LeftKernel
from codedfl.security.scoring import Truth, score
from codedfl.security.views.kinds import ForwardView, ParcelView
from security.ciphertexts import gram_matrix, parameters, small_keys


@dataclass(frozen=True)
class Forwarded:
    view: ForwardView
    A: np.ndarray

    @property
    def limit(self) -> float:
        """Each of two additions and the product A G round; least squares divides by the smallest singular value.

        The attacker brings the columns of G to length one, so it is the scaled G that counts.
        """
        G, A = self.view.G.astype(np.float64), self.A.astype(np.float64)
        D = 1 / np.linalg.norm(G, axis=0)
        unit = np.finfo(self.view.forwarded.dtype).eps / 2
        sizes = np.abs(self.view.forwarded) + sum(np.abs(parcel) for parcel in self.view.sent)
        rounding = (G.shape[0] + 1) * unit * np.linalg.norm(np.abs(A) @ np.abs(G) * D) + 2 * unit * np.linalg.norm(
            sizes * D
        )
        singular = np.linalg.svd(G * D, compute_uv=False)
        own = G.shape[1] * np.finfo(np.float64).eps * (singular[0] / singular[-1]) ** 2 * np.linalg.norm(sizes * D)
        return (rounding + own) / singular[-1] / np.linalg.norm(A)


def forwarded(keys: KeyPair, seed: int = 0, mask: bool = False) -> Forwarded:
    """Two devices send under their supports, the third adds its data and hands on, with ``mask`` under a fresh pad."""
    rng = np.random.default_rng(seed)
    k = keys.public.parameters.k
    one, two, own = (gram_matrix(k, 2 * k, rng).astype(keys.public.dtype) for _ in range(3))
    sent = [encrypt(keys.public, A, keys.private.support(i), seed=bytes([i]) * 32) for i, A in enumerate((one, two))]
    words = (keys.public.encode(own) + sent[0] + sent[1]).words
    if mask:
        words = words + (100 * np.abs(words).max() * rng.standard_normal(words.shape)).astype(words.dtype)
    return Forwarded(ForwardView(keys.public.G, (sent[0].words, sent[1].words), words), own)


@pytest.fixture(scope="module", params=["float32", "float64"])
def keys(request: pytest.FixtureRequest) -> KeyPair:
    return small_keys(parameters(), request.param)


def test_the_forwarding_device_is_read(keys: KeyPair) -> None:
    case = forwarded(keys)
    found = score(Forwarding().run(case.view, np.random.default_rng(0)), Truth(gram=case.A))
    assert case.limit < 1e-2, "a limit that says nothing"
    assert found.relative_error is not None
    assert found.relative_error < case.limit
    assert found.verdict == "falls"


@given(seed=st.integers(0, 2**31))
@settings(max_examples=25)
def test_whatever_the_data(seed: int) -> None:
    case = forwarded(small_keys(parameters(n=60, k=24, t=4, beta=2)), seed)
    found = score(Forwarding().run(case.view, np.random.default_rng(0)), Truth(gram=case.A))
    assert found.relative_error is not None
    assert found.relative_error < case.limit


def test_one_sender_alone_still_faces_the_other_error(keys: KeyPair) -> None:
    case = forwarded(keys)
    alone = ForwardView(case.view.G, case.view.sent[:1], case.view.forwarded)
    assert score(Forwarding().run(alone, np.random.default_rng(0)), Truth(gram=case.A)).verdict == "holds"


def test_a_fresh_mask_stops_it(keys: KeyPair) -> None:
    case = forwarded(keys, mask=True)
    assert score(Forwarding().run(case.view, np.random.default_rng(0)), Truth(gram=case.A)).verdict == "holds"


def test_a_fresh_error_matrix_does_not_stop_one_sender(keys: KeyPair) -> None:
    """Section IV-B: device j sent C_j, eavesdrops D_i + E_i, and "learns only t error-free positions".

    What is left after its own parcel is taken away is an ordinary ciphertext of A_i, which falls whole: all n - t
    positions without error, and A_i.
    """
    rng = np.random.default_rng(5)
    p = keys.public.parameters
    own, other = (gram_matrix(p.k, 2 * p.k, rng).astype(keys.public.dtype) for _ in range(2))
    sent = encrypt(keys.public, other, keys.private.support(0), seed=bytes(32))
    fresh = keys.private.support(1)
    words = (encrypt(keys.public, own, fresh, seed=bytes([1]) * 32) + sent).words
    subtracted = ParcelView(keys.public.G, words - sent.words, p.t, p.beta)
    found = score(LeftKernel().run(subtracted, rng), Truth(gram=own, support=fresh.positions, length=p.n))
    assert found.support_recovered
    assert found.verdict == "falls"
    assert found.relative_error is not None
    assert found.relative_error < 1e-2, "what a Gram matrix counts as read at"
    plain = Forwarding().run(ForwardView(keys.public.G, (sent.words,), words), rng)
    assert score(plain, Truth(gram=own)).verdict != "falls", "subtraction alone does not do it: the error is fresh"


def test_a_forwarded_sum_is_open_to_its_single_sender(keys: KeyPair) -> None:
    """A sum of two parcels, sent on by one device and forwarded by the next without a fresh error."""
    case = forwarded(keys)
    single = ForwardView(case.view.G, (case.view.sent[0] + case.view.sent[1],), case.view.forwarded)
    found = score(Forwarding().run(single, np.random.default_rng(0)), Truth(gram=case.A))
    assert found.relative_error is not None
    assert found.relative_error < case.limit
    assert found.verdict == "falls"


def test_sealed_residues_read_as_noise() -> None:
    rng = np.random.default_rng(1)
    d, scale, modulus = 40, 2.0**16, 2.0**40
    A = gram_matrix(d, 60, rng)
    sent = tuple(np.floor(modulus * rng.random((d, d))) for _ in range(2))
    pad = np.floor(modulus * rng.random((d, d)))
    view = ForwardView(scale * np.eye(d), sent, np.mod(np.round(scale * A) + sum(sent) + pad, modulus))
    finding = Forwarding().run(view, rng)
    assert finding.gram is not None
    assert score(finding, Truth(gram=A)).verdict == "holds"


def test_without_that_pad_the_same_residues_fall() -> None:
    """The control: it is the pad that holds, not the format. Sums stay below the modulus, so nothing wraps round."""
    rng = np.random.default_rng(1)
    d, scale, modulus = 40, 2.0**16, 2.0**40
    A = gram_matrix(d, 60, rng)
    sent = tuple(np.floor(modulus / 4 * rng.random((d, d))) for _ in range(2))
    view = ForwardView(scale * np.eye(d), sent, np.round(scale * A) + sum(sent))
    found = score(Forwarding().run(view, rng), Truth(gram=A))
    assert found.relative_error is not None
    assert found.relative_error <= 0.5 / scale * d / np.linalg.norm(A), "half a step of the fixed point in each entry"
