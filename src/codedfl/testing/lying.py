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


def lie_in_parcels(device: Device, name: str, field: PrimeField) -> None:
    """Let the first parcel of a device with an array of this name be wrong by one in its first number."""
    honest, lies = device.export, 0

    def export(grant: Message, work: Work) -> Message:
        nonlocal lies
        parcel = honest(grant, work)
        if name not in parcel or lies:
            return parcel
        lies += 1
        residues = field.from_wire(parcel[name]).copy()
        residues.flat[0] = (int(residues.flat[0]) + 1) % field.modulus
        return {**parcel, name: field.to_wire(residues)}

    device.export = export  # type: ignore[method-assign]
