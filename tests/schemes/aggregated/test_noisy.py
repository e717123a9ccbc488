"""Gradients of noisy sums, against Python's own integers: whole steps, exact products, and a model that fits."""

from typing import Any

import numpy as np
import pytest

from codedfl.errors import CipherError
from codedfl.privacy.release import Release
from codedfl.schemes import Work
from codedfl.schemes.aggregated.noisy import ExactReplies, kept_bits, model_steps
from codedfl.task import Shard

D, C = 3, 2


def release(**changes: Any) -> Release:
    given = {"epsilon": 3.0, "delta": 1e-5, "clip_features": 1.0, "clip_targets": 8.0, "features": D, "outputs": C}
    return Release.plan(**given | {"devices": 4, "largest_rows": 10, "records": 40} | changes)


def sums(planned: Release) -> tuple[Shard, np.ndarray, np.ndarray]:
    """A shard with Gram matrix and right-hand side off any grid, and both in steps of the kept bits."""
    rng, kept = np.random.default_rng(0), kept_bits(planned)
    shard = Shard(np.zeros((10, D)), np.zeros((10, C)))
    gram, side = rng.normal(size=(D, D)), rng.normal(size=(D, C))
    vars(shard).update(gram=gram + gram.T, moments=side)
    pairs = zip((gram + gram.T, side), kept, strict=True)
    steps = (np.rint(each * 2.0**bits).astype(np.int64).astype(object) for each, bits in pairs)
    return shard, *steps


@pytest.mark.parametrize("changes", [{}, {"clip_targets": 1e-3}, {"epsilon": 1e6}, {"epsilon": 1e12}])
def test_kept_bits_are_the_fewest_that_noise_allows_and_those_of_the_grid_at_most(changes: dict[str, Any]) -> None:
    planned = release(**changes)
    for bits, grid, coarsest in zip(
        kept_bits(planned), (planned.gram_bits, planned.moments_bits), planned.coarsest_steps, strict=True
    ):
        if 2.0**-grid > coarsest:  # noise is narrow, and entries are multiples of the grid
            assert bits == grid
        else:
            assert 2.0**-bits <= coarsest < 2.0 ** (1 - bits)
            assert bits <= grid


@pytest.mark.parametrize("more", [0, 1, 7, 63, 64])
def test_replies_are_exact_at_the_nearest_model_in_whole_steps(more: int) -> None:
    planned = release()
    shard, gram, side = sums(planned)
    bits = kept_bits(planned)[1] + more
    model = np.random.default_rng(1).normal(size=(D, C)) * 2.0**-more
    steps = np.rint(np.ldexp(model, bits - kept_bits(planned)[0])).astype(np.int64).astype(object)
    expected = (gram @ steps - side * 2**more) % 2**64
    work = Work()
    found = ExactReplies(shard, planned).reply(model, bits, work)
    assert list(found) == ["gradient"]
    assert found["gradient"].dtype == np.uint64
    assert found["gradient"].astype(object).tolist() == expected.tolist()
    assert work.macs == D * D * C


@pytest.mark.parametrize("shape", [(C, D), (D, C + 1), (D + 1, C)])
def test_a_model_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    planned = release()
    with pytest.raises(CipherError, match="is refused"):
        ExactReplies(sums(planned)[0], planned).reply(np.zeros(shape), 40, Work())


def test_steps_of_a_model_are_whole_and_below_two_to_the_62() -> None:
    model = np.array([[0.75, -1.3], [2.0, 1e-9]], np.float32)
    assert model_steps(model, 2).tolist() == [[3.0, -5.0], [8.0, 0.0]]
    assert model_steps(model, -1).tolist() == [[0.0, -1.0], [1.0, 0.0]]
    below = np.nextafter(2.0**62, 0)
    assert model_steps(np.array([[below, -below]]), 0).tolist() == [[below, -below]]
    for large in (2.0**62, -(2.0**62), np.nan, np.inf, 1e300):
        with pytest.raises(CipherError, match=r"in steps of 2\^-3 does not fit"):
            model_steps(np.array([[1.0, large / 8]]), 3)
    with pytest.raises(CipherError, match="does not fit"):
        model_steps(np.ones((1, 1)), 30_000)
