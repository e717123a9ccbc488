"""Sizes of bands, parts and parcels by hand, and coded blocks put together from parts, against whole numbers."""

import numpy as np
import pytest

from codedfl.cipher.masks.graph import MaskGraph
from codedfl.cipher.seals import FIELD_31, FIELD_61
from codedfl.network import DelayModel
from codedfl.scenario import Fleet, Links
from codedfl.schemes import Public
from codedfl.schemes.coded.placing.block_layout import BlockLayout


def laid_out(
    devices: int,
    features: int,
    threshold: int,
    *,
    outputs: int = 1,
    overlap: bool = True,
    known: bool = True,
    graph: MaskGraph | None = None,
) -> BlockLayout:
    delays = DelayModel.create(Fleet(devices=[{"count": devices, "mac_rate": 1e6}]), Links()) if known else None
    public = Public((2,) * devices, features, outputs, np.dtype("float32"), delays=delays)
    return BlockLayout(public, threshold, FIELD_31, graph, overlap=overlap)


@pytest.mark.parametrize(
    ("devices", "features", "threshold", "chunks"),
    [
        *((3, 24, 2, 4), (3, 22, 2, 3), (3, 12, 2, 2), (3, 11, 2, 2), (3, 10, 2, 1), (3, 4, 2, 1), (3, 60, 2, 4)),
        *((256, 128, 2, 2), (257, 128, 2, 1)),
    ],
)
def test_a_chunk_has_a_unit_for_every_adder_up_to_four_chunks_and_256_devices(
    devices: int, features: int, threshold: int, chunks: int
) -> None:
    layout = laid_out(devices, features, threshold)
    assert layout.bands.chunks == chunks
    assert layout.overlaps
    assert layout.width == layout.bands.width == -(-features // threshold)


@pytest.mark.parametrize(("overlap", "known"), [(False, True), (True, False), (False, False)])
def test_there_is_one_chunk_where_stages_follow_each_other(overlap: bool, known: bool) -> None:
    layout = laid_out(3, 24, 2, overlap=overlap, known=known)
    assert not layout.overlaps
    assert layout.bands.chunks == 1


@pytest.mark.parametrize(
    ("devices", "features", "adders"), [(5, 9, 5), (9, 5, 5), (63, 70, 63), (64, 70, 32), (64, 5, 5), (100, 70, 32)]
)
def test_all_devices_add_up_where_there_is_one_group_and_32_of_each_other_group(
    devices: int, features: int, adders: int
) -> None:
    layout = laid_out(devices, features, 1)
    assert layout.bands.adders == layout.groups.adders == adders
    assert (layout.groups.devices, layout.code.W, layout.code.K) == (devices, devices, 1)


def test_who_adds_up_and_who_owns_a_band() -> None:
    """70 devices: two groups of 35, five adders in each; the bands of 3 devices in four chunks."""
    two = laid_out(70, 5, 2)
    assert [list(two.added_by(device)) for device in (0, 1, 2, 9, 10, 11, 69)] == [[0], [0], [1], [4], [], [], []]
    assert [list(two.owned_by(device)) for device in (0, 1, 2, 8, 9, 10)] == [[0], [], [1], [4], [], []]
    assert [two.owner(number) for number in range(5)] == [0, 2, 4, 6, 8]
    chunks = laid_out(3, 24, 2)
    assert list(chunks.added_by(1)) == list(chunks.owned_by(1)) == [1, 4, 7, 10]
    assert [chunks.owner(number) for number in range(6)] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    ("graph", "neighbours", "first"),
    [(None, 0, set()), (MaskGraph(9, 4), 4, {2, 4, 5, 7}), (MaskGraph(9), 8, set(range(1, 9)))],
)
def test_who_shares_masks(graph: MaskGraph | None, neighbours: int, first: set[int]) -> None:
    layout = laid_out(9, 6, 2, graph=graph)
    assert layout.masked == (graph is not None)
    assert layout.neighbours == neighbours
    assert layout.sharing_masks(0) == first


