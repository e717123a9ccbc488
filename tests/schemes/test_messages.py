"""Messages: their layouts and sizes, those that are computed when somebody reads them, and the count of operations."""

import numpy as np
import pytest

from codedfl.schemes import Message, Work, layout, message_bits
from codedfl.schemes.messages import Deferred, Layout, payloads

SENT = {"model": np.zeros((3, 2), np.float32), "index": np.array(7, np.int16)}


class Later(Deferred):
    """Counts how often it is computed."""

    def __init__(self) -> None:
        self.promised: Layout = layout(SENT)
        self.computed = 0

    def compute(self) -> Message:
        self.computed += 1
        return SENT


def test_a_layout_says_format_and_shape_of_every_array() -> None:
    assert layout(SENT) == {"model": (np.dtype("float32"), (3, 2)), "index": (np.dtype("int16"), ())}


def test_a_payload_is_counted_in_bits_without_signatures() -> None:
    signed = SENT | {"@signature": np.zeros(64, np.uint8)}
    assert message_bits(SENT) == message_bits(signed) == 6 * 32 + 16
    assert message_bits({}) == 0
    assert payloads([signed, {}, {"a": np.zeros(5, np.uint8)}]) == [208, 0, 40]


def test_a_message_that_nobody_reads_is_not_computed() -> None:
    later = Later()
    assert (len(later), list(later), later.computed, later.is_computed) == (2, ["model", "index"], 0, False)


def test_what_is_promised_is_counted() -> None:
    assert payloads([Later(), SENT]) == [208, 208]
    assert message_bits(Later()) == 208


def test_a_message_is_computed_once() -> None:
    later = Later()
    assert later["model"] is SENT["model"]
    assert later["index"] is SENT["index"]
    assert (later.computed, later.is_computed) == (1, True)


def test_operations_add_up() -> None:
    """2 * 3 * 5 of a product, and 7 more; nothing was done beforehand."""
    work = Work()
    left, right = np.arange(6.0).reshape(2, 3), np.arange(15.0).reshape(3, 5)
    assert np.array_equal(work.product(left, right), left @ right)
    work.add(7)
    assert (work.macs, work.beforehand) == (37, 0)
    work.product(left, right)
    assert work.macs == 67


@pytest.mark.parametrize("counts", [(3, 0), (0, 4)])
def test_work_goes_on_from_what_was_counted(counts: tuple[int, int]) -> None:
    work = Work(*counts)
    work.add(1)
    assert (work.macs, work.beforehand) == (counts[0] + 1, counts[1])
