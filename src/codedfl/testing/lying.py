"""Devices that lie, for tests and benchmarks: their replies are of the right shape, and wrong."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from codedfl.cipher.seals import PrimeField
from codedfl.schemes.contract import Device
from codedfl.schemes.messages import Message, Work


@final
@dataclass
class Liar:
    """How a device lies, and how often it has done so.

    ``tells`` says in which epochs. ``entries`` of each array are changed: all of them to random residues, or one by one
    """

    device: int
    tells: Callable[[int], bool] = lambda epoch: epoch > 1
    entries: str = "all"
    seed: int = 0
    told: int = 0

    def corrupt(self, devices: Sequence[Device], field: PrimeField) -> None:
        """Let one of the devices lie from now on."""
        inside, rng = devices[self.device], np.random.default_rng(self.seed)
        honest = inside.reply

        def reply(epoch: int, request: Message, work: Work) -> Message:
            message = honest(epoch, request, work)
            if not self.tells(epoch):
                return message
            self.told += 1
            return {name: wrong(field, array, rng, self.entries) for name, array in message.items()}

        inside.reply = reply  # type: ignore[method-assign]


def wrong(field: PrimeField, words: Any, rng: np.random.Generator, entries: str = "all") -> Any:
    """Return other residues, as they are sent: random ones, or with a single entry larger by one."""
    residues = field.from_wire(words)
    if entries == "all":
        lies = rng.integers(0, field.modulus, residues.shape).astype(field.dtype)
    else:
        lies = residues.copy()
        place = rng.integers(lies.size)
        lies.flat[place] = (int(lies.flat[place]) + 1) % field.modulus
    return field.to_wire(lies)
