"""The device under masks: which request gets what kind of reply, and the number format of a sum."""

from collections.abc import Set
from typing import Any

import numpy as np
import pytest

from codedfl.cipher.seals import Z_32, Z_64
from codedfl.errors import CipherError, TrainingError
from codedfl.schemes import Device, Message, Round, Work
from codedfl.schemes.aggregated.cohort import Cohort
from codedfl.schemes.aggregated.device import (
    LARGEST,
    MaskedDevice,
    form_message,
    masked_layouts,
    number_form,
    proper_form,
    proper_request,
    sum_format,
)
from codedfl.schemes.aggregated.noisy import ExactReplies
from codedfl.schemes.aggregated.server import MaskedSum, Threshold
from codedfl.schemes.messages import message_bits
from schemes.aggregated.test_noisy import release, sums
from tiny import is_one_sentence


def test_a_format_has_two_to_the_62_steps_on_the_bound() -> None:
    form = number_form(10, 3)
    assert (form.ring, form.data_bits, form.summands) == (Z_64, 10, 3)
    assert form.entry_bound == form.sum_bound == 2.0**52
    request = {"model": np.zeros(2), **form_message(10)}
    assert proper_form(request, 3) == form
    assert proper_form({"model": np.zeros(2)}, 3) is None
    assert message_bits(form_message(0)) == 16
    assert int(form_message(-300)["form"]) == -300


def test_entries_of_the_protocol_are_not_passed_on() -> None:
    request = {name: np.zeros(1) for name in ("model", "senders", "envelopes", "form", "extra")}
    assert list(proper_request(request)) == ["model", "extra"]


@pytest.mark.parametrize(
    ("bounds", "exponent"),
    [([3.0], 2), ([4.0], 3), ([1.0, 100.0, 3.0], 7), ([0.3], -1), ([LARGEST], 831), ([0.0], -830), ([1e-300], -830)],
)
def test_steps_are_the_finest_whose_sums_fit(bounds: list[float], exponent: int) -> None:
    """The largest bound is below 2^exponent, which is 2^62 steps; 1e250 is 2^830.48."""
    ring, form = sum_format(bounds, 5)
    assert ring is Z_64
    assert form == number_form(62 - exponent, 5)


@pytest.mark.parametrize("bound", [np.nextafter(LARGEST, np.inf), np.inf, np.nan])
def test_a_bound_beyond_all_formats_means_divergence(bound: float) -> None:
    with pytest.raises(TrainingError, match="diverged") as error:
        sum_format([bound], 5)
    assert is_one_sentence(str(error.value))


def test_residues_have_no_format() -> None:
    assert sum_format([Z_32], 5) == (Z_32, None)


def test_masked_replies_have_the_shapes_of_the_inner_ones() -> None:
    assert masked_layouts(None, Z_32) is None
    inner = {2: {"a": (np.dtype("float32"), (3, 1)), "b": (np.dtype("uint64"), (2,))}, 4: {}}
    word = np.dtype(np.uint32)
    assert masked_layouts(inner, Z_32) == {2: {"a": (word, (3, 1)), "b": (word, (2,))}, 4: {}}


class Known(Device):
    """A device that replies one array and holds the data of some devices."""

    def __init__(self, array: np.ndarray, held: Set[int] = frozenset()) -> None:
        self.array, self.held, self.asked = array, held, list[Message]()

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        self.asked.append(request)
        return {"x": self.array}

    def covers(self, epoch: int) -> Set[int]:
        return self.held


def opened(devices: list[MaskedDevice], told: Message) -> np.ndarray:
    """The sum of the devices' replies in Z_2^64."""
    n = len(devices)
    server = MaskedSum(1, dict.fromkeys(range(n), told), Threshold(), Z_64, awaited=n, needed=n)
    question: Round | None = server.begin()
    replies: dict[int, Message] = {}
    while question is not None:
        replies = {k: devices[k].reply(1, asked, Work()) for k, asked in question.requests.items()}
        question = server.follow_up(replies)
    (total,) = server.opened(replies, Work()).values()
    return total


def masked(inner: list[Known], kind: Any, shares: list[float], **changes: Any) -> list[MaskedDevice]:
    cohort = Cohort(len(inner), Threshold())
    return [MaskedDevice(k, inner[k], lambda *_: kind, share, cohort, **changes) for k, share in enumerate(shares)]


def test_each_entry_may_reach_the_device_s_share_of_the_bound() -> None:
    """Sums of up to 2^62 steps of 2^-60: 4, of which one device may have 3 and the other 1."""
    inner = [Known(np.array([3.0, -3.0])), Known(np.array([0.5, 1.0]))]
    found = opened(masked(inner, 4.0, [0.75, 0.25]), form_message(60))
    assert number_form(60, 2).decode_sum(found).tolist() == [3.5, -2.0]
    assert [list(request) for request in inner[0].asked] == [[]], "the number format is the wrapper's own"
    inner[1].array = np.array([0.5, np.nextafter(1.0, 2)])
    with pytest.raises(CipherError, match="beyond the agreed bound 1 "):
        opened(masked(inner, 4.0, [0.75, 0.25]), form_message(60))


def test_a_request_without_a_number_format_gets_the_reply_as_it_is() -> None:
    inner = [Known(np.array([1, 2**64 - 1], np.uint64)), Known(np.array([5, 3], np.uint64))]
    assert opened(masked(inner, 4.0, [0.5, 0.5]), {}).tolist() == [6, 2]


def test_noisy_replies_are_no_finer_asked_than_their_noise_hides() -> None:
    planned = release()
    shard, _, side = sums(planned)
    coarsest = 2.0**-40
    model = np.ones(side.shape)

    def sides() -> list[MaskedDevice]:
        noisy = ExactReplies(shard, planned)
        return masked([Known(np.zeros(1))] * 2, 1.0, [0.5, 0.5], noisy=noisy, coarsest=coarsest)

    single = ExactReplies(shard, planned).reply(model, 40, Work())["gradient"]
    assert np.array_equal(opened(sides(), {"model": model, **form_message(40)}), 2 * single)
    for told, said in (({}, "steps of inf"), (form_message(39), f"steps of {2.0**-39:.2g}")):
        with pytest.raises(CipherError, match=f"{said}, which shows more .* at most {coarsest:.2g}") as error:
            opened(sides(), {"model": model, **told})
        assert is_one_sentence(str(error.value))


@pytest.mark.parametrize(("held", "hands_over"), [({0, 1}, False), ({0}, True), (set(), True)])
def test_replies_without_masks_are_for_who_holds_the_data_of_all(held: set[int], hands_over: bool) -> None:
    cohort = Cohort(2, Threshold(), hands_over=hands_over)
    device = MaskedDevice(0, Known(np.ones(1), held), lambda *_: Z_64, 0.5, cohort)
    with pytest.raises(CipherError, match="Device 0 was asked for a reply without masks") as error:
        device.reply(1, {"model": np.zeros(1)}, Work())
    assert is_one_sentence(str(error.value))
    whole = MaskedDevice(0, Known(np.ones(1), {0, 1}), lambda *_: Z_64, 0.5, Cohort(2, Threshold(), hands_over=True))
    assert whole.reply(1, {"model": np.zeros(1)}, Work())["x"].tolist() == [1.0]


def test_the_last_request_says_which_sum_it_opens() -> None:
    (device, _) = masked([Known(np.ones(1))] * 2, 1.0, [0.5, 0.5])
    assert device.opens({"survivors": np.array([1, 4], np.int32), "dropped": np.zeros(0, np.int32)}) == [1, 4]
    assert device.opens({"listed": np.array([1], np.int32)}) is None
