"""The server of schemes whose devices hold coded combinations of padded data: it decodes and subtracts the pads."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import final

import numpy as np
from jaxtyping import Float, UInt

from codedfl.errors import CipherError
from codedfl.schemes.contract import Restored, Server, Stage
from codedfl.schemes.messages import Message, Work
from codedfl.schemes.public import Public
from codedfl.schemes.sealing import Formats, PointedProducts


class PaddedServer(Server):
    """Abstract: decodes the summed right-hand side in the first epoch, the product of model and data in every other."""

    def __init__(self, public: Public, formats: Formats, workers: Sequence[int]) -> None:
        """Take the devices that get requests after the first epoch as ``workers``."""
        self._public = public
        self._formats = formats
        self._field = formats.field
        self._samples = sum(public.samples)
        self._workers = list(workers)
        self._gone: set[int] = set()
        self._products = PointedProducts(formats.gram, public)
        self._first = np.zeros((public.features, public.outputs))
        self._pads: UInt[np.ndarray, "d d"] | None = None
        self._moment_pads = np.zeros(self._first.shape, self._field.dtype)

    @abstractmethod
    def decoded(self, name: str, replies: Mapping[int, Message], work: Work) -> UInt[np.ndarray, "..."]:
        """Decode the sum of padded right-hand sides (``moments``), or the ``product`` of model and padded data."""

    @final
    def part(self, name: str, device: int, replies: Mapping[int, Message]) -> UInt[np.ndarray, "..."]:
        """Return a device's residues; name the device if they are none."""
        try:
            return self._field.from_wire(replies[device][name])
        except CipherError as error:
            raise CipherError(f"The reply of device {device} cannot be used: {error}") from None

    @final
    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Decode, and subtract the pads."""
        if epoch == 1:
            total = self._field.subtract(self.decoded("moments", replies, work), self._moment_pads)
            self._first = self._formats.moments.decode_sum(total)
            return np.asarray(self._first / self._samples)
        product = self._products.take(self.opened(self._products.asked, replies, work))
        return np.asarray((self._first + product) / self._samples)

    @final
    def opened(
        self, model: UInt[np.ndarray, "c d"], replies: Mapping[int, Message], work: Work
    ) -> UInt[np.ndarray, "c d"]:
        """Return the product of a model with the sum of all data."""
        total = self.decoded("product", replies, work)
        if self._pads is None:  # nothing was padded
            return total
        work.macs += model.size * self._pads.shape[1]
        return self._field.subtract(total, self._field.product(model, self._pads))

    @final
    def state(self) -> Message:
        """Return the summed right-hand side, the last product and its point, the workers and the lost devices."""
        workers, gone = (np.array(each, np.int64) for each in (self._workers, sorted(self._gone)))
        return {"first": self._first, "workers": workers, "gone": gone, **self._products.state()}

    @final
    def restore(self, state: Message) -> Restored:
        """Restore the state; return the stages that gave replacement workers their data."""
        self._first = state["first"]
        self._products.restore(state)
        self._workers, self._gone = state["workers"].tolist(), set(state["gone"].tolist())
        return Restored(self.replacements())

    def replacements(self) -> Sequence[Stage]:
        """Return the stages that gave replacement workers their data; by default there are none."""
        return ()
