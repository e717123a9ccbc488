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

from codedfl.codes.gradient_code import GradientCode
from codedfl.codes.mds import MdsCode
from codedfl.errors import CipherError
from codedfl.schemes.contract import Restored, Round, Server, Stage
from codedfl.schemes.messages import Layout, Message, Work
from codedfl.schemes.public import Public
from codedfl.schemes.sealing import Formats, PointedProducts


class PaddedServer(Server):
    """Abstract: decodes the summed right-hand side in the first epoch, the product of model and data in every other."""

    def __init__(
        self, public: Public, formats: Formats, workers: Sequence[int], code: MdsCode | GradientCode, width: int
    ) -> None:
        """Take the devices that get requests after the first epoch, the code of their replies, and its columns."""
        self._public = public
        self._formats = formats
        self._field = formats.field
        self._samples = sum(public.samples)
        self._workers = list(workers)
        self._gone: set[int] = set()
        self._code = code
        self._needed = code.K
        self._product_layout: Layout = {"product": self._field.wire_layout(public.outputs, width)}
        self._products = PointedProducts(formats.gram, public)
        self._first = np.zeros((public.features, public.outputs))
        self._pads: UInt[np.ndarray, "d d"] | None = None
        self._moment_pads = np.zeros(self._first.shape, self._field.dtype)
        self._deferred: list[int] = []
        self._deferred_model = np.zeros(self._first.shape[::-1], self._field.dtype)
        self._deferred_product = self._deferred_model

    @abstractmethod
    def summed_moments(self, replies: Mapping[int, Message], work: Work) -> UInt[np.ndarray, "d c"]:
        """Return the sum of all padded right-hand sides from the replies of the first epoch."""

    @final
    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Decode, and subtract the pads."""
        if epoch == 1:
            total = self._field.subtract(self.summed_moments(replies, work), self._moment_pads)
            self._first = self._formats.moments.decode_sum(total)
            return np.asarray(self._first / self._samples)
        product = self._products.take(self.opened(self._products.asked, replies, work))
        return np.asarray((self._first + product) / self._samples)

    @final
    def opened(
        self, model: UInt[np.ndarray, "c d"], replies: Mapping[int, Message], work: Work
    ) -> UInt[np.ndarray, "c d"]:
        """Return the product of a model with the sum of all data."""
        total = self._padded_product(replies, work)
        if self._pads is None:  # nothing was padded
            return total
        work.macs += model.size * self._pads.shape[1]
        return self._field.subtract(total, self._field.product(model, self._pads))

    def _padded_product(self, replies: Mapping[int, Message], work: Work) -> UInt[np.ndarray, "c d"]:
        blocks = self.decoded("product", replies, work)
        return np.ascontiguousarray(np.concatenate(list(blocks), axis=1)[:, : self._public.features])

    @final
    def decoded(self, name: str, replies: Mapping[int, Message], work: Work) -> UInt[np.ndarray, "blocks rows columns"]:
        """Decode any K replies: return the blocks of which the code made them."""
        which = sorted(replies)[: self._needed]
        decoder = np.array(self._code.decoder(which), self._field.dtype).reshape(-1, len(which))
        words, wrong = self._read(name, which, replies)
        if wrong:
            raise CipherError(
                f"The reply of device {wrong[0]} cannot be used: it holds numbers that are no residues of "
                f"{self._field}."
            )
        work.macs += len(decoder) * words.size
        return self._field.product(decoder, words.reshape(len(which), -1)).reshape(-1, *words.shape[1:])

    def _read(
        self, name: str, which: Sequence[int], replies: Mapping[int, Message]
    ) -> tuple[UInt[np.ndarray, "replies rows columns"], list[int]]:
        """Return the words of some replies in one array, and the devices with words that are no residues."""
        words, outside = self._field.unpack(np.stack([replies[device][name] for device in which]))
        if not outside:
            return words, []
        rows = np.flatnonzero((words >= self._field.modulus).any(axis=(1, 2)))
        return words, [which[row] for row in rows.tolist()]

    @final
    def check(self, question: Round, replies: Mapping[int, Message]) -> tuple[int, ...] | None:
        """Hold the replies against each other in every column; words that are no residues are wrong in any case."""
        known = sorted(replies)
        words, wrong = self._read("moments" if question.epoch == 1 else "product", known, replies)
        if wrong:
            words = words[[device not in wrong for device in known]]
            known = [device for device in known if device not in wrong]
        if len(known) <= self._needed:
            return tuple(wrong)
        found = self._code.reed_solomon.wrong(known, words.reshape(len(known), -1))
        return None if found is None else tuple(sorted((*wrong, *found)))

    @final
    def defer(self, question: Round, replies: Mapping[int, Message]) -> Message | None:
        """Add a random multiple of the model and of the decoded product to those of the rounds to audit."""
        if question.epoch == 1:
            return None
        factor, model = 1 + secrets.randbelow(self._field.modulus - 1), next(iter(question.requests.values()))["model"]
        sums = self._deferred_model.copy(), self._deferred_product.copy()
        self._field.add_multiple(sums[0], factor, self._field.from_wire(model))
        self._field.add_multiple(sums[1], factor, self._padded_product(replies, Work()))
        self._deferred_model, self._deferred_product = sums
        self._deferred.append(question.epoch)
        return self._deferral()

    @final
    def audit(self, epoch: int) -> Round | None:
        """Ask for the product with the random combination of all deferred models, which is that of their products."""
        if len(self._workers) <= self._needed:  # its replies would not check each other
            self._forget()
        if not self._deferred:
            return None
        message, K = {"model": self._field.to_wire(self._deferred_model)}, self._needed
        return Round.same(epoch, sorted(self._workers), message, self._product_layout, quorum=K + 1, needed=K)

    @final
    def audited(self, replies: Mapping[int, Message]) -> Sequence[int] | None:
        """Compare the products. A wrong one stays unnoticed with probability 1/p, over the server's random factors."""
        equal = np.array_equal(self._padded_product(replies, Work()), self._deferred_product)
        epochs = self._deferred
        self._forget()
        return epochs if equal else None

    def _forget(self) -> None:
        self._deferred, self._deferred_model = [], np.zeros_like(self._deferred_model)
        self._deferred_product = self._deferred_model

    def _deferral(self) -> Message:
        sums = {"deferred_model": self._deferred_model, "deferred_product": self._deferred_product}
        return {"deferred": np.array(self._deferred, np.int64), **sums} if self._deferred else {}

    @final
    def losses_left(self, promised: int, lost: Set[int]) -> int:
        """Return the workers that replies can do without; other devices hold nothing that is needed."""
        return max(0, len(set(self._workers) - lost) - self._needed)

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
        own = {"first": self._first, "workers": workers, "gone": gone, **self._deferral()}
        return {**own, **self._products.state()}

    @final
    def restore(self, state: Message) -> Restored:
        """Restore the state; return the stages that gave replacement workers their data."""
        self.rewind(state)
        self._workers, self._gone = state["workers"].tolist(), set(state["gone"].tolist())
        return Restored(self.replacements())

    def replacements(self) -> Sequence[Stage]:
        """Return the stages that gave replacement workers their data; by default there are none."""
        return ()
