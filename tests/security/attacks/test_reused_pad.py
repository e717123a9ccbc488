"""Two parcels under one pad tell the difference of the data; under two pads they tell nothing."""

import numpy as np
import pytest

from codedfl.cipher.seals import RINGS, Domain, FixedPoint, Pad, Ring, Seed
from codedfl.security.attacks.reused_pad import ReusedPad
from codedfl.security.scoring import Score, Truth, score
from codedfl.security.views.kinds import PairView
from security.ciphertexts import gram_matrix

D = 20


def attacked(ring: Ring, pads: tuple[Pad, Pad]) -> Score:
    rng = np.random.default_rng(7)
    data = [gram_matrix(D, 30, rng) for _ in range(2)]
    largest = max(float(np.abs(matrix).max()) for matrix in data)
    form = FixedPoint.choose(ring, entry_bound=largest, summands=2, dimension=D, model_steps=16)
    words = [
        ring.centred(ring.add(form.encode(matrix), pad.residues(D * D).reshape(D, D))).astype(float)
        for matrix, pad in zip(data, pads, strict=True)
    ]
    found = ReusedPad().run(PairView(*words, float(ring.modulus), form.data_step), rng)
    # each of the two matrices is rounded by half a step an entry
    assert form.data_step * D < 1e-2 * np.linalg.norm(data[0] - data[1])
    return score(found, Truth(gram=data[0] - data[1]))


def pad(ring: Ring, device: int) -> Pad:
    return Pad(ring, Seed(bytes(range(32))), Domain(device, 0))


@pytest.mark.parametrize("ring", RINGS.values(), ids=str)
def test_the_same_pad_twice_falls(ring: Ring) -> None:
    assert attacked(ring, (pad(ring, 0), pad(ring, 0))).verdict == "falls"


@pytest.mark.parametrize("ring", RINGS.values(), ids=str)
def test_two_pads_hold(ring: Ring) -> None:
    assert attacked(ring, (pad(ring, 0), pad(ring, 1))).verdict == "holds"
