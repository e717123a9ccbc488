"""A secure sum driven by hand, whose devices vanish when they are told to."""

from collections.abc import Mapping, Sequence

import numpy as np

from codedfl.cipher.seals import Ring
from codedfl.schemes import Message, Round, Work
from codedfl.schemes.aggregated.cohort import Cohort
from codedfl.schemes.aggregated.masker import Masker
from codedfl.schemes.aggregated.server import MaskedSum, Threshold

NEVER = 4
"""The question at which a device that stays vanishes."""


def answered(
    masker: Masker, request: Message, arrays: Message, ring: Ring, work: Work | None = None, epoch: int = 1
) -> Message:
    if "envelopes" in request:
        return masker.mask(epoch, request, arrays, ring, work or Work())
    return masker.answer(epoch, request, work or Work())


class Sum:
    """A sum over some devices, each of which answers questions 0, 1, ... up to the one at which it vanishes."""

    def __init__(
        self,
        arrays: Sequence[Message],
        ring: Ring,
        t: int,
        numbers: Sequence[int] | None = None,
        epoch: int = 1,
    ) -> None:
        self.epoch = epoch
        self.numbers = list(range(len(arrays))) if numbers is None else list(numbers)
        self.arrays, self.ring, self.t = dict(zip(self.numbers, arrays, strict=True)), ring, t
        cohort = Cohort(max(self.numbers) + 1, Threshold(t))
        self.maskers = {number: Masker(number, cohort) for number in self.numbers}
        self.asked: list[Mapping[int, Message]] = []
        self.replies: list[dict[int, Message]] = []
        requests: dict[int, Message] = {number: {"extra": np.array([number])} for number in self.numbers}
        self.server = MaskedSum(epoch, requests, Threshold(t), ring, awaited=len(arrays), needed=0)

    def opened(self, vanishing: Mapping[int, int]) -> Mapping[str, np.ndarray] | None:
        """The sum; None if at some question fewer reply than will do."""
        question: Round | None = self.server.begin()
        while question is not None:
            self.asked.append(question.requests)
            number = len(self.replies)
            self.replies.append(
                {
                    device: answered(self.maskers[device], request, self.arrays[device], self.ring, epoch=self.epoch)
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