@pytest.mark.parametrize(
    ("devices", "features", "threshold", "chunks"),
    [(3, 24, 2, 4), (2, 29, 2, 4), (3, 41, 3, 4), (4, 37, 1, 4), (4, 7, 3, 1), (5, 3, 2, 1), (2, 9, 2, 2)],
)
def test_parts_of_all_bands_are_the_coded_block(devices: int, features: int, threshold: int, chunks: int) -> None:
    """Of every worker, by whole numbers: sum_k g_wk S[:, block k], with zeros right of the last column."""
    layout = laid_out(devices, features, threshold)
    bands, prime, width = layout.bands, FIELD_31.modulus, layout.width
    assert bands.chunks == chunks
    rng = np.random.default_rng(features)
    half = rng.integers(0, prime, (features, features), dtype=np.uint32)
    matrix = np.triu(half) + np.triu(half, 1).T
    filled = np.zeros((features, threshold * width), object)
    filled[:, :features] = matrix.astype(object)
    spreads = []
    for number in range(bands.count):
        rows = matrix[np.ix_(bands.rows_of(number), bands.order[: bands.after(number)])]
        spreads.append(layout.spread(number, rows))
        assert len(spreads[-1]) == (1 if number < bands.adders else 2), "later chunks have coded columns, too"
    for worker in range(devices):
        weights = layout.code.generator[worker].astype(object)
        expected = sum(weights[k] * filled[:, k * width : (k + 1) * width] for k in range(threshold)) % prime
        coded = np.full((features, width), prime, np.uint32)  # no residue
        for number, spread in enumerate(spreads):
            part = layout.part(worker, spread)
            assert part.size == layout.part_size(number) == layout.sizes["part"][number]
            before = np.count_nonzero(coded == prime)
            layout.place(coded, number, part)
            assert before - np.count_nonzero(coded == prime) == part.size, "every entry is in one part"
        assert coded.tolist() == expected.tolist()


def test_operations_of_parts_by_hand() -> None:
    """Five units: chunks of two and of three, with four rows and six; each row meets all rows up to its chunk.

    For coded columns, each row of the second chunk meets the four of the first once more.
    """
    layout = laid_out(2, 10, 2)
    assert [layout.bands.height(number) for number in range(layout.bands.count)] == [2, 2, 2, 4]
    assert [layout.part_operations(number) for number in range(4)] == [2 * 4, 2 * 4, 2 * (10 + 4), 4 * (10 + 4)]
    assert layout.sizes["part"] == [2 * 2, 2 * 2, 2 * 5 + 4 * 1, 4 * 5 + 4 * 2]


def test_parcels_by_hand() -> None:
    """Heights 1, 2 and 2; each piece has the block with the next band. Words of 32 bits."""
    word, byte, number = np.dtype("uint32"), (np.dtype("int8"), ()), (np.dtype("int32"), ())
    layout = laid_out(3, 5, 2, outputs=2, graph=MaskGraph(3))
    assert layout.word_bits == 32
    assert layout.sizes == {
        "piece": [1 + 1 * 2 + 1 * 2, 3 + 2 * 2 + 2 * 2, 3 + 2 * 1 + 2 * 2],
        "part": [1 * 3, 2 * 3, 2 * 3],
    }
    named = {"kind": byte, "band": number}
    key, coded = {"kind": byte, "key": (np.dtype("uint8"), (32,))}, {"kind": byte, "coded": (word, (5, 3))}
    parts = [{**named, "part": (word, (size,))} for size in (3, 6)]
    assert layout.parcels(0) == [
        *(coded, key, *parts),
        {**named, "piece": (word, (5,))},
        *({**named, "block": (word, shape)} for shape in ((1, 1), (2, 1))),
    ]
    assert layout.parcels(2) == [
        *(coded, key, *parts),
        {**named, "piece": (word, (9,))},
        *({**named, "block": (word, shape)} for shape in ((1, 2), (2, 2))),
    ]
    assert laid_out(3, 5, 2, outputs=2).parcels(0) == [each for each in layout.parcels(0) if each != key]


def test_a_device_that_adds_nothing_up_receives_keys_and_coded_blocks_only() -> None:
    layout = laid_out(4, 3, 1)
    assert {name for found in layout.parcels(3) for name in found} == {"kind", "band", "coded", "part"}


def test_words_of_a_larger_field() -> None:
    public = Public((2,) * 3, 5, 1, np.dtype("float32"))
    assert BlockLayout(public, 2, FIELD_61, None, overlap=True).word_bits == 64
