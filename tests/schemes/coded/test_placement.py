"""Cutting a symmetric matrix into pieces: nothing is lost, nothing is sent twice, and pieces are alike in size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.schemes.coded.placement import Bands

sizes = st.integers(1, 9).flatmap(
    lambda bands: st.builds(Bands, rows=st.integers(bands, 40), bands=st.just(bands), outputs=st.integers(0, 3))
)


@given(sizes)
def test_every_pair_of_bands_is_in_exactly_one_piece(cut: Bands) -> None:
    pairs = [frozenset({a, b}) for a in range(cut.bands) for b in cut.held_by(a)]
    assert len(pairs) == len(set(pairs)) == cut.bands * (cut.bands - 1) // 2
    assert all(len(pair) == 2 for pair in pairs)


@given(sizes)
def test_pieces_together_are_one_triangle_and_the_second_matrix(cut: Bands) -> None:
    total = sum(cut.size(number) for number in range(cut.bands))
    assert total == cut.rows * (cut.rows + 1) // 2 + cut.rows * cut.outputs


@given(sizes, st.integers(0, 2**32 - 1))
def test_pieces_and_their_transposes_rebuild_the_matrix(cut: Bands, seed: int) -> None:
    rng = np.random.default_rng(seed)
    half = rng.integers(0, 2**32, (cut.rows, cut.rows), dtype=np.uint32)
    matrix = np.triu(half) + np.triu(half, 1).T
    second = rng.integers(0, 2**32, (cut.rows, cut.outputs), dtype=np.uint32)
    held: list[dict[int, np.ndarray]] = []
    for number in range(cut.bands):
        piece = cut.piece(number, matrix, second)
        assert piece.size == cut.size(number)
        blocks, rows = cut.unpack(number, piece)
        assert np.array_equal(rows, second[cut.band(number)])
        held.append(dict(blocks))
    for number in range(cut.bands):
        for other in cut.held_by(number):
            held[other][number] = held[number][other].T
    whole = np.concatenate([cut.joined(number, blocks) for number, blocks in enumerate(held)])
    assert np.array_equal(whole, matrix)


def test_pieces_of_the_papers_size_differ_by_less_than_a_twentieth() -> None:
    cut = Bands(rows=2000, bands=25, outputs=10)
    pieces = [cut.size(number) for number in range(25)]
    assert max(pieces) <= 1.05 * min(pieces)


def test_a_band_that_lacks_a_block_is_not_joined() -> None:
    with pytest.raises(ValueError, match=r"lacks the blocks of \[1, 2\]"):
        Bands(6, 3, 0).joined(0, {0: np.zeros((2, 2))})


@pytest.mark.parametrize(("rows", "bands", "outputs"), [(3, 4, 1), (3, 0, 1), (3, 2, -1)])
def test_impossible_cuts_are_refused(rows: int, bands: int, outputs: int) -> None:
    with pytest.raises(ValueError, match="need 1 <= bands"):
        Bands(rows, bands, outputs)
