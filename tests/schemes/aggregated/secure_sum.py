"""A secure sum driven by hand, whose devices vanish when they are told to."""

from collections.abc import Mapping, Sequence

import numpy as np

from codedfl.cipher.seals import Ring
from codedfl.schemes import Message, Round, Work
from codedfl.schemes.aggregated.device import Masker
from codedfl.schemes.aggregated.server import MaskedSum, Threshold

NEVER = 4
"""The question at which a device that stays vanishes."""


def answered(masker: Masker, request: Message, arrays: Message, ring: Ring, work: Work | None = None) -> Message:
    if "envelopes" in request:
        return masker.mask(1, request, arrays, ring, work or Work())
    return masker.answer(1, request, work or Work())


class Sum:
    """A sum over some devices, each of which answers questions 0, 1, ... up to the one at which it vanishes."""

    def __init__(self, arrays: Sequence[Message], ring: Ring, t: int, numbers: Sequence[int] | None = None) -> None:
        self.numbers = list(range(len(arrays))) if numbers is None else list(numbers)
        self.arrays, self.ring, self.t = dict(zip(self.numbers, arrays, strict=True)), ring, t
        self.maskers = {number: Masker(number, Threshold(t)) for number in self.numbers}
        self.asked: list[Mapping[int, Message]] = []
        self.replies: list[dict[int, Message]] = []
        requests: dict[int, Message] = {number: {"extra": np.array([number])} for number in self.numbers}
        self.server = MaskedSum(1, requests, Threshold(t), ring, awaited=len(arrays), needed=0)

    def opened(self, vanishing: Mapping[int, int]) -> Mapping[str, np.ndarray] | None:
        """The sum; None if at some question fewer reply than will do."""
        question: Round | None = self.server.begin()
        while question is not None:
            self.asked.append(question.requests)
            number = len(self.replies)
            self.replies.append(
                {
                    device: answered(self.maskers[device], request, self.arrays[device], self.ring)
                    for device, request in question.requests.items()
                    if vanishing.get(device, NEVER) > number
                }
            )
            if len(self.replies[-1]) < question.least:
                return None
            question = self.server.follow_up(self.replies[-1])
        return self.server.opened(self.replies[-1], Work())


def words(ring: Ring, sizes: Mapping[str, tuple[int, ...]], count: int, seed: int) -> list[Message]:
    rng = np.random.default_rng(seed)
    return [
        {name: rng.integers(0, ring.modulus, shape, dtype=ring.dtype) for name, shape in sizes.items()}
        for _ in range(count)
    ]
