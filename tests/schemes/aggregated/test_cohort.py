"""What a device knows of its cohort: digests and statements tell every fact apart, and requests name devices once."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from codedfl.cipher.masks.graph import MaskGraph
from codedfl.errors import CipherError
from codedfl.schemes import Public
from codedfl.schemes.aggregated.cohort import Cohort, numbers_in, octets_in
from codedfl.schemes.aggregated.server import Threshold

PUBLIC = Public((4, 5, 6), 7, 2, np.dtype("float64"), nonces=(b"ab", b"c", b"d"), signed=True)
COHORT = Cohort(5, Threshold(), digest=b"a session")
KEYS = np.arange(64, dtype=np.uint8).reshape(2, 32)


def test_facts_of_a_cohort_are_those_of_the_public_ones() -> None:
    found = Cohort.of(PUBLIC, Threshold(2), survives=1, hands_over=True, degree=8)
    assert (found.devices, found.least, found.hands_over, found.signed, found.degree) == (3, 2, True, True, 8)
    assert found.threshold == Threshold(2)
    assert found.agreement is PUBLIC.agreement


def test_every_fact_changes_the_digest_of_a_session() -> None:
    """Nonces are told apart where their bytes in a row are the same, and a degree from none."""
    changes: list[dict[str, Any]] = [
        {},
        {"samples": (5, 4, 6)},
        {"features": 8},
        {"outputs": 3},
        {"nonces": (b"a", b"bc", b"d")},
        {"nonces": (b"ab", b"c", b"e")},
    ]
    digests = [Cohort.of(replace(PUBLIC, **change), Threshold(2), survives=1).digest for change in changes]
    digests += [Cohort.of(PUBLIC, Threshold(3), survives=1).digest]
    digests += [Cohort.of(PUBLIC, Threshold(2), survives=1, degree=degree).digest for degree in (2, 4)]
    assert len(set(digests)) == len(digests)
    assert Cohort.of(PUBLIC, Threshold(2), survives=1).digest == digests[0]


def test_statements_tell_every_fact_apart_and_no_order() -> None:
    def keys(cohort: Cohort, epoch: int, device: int, own: np.ndarray, held: set[int]) -> bytes:
        return cohort.keys_statement(epoch, device, own, held)

    def survivors(cohort: Cohort, epoch: int, members: list[int], own: np.ndarray, left: list[int]) -> bytes:
        return cohort.survivors_statement(epoch, dict.fromkeys(members, own), left)

    other = replace(COHORT, digest=b"another")
    found = [
        keys(COHORT, 1, 2, KEYS, {2}),
        keys(other, 1, 2, KEYS, {2}),
        keys(COHORT, 2, 2, KEYS, {2}),
        keys(COHORT, 1, 3, KEYS, {2}),
        keys(COHORT, 1, 2, KEYS + 1, {2}),
        keys(COHORT, 1, 2, KEYS, {2, 3}),
        survivors(COHORT, 1, [1, 2], KEYS, [1]),
        survivors(other, 1, [1, 2], KEYS, [1]),
        survivors(COHORT, 2, [1, 2], KEYS, [1]),
        survivors(COHORT, 1, [1, 3], KEYS, [1]),
        survivors(COHORT, 1, [1, 2], KEYS + 1, [1]),
        survivors(COHORT, 1, [1, 2], KEYS, [2]),
        COHORT.absent_statement(1, [2, 3]),
        other.absent_statement(1, [2, 3]),
        COHORT.absent_statement(2, [2, 3]),
        COHORT.absent_statement(1, [2, 4]),
    ]
    assert len(set(found)) == len(found)
    assert survivors(COHORT, 1, [2, 1], KEYS, [2, 1]) == survivors(COHORT, 1, [1, 2], KEYS, [1, 2])
    assert COHORT.absent_statement(1, [3, 2]) == COHORT.absent_statement(1, [2, 3])
    # sets of small numbers iterate in an order that depends on how they were made
    assert keys(COHORT, 1, 2, KEYS, {0, 8}) == keys(COHORT, 1, 2, KEYS, {8, 0})


def test_circles_and_thresholds_are_those_of_the_graph_or_of_who_is_left() -> None:
    assert COHORT.circle(3) == COHORT.everyone == {0, 1, 2, 3, 4}
    assert COHORT.threshold_of([0, 1]) == 4
    assert replace(COHORT, hands_over=True).threshold_of([0, 1, 3]) == 2
    wide = Cohort(20, Threshold(), degree=8)
    assert wide.circle(0) == set(MaskGraph(20, 8).circle(0))
    assert wide.threshold_of(range(3)) == 6, "two thirds of a circle of nine, whoever replied"


@pytest.mark.parametrize(
    "array",
    [
        None,
        np.array(1, np.int32),
        np.array([[1, 2]], np.int32),
        np.array([1, 2], np.uint32),
        np.array([1.0, 2.0]),
        np.array([1, 2, 1], np.int32),
        np.array([-1, 2], np.int32),
    ],
)
def test_what_is_no_list_of_devices_is_refused(array: np.ndarray | None) -> None:
    with pytest.raises(CipherError, match=r"whose 'listed' are no list of different devices"):
        numbers_in({} if array is None else {"listed": array}, "listed")


@pytest.mark.parametrize("devices", [[], [0], [3, 0, 2]])
def test_lists_of_devices_keep_their_order(devices: list[int]) -> None:
    for dtype in (np.int32, np.int64):
        assert numbers_in({"listed": np.array(devices, dtype)}, "listed") == devices


@pytest.mark.parametrize("array", [None, np.zeros((2, 4), np.uint8), np.zeros(8, np.uint8), np.zeros((4, 2), np.int8)])
def test_bytes_of_another_shape_or_kind_are_refused(array: np.ndarray | None) -> None:
    with pytest.raises(CipherError, match=r"whose 'keys' are no bytes of shape \(4, 2\)"):
        octets_in({} if array is None else {"keys": array}, "keys", (4, 2))
    octets = np.arange(8, dtype=np.uint8).reshape(4, 2)
    assert octets_in({"keys": octets}, "keys", (4, 2)) is octets
