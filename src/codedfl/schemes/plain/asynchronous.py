"""Asynchronous federated learning: the server updates the model whenever a few replies are there, old or new.

A device that has replied is asked again at once, with the newest model; the others go on with the model they have. An
update takes the mean of the gradients in the buffer, each weighted by (1 + staleness)^-power. The buffer is that of
FedBuff (Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba, "Federated Learning with Buffered Asynchronous
Aggregation", AISTATS 2022), the weights are the polynomial ones of FedAsync (Xie, Koyejo, Gupta, "Asynchronous
Federated Optimization", 2019). Both let devices take several steps of their own; here a device replies with the
gradient of all its data, so that one loop serves all schemes.
"""

from collections.abc import Mapping, Sequence
from typing import final

import numpy as np
from jaxtyping import Float

from codedfl.scenario import SchemeOptions
from codedfl.schemes.contract import Public, Restored, Round, Server, check_at_most
from codedfl.schemes.messages import Message, Work
from codedfl.schemes.plain.conventional import PlainScheme
from codedfl.settings import setting

_BUFFER = 10
"""K of FedBuff."""


class AsynchronousOptions(SchemeOptions):
    """How many replies make an update (K), and how they are weighted."""

    buffer: int | None = setting(
        default=None,
        low=1,
        help="Number K of replies that make an update; 10 or two fifths of the devices, the fewer, if unset.",
    )
    power: float = setting(default=0.5, low=0, help="A reply that is tau updates old has the weight (1 + tau)^-power.")
    step: float = setting(default=1.0, above=0, help="Factor on every update.")

    def check_fleet(self, devices: int) -> None:
        """No more replies can be awaited than there are devices."""
        check_at_most(devices, "schemes.asynchronous.buffer", self.buffer)


@final
class AsynchronousServer(Server):
    """Keeps one question open at every device, and knows in which epoch it was asked."""

    def __init__(self, public: Public, *, buffer: int, power: float, step: float) -> None:
        self._public = public
        self._buffer, self._power, self._step = buffer, power, step
        self._asked: dict[int, int] = {}
        self._models: dict[int, Float[np.ndarray, "d c"]] = {}

    def ask(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Ask everyone who has no open question for the gradient at the newest model."""
        self._models[epoch] = model.astype(self._public.dtype)
        idle = [device for device in range(self._public.devices) if device not in self._asked]
        self._asked |= dict.fromkeys(idle, epoch)
        return self._question(epoch, idle)

    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Return the weighted mean of the buffer; every reply counts by the mean over its device's data points."""
        total = np.zeros((self._public.features, self._public.outputs))
        for device in sorted(replies):
            weight = (1.0 + epoch - self._asked.pop(device)) ** -self._power
            total += replies[device]["gradient"] * (weight / self._public.samples[device])
        open_epochs = set(self._asked.values())
        self._models = {asked: model for asked, model in self._models.items() if asked in open_epochs}
        return np.asarray(total * (self._step / len(replies)))

    def state(self) -> Message:
        """Return which device was asked in which epoch, and the models of those epochs, each once."""
        models = [self._models[epoch] for epoch in sorted(self._models)]
        shape = (len(models), self._public.features, self._public.outputs)
        return {
            "devices": np.array(sorted(self._asked), dtype=np.int64),
            "asked": np.array([self._asked[device] for device in sorted(self._asked)], dtype=np.int64),
            "models": np.array(models, dtype=self._public.dtype).reshape(shape),
        }

    def restore(self, state: Message) -> Restored:
        """Take back who is out with which model; return one round for each epoch, the earliest first."""
        self._asked = dict(zip(state["devices"].tolist(), state["asked"].tolist(), strict=True))
        epochs = sorted(set(self._asked.values()))
        self._models = dict(zip(epochs, state["models"], strict=True))
        out = {epoch: [device for device, asked in self._asked.items() if asked == epoch] for epoch in epochs}
        return Restored(rounds=[self._question(epoch, devices) for epoch, devices in out.items()])

    def _question(self, epoch: int, devices: Sequence[int]) -> Round:
        quorum = self._buffer if epoch > 1 else self._public.devices
        reply = {"gradient": self._public.model_layout}
        return Round.same(epoch, devices, {"model": self._models[epoch]}, reply, quorum=quorum, standing=epoch > 1)


@final
class Asynchronous(PlainScheme[AsynchronousOptions]):
    """Nobody is waited for: quick updates, in which fast devices count most and slow ones are late."""

    name = "asynchronous"
    options_type = AsynchronousOptions
    exact = False
    follows_timing = True
    averages = False  # replies to models of different age count differently

    @property
    def _buffer(self) -> int:
        given = self.options.buffer
        return max(1, min(_BUFFER, self.public.devices * 2 // 5)) if given is None else given

    def server(self) -> Server:
        """Prepare a server that never waits for everyone but in the first epoch."""
        options = self.options
        return AsynchronousServer(self.public, buffer=self._buffer, power=options.power, step=options.step)

    @property
    def survives_losses(self) -> int:
        """All but K: the run goes on, without the data of the lost."""
        return self.public.devices - self._buffer
