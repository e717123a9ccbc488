"""Cutting a symmetric matrix into pieces: nothing is lost, nothing is sent twice, and pieces are alike in size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.schemes.coded.placing import bands
from codedfl.schemes.coded.placing.bands import Bands


@st.composite
def cuts(draw: st.DrawFn) -> Bands:
    adders, threshold, chunks = draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    least = adders if chunks == 1 else threshold * (chunks * adders - 1) + 1
    rows = draw(st.integers(least, least + 20))
    return Bands(rows, adders, draw(st.integers(0, 3)), threshold, chunks)


@given(cuts())
def test_every_row_is_in_one_band_and_later_bands_have_whole_units(cut: Bands) -> None:
    rows = [cut.rows_of(number).tolist() for number in range(cut.count)]
    assert sorted(row for band in rows for row in band) == list(range(cut.rows))
    assert cut.order[cut.places].tolist() == list(range(cut.rows))
    for number in range(cut.adders, cut.count):
        units = range(cut.width)[cut.units(number)]
        assert sorted(rows[number]) == [row for row in range(cut.rows) if row % cut.width in units]
        assert units, "every adder of a chunk has something to do"
    ends = [cut.coded_after(number) for number in range(0, cut.count, cut.adders)]
    assert ends == sorted(ends)
    assert ends[-1] == cut.width


@given(cuts())
def test_every_pair_of_bands_is_in_exactly_one_piece(cut: Bands) -> None:
    earlier = [frozenset({a, b}) for a in range(cut.count) for b in range(cut.chunk(a).start)]
    pairs = earlier + [frozenset({a, b}) for a in range(cut.count) for b in cut.held_by(a)]
    assert len(pairs) == len(set(pairs)) == cut.count * (cut.count - 1) // 2
    assert all(len(pair) == 2 for pair in pairs)


@given(cuts())
def test_pieces_together_are_one_triangle_and_the_second_matrix(cut: Bands) -> None:
    total = sum(cut.size(number) for number in range(cut.count))
    assert total == cut.rows * (cut.rows + 1) // 2 + cut.rows * cut.outputs


@given(cuts(), st.integers(0, 2**32 - 1))
def test_pieces_and_their_transposes_rebuild_the_matrix(cut: Bands, seed: int) -> None:
    """Up to the chunk of each band, so nothing waits for a later one."""
    rng = np.random.default_rng(seed)
    half = rng.integers(0, 2**32, (cut.rows, cut.rows), dtype=np.uint32)
    matrix = np.triu(half) + np.triu(half, 1).T
    second = rng.integers(0, 2**32, (cut.rows, cut.outputs), dtype=np.uint32)
    held: list[dict[int, np.ndarray]] = []
    chunks = [cut.pieces(chunk, matrix[np.triu_indices(cut.rows)], second) for chunk in range(cut.chunks)]
    assert [len(chunk) for chunk in chunks] == [cut.chunk_size(chunk) for chunk in range(cut.chunks)]
    for number in range(cut.count):
        piece = chunks[number // cut.adders][cut.within(number)]
        assert piece.size == cut.size(number)
        blocks, rows = cut.unpack(number, piece)
        assert np.array_equal(rows, second[cut.rows_of(number)])
        held.append(dict(blocks))
    for number in range(cut.count):
        for other in cut.held_by(number):
            held[other][number] = held[number][other].T
    for number, blocks in enumerate(held):
        known = cut.order[: cut.after(number)]
        assert np.array_equal(cut.joined(number, blocks), matrix[np.ix_(cut.rows_of(number), known)])
    assert np.array_equal(cut.natural(matrix[np.ix_(cut.order, cut.order)]), matrix)


@pytest.mark.parametrize(("threshold", "chunks"), [(1, 1), (8, 1), (8, 4)])
def test_adders_of_the_papers_fleet_add_up_nearly_the_same(threshold: int, chunks: int) -> None:
    cut = Bands(rows=2000, adders=25, outputs=10, threshold=threshold, chunks=chunks)
    each = [sum(cut.size(number) for number in range(adder, cut.count, 25)) for adder in range(25)]
    assert max(each) <= 1.05 * min(each)


def test_a_band_that_lacks_a_block_is_not_joined() -> None:
    with pytest.raises(ValueError, match=r"lacks the blocks of \[1, 2\]"):
        Bands(6, 3, 0).joined(0, {0: np.zeros((2, 2))})


@pytest.mark.parametrize(("rows", "adders", "outputs"), [(3, 4, 1), (3, 0, 1), (3, 2, -1)])
def test_impossible_cuts_are_refused(rows: int, adders: int, outputs: int) -> None:
    with pytest.raises(ValueError, match="need 1 <= adders"):
        Bands(rows, adders, outputs)


@pytest.mark.parametrize(("threshold", "chunks"), [(1, 0), (2, 2)])
def test_chunks_without_units_are_refused(threshold: int, chunks: int) -> None:
    with pytest.raises(ValueError, match=f"{chunks} chunks of 3 bands need as many units"):
        Bands(6, 3, 0, threshold, chunks)


def test_two_chunks_by_hand() -> None:
    """Ten rows, K = 2: units {0, 5} to {4, 9}; two of them in the first chunk, three in the second, two bands each."""
    cut = Bands(rows=10, adders=2, outputs=1, threshold=2, chunks=2)
    assert (cut.width, cut.count) == (5, 4)
    assert [list(cut.chunk(number)) for number in range(4)] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert [cut.rows_of(number).tolist() for number in range(4)] == [[0, 1], [5, 6], [2, 7], [3, 4, 8, 9]]
    assert [cut.units(number) for number in (2, 3)] == [slice(2, 3), slice(3, 5)]
    assert [cut.coded_after(number) for number in range(4)] == [2, 2, 5, 5]
    assert [(cut.before(number), cut.after(number)) for number in range(4)] == [(0, 4), (0, 4), (4, 10), (4, 10)]
    assert [cut.held_by(number) for number in range(4)] == [(1,), (), (3,), ()]
    assert [cut.size(number) for number in range(4)] == [3 + 4 + 2, 3 + 2, 3 + 8 + 8 + 2, 10 + 16 + 4]
    assert [cut.chunk_size(chunk) for chunk in range(2)] == [14, 51]
    assert [cut.within(number) for number in range(4)] == [slice(0, 9), slice(9, 14), slice(0, 21), slice(21, 51)]


@pytest.mark.parametrize(
    ("width", "adders", "chunks", "ends"),
    [
        (12, 3, 4, [3, 6, 9, 12]),
        (40, 1, 4, [16, 28, 36, 40]),
        (41, 2, 3, [20, 34, 41]),
        (7, 2, 2, [4, 7]),
        (9, 4, 1, [9]),
    ],
)
def test_chunks_become_smaller(width: int, adders: int, chunks: int, ends: list[int]) -> None:
    """In proportion to 4, 3, 2, 1, rounded to multiples of the adders; one for each adder in every later chunk."""
    cut = Bands(rows=width, adders=adders, outputs=0, chunks=chunks)
    assert [cut.coded_after(chunk * adders) for chunk in range(chunks)] == ends


@pytest.mark.parametrize(
    ("adders", "held"),
    [
        (1, [()]),
        (2, [(1,), ()]),
        (3, [(1,), (2,), (0,)]),
        (4, [(1, 2), (2, 3), (3,), (0,)]),
        (5, [(1, 2), (2, 3), (3, 4), (4, 0), (0, 1)]),
    ],
)
def test_which_blocks_a_band_holds(adders: int, held: list[tuple[int, ...]]) -> None:
    """Those with the next bands, and of two opposite ones the first."""
    cut = Bands(rows=adders, adders=adders, outputs=0)
    assert [cut.held_by(number) for number in range(adders)] == held


def test_pieces_of_matrices_too_large_to_remember_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made anew for each piece, and the same; up to the limit they are remembered."""
    entries, second = np.arange(55), np.arange(10)[:, None]
    expected = [Bands(10, 2, 1, 2, 2).pieces(chunk, entries, second).tolist() for chunk in range(2)]
    for most in (54, 55):
        monkeypatch.setattr(bands, "_MOST_KEPT", most)
        cut = Bands(10, 2, 1, 2, 2)
        assert [cut.pieces(chunk, entries, second).tolist() for chunk in range(2)] == expected
