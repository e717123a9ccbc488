"""A tiny scheme whose server learns the sums over all data, in clear."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from codedfl.scenario import SchemeOptions
from codedfl.schemes import Device, Leakage, Message, Public, Round, Scheme, Server, Work
from codedfl.task import Shard


class SummedOptions(SchemeOptions):
    """None."""


class SendingDevice(Device):
    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        shard = self._shard
        return {"gram": work.product(shard.x.T, shard.x), "moments": work.product(shard.x.T, shard.y)}


class AddingServer(Server):
    def __init__(self, public: Public) -> None:
        self._public = public
        self._sums = np.zeros((public.features, public.features)), np.zeros((public.features, public.outputs))
        self._model = np.zeros((public.features, public.outputs))

    def ask(self, epoch: int, model: np.ndarray) -> Round:
        self._model = model
        message = {"model": model.astype(self._public.dtype)}
        return Round(epoch, dict.fromkeys(range(self._public.devices), message))

    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> np.ndarray:
        self._sums = tuple(
            np.sum([replies[device][key] for device in sorted(replies)], axis=0, dtype=np.float64)
            for key in ("gram", "moments")
        )
        return (self._sums[0] @ self._model - self._sums[1]) / sum(self._public.samples)

    def totals(self) -> Any:
        return self._sums


class Summed(Scheme[SummedOptions]):
    name = "summed"
    options_type = SummedOptions
    exact = True
    sums = True
    verdict_reason = "Everything is sent in clear."
    verdict = "not encrypted"

    def device(self, index: int, shard: Shard) -> Device:
        return SendingDevice(shard)

    def server(self) -> Server:
        return AddingServer(self.public)

    def leakage(self) -> Leakage:
        return Leakage("everything", "nothing", "everything")
