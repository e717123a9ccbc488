"""Asynchronous federated learning: the server updates the model as soon as a few replies have arrived.

A device that has replied gets the newest model at once; the others continue with the model they have. An update is the
mean of the gradients in the buffer, each weighted by (1 + staleness)^-power. The buffer is that of
FedBuff (Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba, "Federated Learning with Buffered Asynchronous
Aggregation", AISTATS 2022), the weights are the polynomial ones of FedAsync (Xie, Koyejo, Gupta, "Asynchronous
Federated Optimization", 2019). In both, devices take several local steps; here a device replies the gradient of all its
data, so that one training loop serves all schemes.
"""

from collections.abc import Mapping, Sequence
from typing import final

import numpy as np
from jaxtyping import Float

from codedfl.scenario import InexactOptions
from codedfl.schemes.contract import CountedCosts, Device, Restored, Round, Server, check_at_most
from codedfl.schemes.messages import Message, Work
from codedfl.schemes.plain.conventional import PlainScheme, pooled_devices
from codedfl.schemes.plain.counting import counted_rounds
from codedfl.schemes.public import Public
from codedfl.settings import setting
from codedfl.task import Problem, Shard

_BUFFER = 10
"""K of FedBuff."""


class AsynchronousOptions(InexactOptions):
    """How many replies make an update (K), and their weights.

    >>> AsynchronousOptions(buffer=5).power
    0.5
    """

    buffer: int | None = setting(
        default=None,
        low=1,
        help="Number K of replies that make an update; 10 or two fifths of the devices, the fewer, if unset.",
    )
    power: float = setting(default=0.5, low=0, help="A reply that is tau updates old has the weight (1 + tau)^-power.")
    step: float = setting(default=1.0, above=0, help="Factor on every update.")

    def check_fleet(self, devices: int) -> None:
        """Refuse a buffer above the number of devices."""
        check_at_most(devices, "schemes.asynchronous.buffer", self.buffer)


@final
class AsynchronousServer(Server):
    """Keeps one request open at every device, and knows the epoch of each."""

    def __init__(self, public: Public, *, buffer: int, power: float, step: float) -> None:
        self._public = public
        self._buffer, self._power, self._step = buffer, power, step
        self._asked: dict[int, int] = {}
        self._models: dict[int, Float[np.ndarray, "d c"]] = {}

    def ask(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Request the gradient at the newest model from every device without an open request."""
        self._models[epoch] = model.astype(self._public.dtype)
        idle = [device for device in range(self._public.devices) if device not in self._asked]
        self._asked |= dict.fromkeys(idle, epoch)
        return self._round(epoch, idle)

    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Return the weighted mean of the replies, each divided by its device's number of data points."""
        total = np.zeros((self._public.features, self._public.outputs))
        for device in sorted(replies):
            weight = (1.0 + epoch - self._asked.pop(device)) ** -self._power
            total += replies[device]["gradient"] * (weight / self._public.samples[device])
        open_epochs = set(self._asked.values())
        self._models = {asked: model for asked, model in self._models.items() if asked in open_epochs}
        return np.asarray(total * (self._step / len(replies)))

    def state(self) -> Message:
        """Return the epoch of every open request, and the models of these epochs."""
        models = [self._models[epoch] for epoch in sorted(self._models)]
        shape = (len(models), self._public.features, self._public.outputs)
        return {
            "devices": np.array(sorted(self._asked), dtype=np.int64),
            "asked": np.array([self._asked[device] for device in sorted(self._asked)], dtype=np.int64),
            "models": np.array(models, dtype=self._public.dtype).reshape(shape),
        }

    def restore(self, state: Message) -> Restored:
        """Restore the open requests; return one round for each epoch, the earliest first."""
        self._asked = dict(zip(state["devices"].tolist(), state["asked"].tolist(), strict=True))
        epochs = sorted(set(self._asked.values()))
        self._models = dict(zip(epochs, state["models"], strict=True))
        pending = {epoch: [device for device, asked in self._asked.items() if asked == epoch] for epoch in epochs}
        return Restored(rounds=[self._round(epoch, devices) for epoch, devices in pending.items()])

    def _round(self, epoch: int, devices: Sequence[int]) -> Round:
        quorum = self._buffer if epoch > 1 else self._public.devices
        reply = {"gradient": self._public.model_layout}
        return Round.same(epoch, devices, {"model": self._models[epoch]}, reply, quorum=quorum, standing=epoch > 1)


@final
class Asynchronous(PlainScheme[AsynchronousOptions]):
    """Updates without waiting for all devices: fast devices reply more often, slow devices reply to old models."""

    name = "asynchronous"
    options_type = AsynchronousOptions
    exact = False
    follows_timing = True
    averages = False  # the weight of a reply depends on the age of its model

    @property
    def _buffer(self) -> int:
        given = self.options.buffer
        return max(1, min(_BUFFER, self.public.devices * 2 // 5)) if given is None else given

    def simulated(self, problem: Problem, epochs: int) -> Sequence[Device]:
        """Prepare devices whose replies are computed when they arrive."""
        return pooled_devices(self, problem, summed=False)

    def counted(self, shards: Sequence[Shard], epochs: int) -> CountedCosts:
        """Count one device for each shard."""
        return counted_rounds(self, shards, epochs)

    def server(self) -> Server:
        """Prepare a server that awaits all devices in the first epoch only."""
        options = self.options
        return AsynchronousServer(self.public, buffer=self._buffer, power=options.power, step=options.step)

    @property
    def survives_losses(self) -> int:
        """All but K; the run continues without the data of lost devices."""
        return self.public.devices - self._buffer
