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
    """A device that lies in epochs for which ``tells`` is true, each time the same in an epoch; ``told`` counts lies.

    It changes all ``entries`` of a reply to random residues, or one by a ``step``.
    """

    device: int
    tells: Callable[[int], bool] = lambda epoch: epoch > 1
    entries: str = "all"
    step: int = 1
    told: int = 0

    def corrupt(self, devices: Sequence[Device], field: PrimeField) -> None:
        """Let one of the devices lie from now on."""
        inside = devices[self.device]
        honest = inside.reply

        def reply(epoch: int, request: Message, work: Work) -> Message:
            message = honest(epoch, request, work)
            if not self.tells(epoch):
                return message
            self.told += 1
            return {name: self._wrong(field, words, epoch) for name, words in message.items()}

        inside.reply = reply  # type: ignore[method-assign]

    def _wrong(self, field: PrimeField, words: Any, epoch: int) -> Any:
        residues, rng = field.from_wire(words).copy(), np.random.default_rng([self.device, epoch])
        if self.entries == "all":
            residues[...] = rng.integers(0, field.modulus, residues.shape)
        else:
            place = rng.integers(residues.size)
            residues.flat[place] = (int(residues.flat[place]) + self.step) % field.modulus
        return field.to_wire(residues)
