"""The protocol of secure sums, driven by hand: exact whoever vanishes when, and words that look uniform."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from codedfl.cipher.masks import pairwise as masks
from codedfl.cipher.masks.pairwise import AGREEMENT_OPERATIONS
from codedfl.cipher.seals import RINGS, Z_32, Z_64, Ring
from codedfl.errors import CipherError
from codedfl.network import RoundCosts
from codedfl.schemes import Device, Message, Round, Work
from codedfl.schemes.aggregated import masker as masker_module
from codedfl.schemes.aggregated.cohort import Cohort
from codedfl.schemes.aggregated.costs import question_costs
from codedfl.schemes.aggregated.device import MaskedDevice, form_message, number_form
from codedfl.schemes.aggregated.masker import Masker
from codedfl.schemes.aggregated.server import MaskedSum, Threshold, request_digest
from schemes.aggregated.secure_sum import NEVER, Sum, answered, words


def exact(arrays: Sequence[Message], ring: Ring) -> dict[str, Any]:
    """The sum in Python's own integers."""
    return {name: sum(message[name].astype(object) for message in arrays) % ring.modulus for name in next(iter(arrays))}


def held(found: Mapping[str, np.ndarray], expected: Mapping[str, Any]) -> bool:
    same = all(np.array_equal(found[name].astype(object), expected[name]) for name in expected)
    return same and found.keys() == expected.keys()


def patterns(devices: int, losses: int) -> Iterator[dict[int, int]]:
    for count in range(losses + 1):
        for gone in combinations(range(devices), count):
            for when in product(range(NEVER), repeat=count):
                yield dict(zip(gone, when, strict=True))


def test_every_tolerated_way_to_vanish_gives_the_exact_sum() -> None:
    """Five devices, threshold 3: all 181 ways in which up to two vanish before any of their four answers.

    In the sum is who has sent its masked reply, whatever happens to it after that.
    """
    arrays = words(Z_32, {"gradient": (2, 3)}, 5, seed=1)
    found = 0
    for vanishing in patterns(5, 2):
        one = Sum(arrays, Z_32, 3)
        opened = one.opened(vanishing)
        assert opened is not None
        inside = [device for device in range(5) if vanishing.get(device, NEVER) > 2]
        assert one.server.survivors == tuple(inside)
        assert held(opened, exact([arrays[device] for device in inside], Z_32))
        found += 1
    assert found == 1 + 5 * 4 + 10 * 16


@pytest.mark.parametrize("question", range(4))
def test_one_loss_more_is_noticed_at_the_question_it_happens(question: int) -> None:
    one = Sum(words(Z_32, {"x": (2,)}, 5, seed=1), Z_32, 3)
    assert one.opened({0: question, 2: question, 3: question}) is None
    assert len(one.replies) == question + 1


