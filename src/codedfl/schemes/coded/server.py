"""The server of schemes whose devices hold coded combinations of padded data: it decodes and subtracts the pads.

Replies beyond those that decode check the others (``codedfl.codes.correction``). Rounds that got none are checked
together: the server keeps sum_e r_e Theta_e and sum_e r_e P_e over them, with random r_e of the field, and one round at
the model sum_e r_e Theta_e, whose replies check each other, has the product sum_e r_e P_e exactly if all P_e are right,
except with probability 1/p.
"""

import secrets
from abc import abstractmethod
from collections.abc import Mapping, Sequence, Set
from typing import final

import numpy as np
from jaxtyping import Float, UInt

from codedfl.codes.correction import ReedSolomon
from codedfl.errors import CipherError
from codedfl.schemes.contract import Restored, Round, Server, Stage
from codedfl.schemes.messages import Layout, Message, Work
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
        self._deferred: list[int] = []
        self._deferred_model = np.zeros(self._first.shape[::-1], self._field.dtype)
        self._deferred_product = self._deferred_model

    @property
    @abstractmethod
    def redundancy(self) -> ReedSolomon:
        """The code of the replies, by device."""

    @abstractmethod
    def product_layout(self) -> Layout:
        """Return the layout of a reply after the first epoch."""

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
    def check(self, question: Round, replies: Mapping[int, Message]) -> tuple[int, ...] | None:
        """Hold the replies against each other in every column; words that are no residues are wrong in any case."""
        name = "moments" if question.epoch == 1 else "product"
        read = {device: self._words(reply[name]) for device, reply in sorted(replies.items())}
        known = {device: words for device, words in read.items() if words is not None}
        found = tuple(device for device in read if device not in known)
        if len(known) <= self.redundancy.K:
            return found
        wrong = self.redundancy.wrong(list(known), np.stack(list(known.values())))
        return None if wrong is None else tuple(sorted((*found, *wrong)))

    def _words(self, sent: UInt[np.ndarray, "..."]) -> UInt[np.ndarray, "columns"] | None:
        """Return the residues of a reply in one row, None if it holds other words."""
        try:
            words = self._field.from_wire(sent).reshape(-1)
        except CipherError:
            return None
        return words if np.all(words < self._field.modulus) else None

    @final
    def defer(self, question: Round, replies: Mapping[int, Message]) -> Message | None:
        """Add a random multiple of the model and of the decoded product to those of the rounds to audit."""
        if question.epoch == 1:
            return None
        factor, model = 1 + secrets.randbelow(self._field.modulus - 1), next(iter(question.requests.values()))["model"]
        sums = self._deferred_model.copy(), self._deferred_product.copy()
        for total, part in zip(sums, (self._field.from_wire(model), self._product(replies)), strict=True):
            self._field.add_multiple(total, factor, part)
        self._deferred_model, self._deferred_product = sums
        self._deferred.append(question.epoch)
        return self._deferral()

    @final
    def audit(self, epoch: int) -> Round | None:
        """Ask for the product with the random combination of all deferred models, which is that of their products."""
        if len(self._workers) <= self.redundancy.K:  # its replies would not check each other
            self._forget()
        if not self._deferred:
            return None
        message, K = {"model": self._field.to_wire(self._deferred_model)}, self.redundancy.K
        return Round.same(epoch, sorted(self._workers), message, self.product_layout(), quorum=K + 1, needed=K)

    @final
    def audited(self, replies: Mapping[int, Message]) -> Sequence[int] | None:
        """Compare the products. A wrong one stays unnoticed with probability 1/p, over the server's random factors."""
        equal, epochs = np.array_equal(self._product(replies), self._deferred_product), self._deferred
        self._forget()
        return epochs if equal else None

    def _forget(self) -> None:
        self._deferred, self._deferred_model = [], np.zeros_like(self._deferred_model)
        self._deferred_product = self._deferred_model

    def _product(self, replies: Mapping[int, Message]) -> UInt[np.ndarray, "c d"]:
        return self.decoded("product", replies, Work())

    def _deferral(self) -> Message:
        sums = {"deferred_model": self._deferred_model, "deferred_product": self._deferred_product}
        return {"deferred": np.array(self._deferred, np.int64), **sums} if self._deferred else {}

    @final
    def losses_left(self, promised: int, lost: Set[int]) -> int:
        """Return the workers that replies can do without; other devices hold nothing that is needed."""
        return max(0, len(set(self._workers) - lost) - self.redundancy.K)

    @final
    def rewind(self, state: Message) -> None:
        """Go back to the sums and products of an earlier epoch."""
        self._first = state["first"]
        self._products.restore(state)
        self._forget()
        if "deferred" in state:
            self._deferred = state["deferred"].tolist()
            self._deferred_model, self._deferred_product = state["deferred_model"], state["deferred_product"]

    @final
    def state(self) -> Message:
        """Return the sums and products so far, the workers, the lost devices, and what is to be audited."""
        workers, gone = (np.array(each, np.int64) for each in (self._workers, sorted(self._gone)))
        state = {"first": self._first, "workers": workers, "gone": gone, **self._products.state()}
        return {**state, **self._deferral()}

    @final
    def restore(self, state: Message) -> Restored:
        """Restore the state; return the stages that gave replacement workers their data."""
        self.rewind(state)
        self._workers, self._gone = state["workers"].tolist(), set(state["gone"].tolist())
        return Restored(self.replacements())

    def replacements(self) -> Sequence[Stage]:
        """Return the stages that gave replacement workers their data; by default there are none."""
        return ()
