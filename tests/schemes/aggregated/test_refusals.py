"""The protocol of secure sums, driven by hand: what devices and server refuse."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from codedfl.cipher.seals import Z_32
from codedfl.errors import CipherError
from codedfl.schemes import Message, Work
from codedfl.schemes.aggregated.cohort import Cohort
from codedfl.schemes.aggregated.device import MaskedDevice
from codedfl.schemes.aggregated.masker import Masker
from codedfl.schemes.aggregated.server import MaskedSum, Threshold
from codedfl.schemes.plain.conventional import GradientDevice
from schemes.aggregated.secure_sum import Sum, words
from tiny import is_one_sentence, problem


def begun(devices: int = 4, t: int = 3) -> tuple[list[Masker], MaskedSum, Mapping[int, Message]]:
    """Devices that have sent their keys, and the question that passes them on."""
    maskers = [Masker(k, Cohort(devices, Threshold(t))) for k in range(devices)]
    server = MaskedSum(1, {k: {} for k in range(devices)}, Threshold(t), Z_32, awaited=devices, needed=0)
    keys = {k: maskers[k].answer(1, asked, Work()) for k, asked in server.begin().requests.items()}
    question = server.follow_up(keys)
    assert question is not None
    return maskers, server, question.requests


def shared() -> tuple[list[Masker], MaskedSum, Mapping[int, Message]]:
    maskers, server, question = begun()
    following = server.follow_up({k: maskers[k].answer(1, asked, Work()) for k, asked in question.items()})
    assert following is not None
    return maskers, server, following.requests


def masked() -> tuple[list[Masker], MaskedSum, Mapping[int, Message]]:
    maskers, server, question = shared()
    x = {"x": np.zeros(2, np.uint32)}
    following = server.follow_up({k: maskers[k].mask(1, asked, x, Z_32, Work()) for k, asked in question.items()})
    assert following is not None
    return maskers, server, following.requests


def numbers(*devices: int) -> np.ndarray:
    return np.array(devices, np.int32)


def without_own_key() -> None:
    maskers, _, question = begun()
    other = dict(question[0]) | {"keys": begun()[2][0]["keys"]}
    maskers[0].answer(1, other, Work())


def one_key_twice() -> None:
    maskers, _, question = begun()
    keys = question[0]["keys"].copy()
    keys[2] = keys[1]
    maskers[0].answer(1, dict(question[0]) | {"keys": keys}, Work())


def few_keys() -> None:
    maskers, _, question = begun()
    few = {"members": question[0]["members"][:2], "keys": question[0]["keys"][:2]}
    maskers[0].answer(1, few, Work())


def few_envelopes() -> None:
    maskers, _, question = shared()
    few = {name: question[0][name][:1] for name in ("senders", "envelopes")}
    maskers[0].mask(1, few, {"x": np.zeros(2, np.uint32)}, Z_32, Work())


def altered_envelope() -> None:
    maskers, _, question = shared()
    envelopes = question[0]["envelopes"].copy()
    envelopes[1, 30] ^= 1
    maskers[0].mask(1, dict(question[0]) | {"envelopes": envelopes}, {"x": np.zeros(2, np.uint32)}, Z_32, Work())


def swapped_envelopes() -> None:
    maskers, _, question = shared()
    swapped = question[0]["envelopes"][[1, 0, 2]]
    maskers[0].mask(1, dict(question[0]) | {"envelopes": swapped}, {"x": np.zeros(2, np.uint32)}, Z_32, Work())


def both_shares() -> None:
    masked()[0][0].answer(1, {"survivors": numbers(0, 1, 2, 3), "dropped": numbers(2)}, Work())


def asked_again() -> None:
    maskers, _, question = masked()
    maskers[0].answer(1, question[0], Work())
    maskers[0].answer(1, {"survivors": numbers(0, 1, 3), "dropped": numbers(2)}, Work())


def few_survivors() -> None:
    masked()[0][0].answer(1, {"survivors": numbers(0, 1), "dropped": numbers(2, 3)}, Work())


def one_left_out() -> None:
    masked()[0][0].answer(1, {"survivors": numbers(0, 1, 2), "dropped": numbers()}, Work())


def out_of_order() -> None:
    maskers, _, _ = shared()
    maskers[0].answer(1, {"survivors": numbers(0, 1, 2, 3), "dropped": numbers()}, Work())


def of_another_epoch() -> None:
    maskers, _, question = begun()
    maskers[0].answer(2, question[0], Work())


def in_clear() -> None:
    device = MaskedDevice(0, GradientDevice(problem([3]).shards[0]), lambda *_: Z_32, 1.0, Cohort(2, Threshold()))
    device.reply(2, {"model": np.zeros((2, 2))}, Work())


def wrong_share() -> None:
    """Of a dropped device's key, so that another key comes out than the one it had sent, or none."""
    one = Sum(words(Z_32, {"x": (2,)}, 4, seed=0), Z_32, 3)
    assert one.opened({2: 2}) is not None
    replies = {device: dict(reply) for device, reply in one.replies[3].items()}
    replies[0]["shares"] = replies[0]["shares"].copy()
    replies[0]["shares"][2, 0] = (int(replies[0]["shares"][2, 0]) + 1) % (2**31 - 1)
    one.server.opened(replies, Work())


REFUSALS: dict[str, tuple[Callable[[], None], str]] = {
    "both shares of one device": (both_shares, "both the mask and the key of device 2"),
    "both shares, one after the other": (asked_again, "out of order"),
    "too few survivors": (few_survivors, "told of 2 masked replies, fewer than the threshold of 3"),
    "a device left out": (one_left_out, "other devices than those of the sum"),
    "too few keys": (few_keys, "told of 2 keys"),
    "too few envelopes": (few_envelopes, "told of 2 envelopes"),
    "keys of others": (without_own_key, "without its own among them"),
    "one key twice": (one_key_twice, "a key twice"),
    "an altered envelope": (altered_envelope, "does not open"),
    "envelopes swapped": (swapped_envelopes, "does not open"),
    "out of order": (out_of_order, "round 'opening' of the sum of epoch 1 out of order"),
    "another epoch": (of_another_epoch, "out of order"),
    "in clear": (in_clear, "without masks"),
    "a wrong share": (wrong_share, "the shares|The shares"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_refused(case: str) -> None:
    act, said = REFUSALS[case]
    with pytest.raises(CipherError, match=said) as error:
        act()
    assert is_one_sentence(str(error.value))