@given(st.data())
@settings(max_examples=25)
def test_sums_are_exact_in_every_ring_whoever_vanishes(data: st.DataObject) -> None:
    """Any numbers of devices, of arrays and of losses; where too few are left, nothing opens."""
    ring = data.draw(st.sampled_from(list(RINGS.values())))
    numbers = data.draw(st.lists(st.integers(0, 40), min_size=2, max_size=7, unique=True))
    n = len(numbers)
    t = data.draw(st.integers(n // 2 + 1, n))
    shapes = st.lists(st.integers(1, 4), min_size=1, max_size=2).map(tuple)
    sizes = data.draw(st.dictionaries(st.sampled_from(["a", "b", "product"]), shapes, min_size=1))
    vanishing = data.draw(st.dictionaries(st.sampled_from(numbers), st.integers(0, 3), max_size=n))
    arrays = words(ring, sizes, n, data.draw(st.integers(0, 99)))
    one = Sum(arrays, ring, t, numbers)
    opened = one.opened(vanishing)
    left = [sum(vanishing.get(number, NEVER) > question for number in numbers) for question in range(4)]
    if min(left) < t:
        assert opened is None
        return
    inside = [k for k, number in enumerate(numbers) if vanishing.get(number, NEVER) > 2]
    assert opened is not None
    assert held(opened, exact([arrays[k] for k in inside], ring))


def test_any_t_answers_to_the_last_question_open_the_sum() -> None:
    one = Sum(words(Z_64, {"x": (3,)}, 5, seed=3), Z_64, 3)
    whole = one.opened({})
    assert whole is not None
    for helpers in combinations(range(5), 3):
        again = one.server.opened({device: one.replies[3][device] for device in helpers}, Work())
        assert np.array_equal(again["x"], whole["x"])
    with pytest.raises(CipherError, match="2 shares say nothing"):
        one.server.opened({device: one.replies[3][device] for device in (0, 4)}, Work())


def test_replies_have_the_layouts_of_their_rounds_and_masked_ones_a_deadline() -> None:
    """Two keys of 32 bytes; envelopes of 100 for both others; replies in words of the ring; nine words a share."""
    arrays, octet, word = words(Z_32, {"x": (4,)}, 3, seed=5), np.dtype(np.uint8), np.dtype(np.uint32)
    one = Sum(arrays, Z_32, 2)
    inner = {"x": (word, (4,))}
    proper = dict.fromkeys(range(3), inner)
    requests: dict[int, Message] = {k: {} for k in range(3)}
    one.server = MaskedSum(1, requests, Threshold(2), Z_32, awaited=3, needed=2, proper=proper, deadline=7.5)
    question: Round | None = one.server.begin()
    found = []
    while question is not None:
        found.append((question.expected, question.deadline))
        replies = {k: answered(one.maskers[k], asked, arrays[k], Z_32) for k, asked in question.requests.items()}
        assert question.expected == {
            k: {name: (array.dtype, array.shape) for name, array in reply.items()} for k, reply in replies.items()
        }
        question = one.server.follow_up(replies)
    layouts = {"keys": (octet, (2, 32))}, {"envelopes": (octet, (2, 100))}, inner, {"shares": (word, (3, 9))}
    expected = [dict.fromkeys(range(3), layout) for layout in layouts]
    assert found == list(zip(expected, (None, None, 7.5, None), strict=True))


@pytest.mark.parametrize("once", [False, True])
def test_after_a_masked_reply_only_a_later_epoch_has_another_sum(once: bool) -> None:
    """And none has where a device takes part once: the difference of two sums reveals replies."""
    one = Sum(words(Z_32, {"x": (2,)}, 3, seed=1), Z_32, 2, epoch=3)
    one.maskers = {number: Masker(number, Cohort(3, Threshold(2)), once=once) for number in range(3)}
    assert one.opened({}) is not None
    masker, begin = one.maskers[1], {"asked": np.array(3, np.int32)}
    for epoch in (2, 3, 4) if once else (2, 3):
        with pytest.raises(CipherError, match=f"in epoch 3 and was asked for a sum in epoch {epoch}: it takes part"):
            masker.answer(epoch, begin, Work())
    assert once or masker.answer(4, begin, Work()).keys() == {"keys"}


def test_a_digest_is_of_names_types_shapes_and_contents() -> None:
    """Not of the order of names, nor of what belongs to the protocol."""
    zeros = np.zeros((2, 3))
    others: list[Message] = [{"model": zeros.T}, {"model": zeros.astype(np.int64)}, {"step": zeros}]
    others += [{"model": zeros + 1}, {"model": zeros, "step": zeros[0]}, {"model": zeros, "step": zeros[:, 0]}, {}]
    digests = {request_digest(request).tobytes() for request in ({"model": zeros}, *others)}
    assert len(digests) == 8
    first = request_digest({"step": zeros[0], "model": zeros, "senders": zeros, "envelopes": zeros})
    assert np.array_equal(first, request_digest({"model": zeros, "step": zeros[0]}))


@pytest.fixture
def fixed_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random bytes that are all different and the same in every run of the test."""
    count = iter(range(10**9))

    def drawn(size: int) -> bytes:
        return hashlib.shake_256(f"drawn {next(count)}".encode()).digest(size)

    monkeypatch.setattr(masks.system, "token_bytes", drawn)
    monkeypatch.setattr(masker_module, "fresh_seed", lambda: drawn(32))


FALSE_ALARM = 1e-6
"""How often uniform words would fail a chi-square test; seeds are fixed, so that it fails never or always."""


def chance(found: np.ndarray) -> float:
    """The p-value of chi-square over the 256 values of the top byte."""
    cells = np.bincount((found >> np.uint32(24)).astype(np.int64), minlength=256)
    expected = found.size / 256
    return float(chi2.sf(np.sum((cells - expected) ** 2 / expected), 255))


@pytest.mark.usefixtures("fixed_source")
def test_masked_replies_look_uniform_and_unrelated() -> None:
    """All devices reply with zeros; a single reply, and the sums of fewer replies than all, are uniform words.

    Correlations of n uniform pairs have deviation 1/sqrt(n); five of them are passed by one in 1.7 million.
    """
    nothing = {"x": np.zeros(5000, np.uint32)}
    one = Sum([nothing] * 4, Z_32, 3)
    opened = one.opened({})
    assert opened is not None
    assert not opened["x"].any()
    replies = [one.replies[2][device]["x"] for device in range(4)]
    partial = [sum(replies[k] for k in group) for size in (1, 2, 3) for group in combinations(range(4), size)]
    everyone = sum(replies)
    for found in (*partial, everyone):
        assert chance(np.asarray(found)) > FALSE_ALARM, "the masks of their own still hide the sum of all"
    for left, right in combinations(replies, 2):
        assert abs(np.corrcoef(left, right)[0, 1]) < 5 / np.sqrt(5000)


def test_keys_shares_and_masks_are_fresh_in_every_sum() -> None:
    arrays = words(Z_32, {"x": (4,)}, 3, seed=0)
    one, other = (Sum(arrays, Z_32, 2, epoch=epoch) for epoch in (1, 2))
    assert one.opened({}) is not None
    other.maskers = one.maskers
    assert other.opened({}) is not None
    for question, name in ((0, "keys"), (1, "envelopes"), (2, "x"), (3, "shares")):
        for device in range(3):
            first, second = (entry.replies[question][device][name] for entry in (one, other))
            assert not np.array_equal(first, second)


def test_thresholds() -> None:
    """Two thirds rounded up, and always more than half; what is given counts, for as many as are asked."""
    assert [Threshold().of(n) for n in (1, 2, 3, 4, 5, 6, 7, 25, 120)] == [1, 2, 2, 3, 4, 4, 5, 17, 80]
    for n in range(1, 60):
        assert n // 2 < Threshold().of(n) <= n
        assert 3 * Threshold().of(n) >= 2 * n
    assert [Threshold(5).of(n) for n in (2, 5, 9)] == [2, 5, 5]


def test_quorums_of_the_questions() -> None:
    """All, then as many masked replies as are awaited, then t; where all are needed, all to the end."""
    arrays = words(Z_32, {"x": (1,)}, 5, seed=0)
    for awaited, needed, quorums, least in ((4, 0, [5, 5, 4, 3], [3] * 4), (5, 5, [5, 5, 5, 5], [5, 5, 5, 3])):
        one = Sum(arrays, Z_32, 3)
        one.server = MaskedSum(1, {k: {} for k in range(5)}, Threshold(3), Z_32, awaited=awaited, needed=needed)
        question: Round | None = one.server.begin()
        for wanted, enough in zip(quorums, least, strict=True):
            assert question is not None
            assert (question.quorum, question.least) == (wanted, enough)
            replies = {d: answered(one.maskers[d], asked, arrays[d], Z_32) for d, asked in question.requests.items()}
            question = one.server.follow_up(replies)
        assert question is None


def test_work_is_that_of_a_formula() -> None:
    """n = 4, t = 3, 10 words: two keys; n t shares of 2 x 9 words, three agreements and envelopes; three envelopes,
    three agreements and four masks of 10 words; nothing."""
    maskers = [Masker(k, Cohort(4, Threshold(3))) for k in range(4)]
    server = MaskedSum(1, {k: {} for k in range(4)}, Threshold(3), Z_32, awaited=4, needed=0)
    question: Round | None = server.begin()
    agreement, counted = AGREEMENT_OPERATIONS, []
    replies: dict[int, Message] = {}
    while question is not None:
        works = {k: Work() for k in question.requests}
        replies = {
            k: answered(maskers[k], asked, {"x": np.zeros(10, np.uint32)}, Z_32, works[k])
            for k, asked in question.requests.items()
        }
        counted.append({work.macs for work in works.values()})
        question = server.follow_up(replies)
    shares = 3 * 4 * 2 * 9
    assert counted == [
        {2 * agreement},
        {shares + 3 * (agreement + 18)},
        {3 * 18 + 3 * agreement + 4 * 10},
        {0},
    ]
    opening = Work()
    server.opened(replies, opening)
    assert opening.macs == 3 * 4 * 9 + 4 * 10 + 4 * 10


@pytest.mark.parametrize("ring", [Z_32, Z_64])
@pytest.mark.parametrize("devices", [2, 5])
def test_predicted_costs_are_those_of_a_sum(devices: int, ring: Ring) -> None:
    """The question proper has 64 bits, as that of the sum here."""
    arrays = words(ring, {"product": (2, 7)}, devices, seed=0)
    one = Sum(arrays, ring, Threshold().of(devices))
    assert one.opened({}) is not None
    each = np.ones(devices, np.int64)
    alone = RoundCosts(np.arange(devices), 64 * each, 100 * each, 448 * each, quorum=devices, server_macs=7)
    found = question_costs(devices, Threshold(), alone, arrays[0])
    for costs, asked, replies in zip(found, one.asked, one.replies, strict=True):
        for device in range(devices):
            down, up = (sum(8 * a.nbytes for a in message[device].values()) for message in (asked, replies))
            assert (costs.down_bits[device], costs.up_bits[device]) == (down, up)
    assert found[2].macs[0] > 100
    opening = Threshold().of(devices) * devices * 9 + 2 * devices * 14  # shares; replies and masks
    assert [costs.server_macs for costs in found] == [0, 0, 0, 7 + opening]


class Fixed(Device):
    """A device of an inner scheme that gives one and the same reply."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        return {"x": self._array}

    def export(self, grant: Message, work: Work) -> Message:
        raise NotImplementedError

    def absorb(self, parcel: Message, work: Work) -> None:
        raise NotImplementedError


def opened_by_devices(arrays: Sequence[np.ndarray], kind: Ring | float, told: Message, ring: Ring) -> np.ndarray:
    """The sum of whole devices' replies, where the server tells them this beside the question."""
    threshold = Threshold(2)
    cohort = Cohort(len(arrays), threshold)
    devices = [MaskedDevice(k, Fixed(array), lambda *_: kind, 0.5, cohort) for k, array in enumerate(arrays)]
    server = MaskedSum(1, dict.fromkeys(range(len(arrays)), told), threshold, ring, awaited=len(arrays), needed=0)
    question: Round | None = server.begin()
    replies: dict[int, Message] = {}
    while question is not None:
        replies = {k: devices[k].reply(1, asked, Work()) for k, asked in question.requests.items()}
        question = server.follow_up(replies)
    return server.opened(replies, Work())["x"]


def test_what_a_device_replies_is_for_its_scheme_to_say_and_not_for_the_server() -> None:
    """Residues stay what they are if the server tells a format of numbers."""
    residues = [np.array([1, 2**32 - 1], np.uint32), np.array([5, 7], np.uint32)]
    for told in ({}, form_message(10)):
        assert opened_by_devices(residues, Z_32, told, Z_32).tolist() == [6, 6]
    fractions = [np.array([0.5, -1.25]), np.array([0.25, 1.0])]
    found = opened_by_devices(fractions, 4.0, form_message(10), Z_64)
    assert number_form(10, 2).decode_sum(found).tolist() == [0.75, -0.25]


def test_numbers_have_room_for_their_sum() -> None:
    """Sums of up to 2^62 steps decode exactly, and what is beyond cannot be told from an error and is refused."""
    form = number_form(10, 25)
    assert form.data_step == 2.0**-10
    largest = np.array([2.0**52, -(2.0**52)])
    assert np.array_equal(form.decode_sum(form.encode(largest)), largest)
    with pytest.raises(CipherError, match="larger than the bounds allow"):
        form.decode_sum(Z_64.add(form.encode(largest), form.encode(largest)))
