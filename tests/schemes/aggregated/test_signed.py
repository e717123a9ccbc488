"""Secure sums whose devices sign: keys of strangers, lists of survivors, and whose data a sum is about."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.cipher.seals import Z_32
from codedfl.engines.virtual import move
from codedfl.errors import CipherError
from codedfl.schemes import Message, Round, Work
from codedfl.schemes.aggregated.cohort import Cohort
from codedfl.schemes.aggregated.masker import Masker
from codedfl.schemes.aggregated.server import MaskedSum, Threshold
from codedfl.schemes.identity import Identity
from schemes.aggregated.secure_sum import answered, words
from tiny import conversed, is_one_sentence, plain_gradient, problem, scenario

DEVICES, T = 5, 4


def identity(index: int, known: Sequence[int] = range(DEVICES)) -> Identity:
    """Stands for real signatures, which only ``deploy`` has: a hash with the name of the signer."""

    def signed(device: int, message: bytes) -> bytes:
        return hashlib.sha512(b"key of %d" % device + message).digest()

    return Identity(
        lambda message: signed(index, message),
        lambda device, message, signature: device in known and signature == signed(device, message),
        frozenset(known),
    )


def cohort(**changes: Any) -> Cohort:
    return replace(Cohort(DEVICES, Threshold(T), signed=True, digest=b"a session"), **changes)


def made(known: Cohort, members: Sequence[int] = range(DEVICES)) -> dict[int, Masker]:
    maskers = {device: Masker(device, known) for device in members}
    for device, masker in maskers.items():
        masker.identify(identity(device))
    return maskers


def begun(members: Sequence[int] = range(DEVICES), t: int = T, **changes: Any) -> MaskedSum:
    return MaskedSum(1, {k: {} for k in members}, Threshold(t), Z_32, awaited=DEVICES, needed=0, signed=True, **changes)


@pytest.mark.parametrize("pair", list(combinations(range(DEVICES), 2)))
def test_a_sum_opens_whoever_vanishes(pair: tuple[int, int]) -> None:
    """Two of five vanish at any of up to five questions; of those that sent masked replies the sum is right."""
    arrays = words(Z_32, {"x": (3,)}, DEVICES, seed=0)
    for questions in product(range(5), repeat=2):
        gone = dict(zip(pair, questions, strict=True))
        maskers, server = made(cohort(threshold=Threshold(3))), begun(t=3)
        question: Round | None = server.begin()
        asked: list[Mapping[int, Message]] = []
        replies: dict[int, Message] = {}
        while question is not None:
            present = [device for device in question.requests if gone.get(device, 9) > len(asked)]
            asked.append(question.requests)
            replies = {d: answered(maskers[d], question.requests[d], arrays[d], Z_32) for d in present}
            assert len(replies) >= question.least
            assert question.expected is not None or len(asked) == 3
            question = server.follow_up(replies)
        summed = [device for device in range(DEVICES) if gone.get(device, 9) > 2]
        members = [device for device in range(DEVICES) if gone.get(device, 9) > 1]
        assert len(asked) == (5 if members != summed else 4), "an extra round only if somebody dropped out"
        expected = sum(arrays[device]["x"].astype(np.uint64) for device in summed) % 2**32
        assert np.array_equal(server.opened(replies, Work())["x"], expected)


X = {"x": np.zeros(2, np.uint32)}


def asked(maskers: Mapping[int, Masker], server: MaskedSum, rounds: int, gone: Sequence[int] = ()) -> Round:
    """The question after so many rounds; devices are ``gone`` in the last of them."""
    question: Round | None = server.begin()
    for number in range(rounds):
        assert question is not None
        left = [k for k in question.requests if number < rounds - 1 or k not in gone]
        question = server.follow_up({k: answered(maskers[k], question.requests[k], X, Z_32) for k in left})
    assert question is not None
    return question


def numbers(*devices: int) -> np.ndarray:
    return np.array(devices, np.int32)


def without_a_key() -> None:
    Masker(0, cohort()).answer(1, {"asked": np.array(5, np.int32)}, Work())


def unknown_keys() -> None:
    Masker(0, cohort()).identify(identity(0, known=(0, 1, 2, 4)))


def of_another_session() -> None:
    other = made(cohort(digest=b"the session before"))
    maskers = {**made(cohort()), 3: other[3]}
    question = asked(maskers, begun(), 1)
    maskers[0].answer(1, question.requests[0], Work())


def outside_the_cohort() -> None:
    maskers = made(cohort())
    request = dict(asked(maskers, begun(), 1).requests[0])
    maskers[0].answer(1, request | {"members": numbers(0, 1, 2, 3, 5)}, Work())


def a_member_twice() -> None:
    maskers = made(cohort())
    request = dict(asked(maskers, begun(), 1).requests[0])
    maskers[0].answer(1, request | {"members": numbers(0, 1, 2, 3, 3)}, Work())


def opening(maskers: Mapping[int, Masker], **changes: np.ndarray) -> None:
    """What device 0 is asked at the end of a sum in which device 4 dropped out."""
    server = begun()
    question = asked(maskers, server, 3, gone=(4,))
    signed = {k: maskers[k].answer(1, request, Work()) for k, request in question.requests.items()}
    last = server.follow_up(signed)
    assert last is not None
    maskers[0].answer(1, {**last.requests[0], **changes}, Work())


def few_signed() -> None:
    opening(made(cohort()), **{"@signers": numbers(0, 1, 2, 4)})


def another_list() -> None:
    opening(made(cohort()), survivors=numbers(0, 1, 2, 4), dropped=numbers(3))


def nobody_signed() -> None:
    maskers = made(cohort())
    asked(maskers, begun(), 3, gone=(4,))
    maskers[0].answer(1, {"survivors": numbers(0, 1, 2, 3), "dropped": numbers(4)}, Work())


def a_second_list() -> None:
    maskers = made(cohort())
    asked(maskers, begun(), 3)
    for survivors in ((0, 1, 2, 3), (0, 1, 2)):
        maskers[0].answer(1, {"listed": numbers(*survivors)}, Work())


def a_list_without_itself() -> None:
    maskers = made(cohort())
    asked(maskers, begun(), 3)
    maskers[0].answer(1, {"listed": numbers(1, 2, 3, 4)}, Work())


def a_list_of_all() -> None:
    maskers = made(cohort())
    asked(maskers, begun(), 3, gone=(4,))
    maskers[0].answer(1, {"listed": numbers(*range(DEVICES))}, Work())


SHARING = cohort(hands_over=True, least=DEVICES)


def sharing(held: Mapping[int, Sequence[int]], later: Sequence[int] | None = None) -> None:
    """Device 0 in a sum of devices that say whose data they hold; ``later`` it holds other data itself."""
    maskers, server = made(SHARING, list(held)), begun(list(held), holdings=DEVICES)
    opening = {k: maskers[k].answer(1, r, Work(), set(held[k])) for k, r in server.begin().requests.items()}
    question = server.follow_up(opening)
    assert question is not None
    replies = {k: maskers[k].answer(1, request, Work()) for k, request in question.requests.items()}
    question = server.follow_up(replies)
    assert question is not None
    maskers[0].mask(1, question.requests[0], X, Z_32, Work(), set(held[0] if later is None else later))


REFUSALS: dict[str, tuple[Callable[[], None], str]] = {
    "no key to sign with": (without_a_key, "has no key to sign with"),
    "a key that is not pinned": (unknown_keys, "knows no key of device 3"),
    "keys of another session": (of_another_session, "keys of device 3 are not signed"),
    "a device outside the cohort": (outside_the_cohort, "told of device 5, which is not in its cohort"),
    "a member twice": (a_member_twice, "no list of different devices"),
    "signatures of too few": (few_signed, "3 devices signed this list, fewer than the threshold of 4"),
    "signatures of another list": (another_list, "0 devices signed this list"),
    "no signatures": (nobody_signed, "'@signers' are no list"),
    "a second list": (a_second_list, "'survivors' of the sum of epoch 1 out of order"),
    "a list without itself": (a_list_without_itself, "without its own"),
    "a list of all": (a_list_of_all, "names nobody as dropped out"),
    "data of too few": (lambda: sharing({0: [0], 1: [1, 2]}), "data of 3 devices instead of 5"),
    "data of one twice": (lambda: sharing({0: [0, 1], 1: [1, 2, 3, 4]}), "or of one twice"),
    "other data than said": (lambda: sharing({0: [0], 1: [1, 2, 3, 4]}, later=[]), "holds other data than when"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_refused(case: str) -> None:
    act, said = REFUSALS[case]
    with pytest.raises(CipherError, match=said) as error:
        act()
    assert is_one_sentence(str(error.value))


def test_few_devices_with_the_data_of_all_have_a_sum() -> None:
    sharing({0: [0, 3], 1: [1, 2, 4]})


def test_devices_that_hand_over_sign_whose_data_they_hold() -> None:
    """Four devices of `sealed` under masks; two hand over, then one more, and the last replies without masks."""
    given = problem([9, 8, 7, 6])
    options = {"scheme": "secagg", "schemes.secagg.inner": "sealed", "fleet.devices": [{"count": 4, "mac_rate": 1e6}]}
    plain = schemes.create(scenario(options), given)
    nonces = tuple(bytes([k] * 16) for k in range(4))
    scheme: Any = plain.with_public(replace(plain.public, signed=True, nonces=nonces))
    server, devices = scheme.server(), [scheme.device(k, shard) for k, shard in enumerate(given.shards)]
    for index, device in enumerate(devices):
        device.identify(identity(index, range(4)))
    with pytest.raises(CipherError, match="without masks"):
        devices[0].reply(1, {}, Work())
    stages, counts = list(server.set_up()), []
    model = np.random.default_rng(0).standard_normal(given.shape)
    request = {"model": np.zeros(given.shape[::-1], scheme.inner.formats.ring.dtype)}
    for epoch in range(1, 5):
        for stage in stages:
            for transfer in stage.transfers:
                move(devices, transfer, lambda *_: None)
        active = server._inner._policy.active
        counts.append(len(active))
        found = conversed(server, devices, epoch, model)
        value, _ = plain_gradient(given.shards, model if epoch > 1 else np.zeros(given.shape))
        assert found is not None
        assert np.allclose(found, value, atol=1e-3)
        for device in active if 1 < epoch < 4 else ():
            with pytest.raises(CipherError, match="without masks"):
                devices[device].reply(epoch, request, Work())
        stage = server.after_epoch(epoch, {k: 9.0 * (k == max(active)) for k in active}, ())
        stages = [] if stage is None else [stage]
    assert counts == [4, 4, 2, 1]
    (last,) = active
    assert devices[last]._inner.covers(4) == {0, 1, 2, 3}
