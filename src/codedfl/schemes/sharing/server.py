"""The server of schemes in which stragglers hand data over. The schemes differ in their codec.

In the first epoch the server learns the sum of all gradients at the zero model. In every other epoch each active
device replies the product of the model and the data it holds, and the codec decodes the sum of the replies.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl.schemes.contract import Options, Restored, Round, Scheme, Server, Sharing, Stage, Transfer
from codedfl.schemes.messages import Layout, Message, Work
from codedfl.schemes.public import Public
from codedfl.schemes.sealing import PointedProducts
from codedfl.schemes.sharing.policy import Handover, OddSet, SharingPolicy, Supply
from codedfl.settings import setting


def delta_setting(default: float) -> Any:
    """Return the option Delta of the sharing policy."""
    words = "A device that replies so many seconds after the fastest is a straggler and hands over its data."
    return setting(default=default, low=0, help=words)


def parallel_setting() -> Any:
    """Return the option whether a device receives several parcels at once."""
    words = "Whether a device receives several parcels at the same time; one after the other if not."
    return setting(default=False, help=words)


def detect_from_setting() -> Any:
    """Return the option from which epoch on stragglers are looked for."""
    words = "First epoch after which stragglers are looked for; in epoch 1 by the time their computing takes."
    return setting(default=2, low=1, high=2, help=words)


def count_first_gradient(request: Message, work: Work) -> None:
    """Count the first gradient A_i Theta - B_i in clear, d^2 c as in ``conventional``, where the request asks for it.

    At the zero model the product is zero, and is not computed.
    """
    if "model" in request:
        work.add(request["model"].size * len(request["model"]))


class Codec(ABC):
    """Makes grants, encodes requests and decodes replies."""

    products: PointedProducts | None = None
    """The last product, which a resumed run needs; None if models are not sent as residues."""

    def set_up(self) -> Sequence[Stage]:
        """Return the stages before the first epoch."""
        return ()

    @abstractmethod
    def first_round(self, model: Float[np.ndarray, "d c"], active: Sequence[int], *, everyone: bool) -> Round:
        """Return the round of the first epoch, at the zero model; ``everyone`` must be asked where times count."""

    @abstractmethod
    def decode_first(self, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Return the sum of all devices' gradients at the zero model."""

    @abstractmethod
    def encode(self, model: Float[np.ndarray, "d c"]) -> tuple[Message, Layout, Float[np.ndarray, "d c"] | None]:
        """Return the request, the layout of a reply, and the point of the gradient if it is not the model."""

    @abstractmethod
    def decode(self, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Return the product of all data with the last encoded model."""

    def grant(self, sender: int, supports: Sequence[int]) -> Message:
        """Return what a device needs to hand over, given the numbers of its fresh supports."""
        return {}


@final
class SharingServer(Server):
    """Takes decisions on hand-overs from the policy; encodes and decodes with the codec."""

    def __init__(self, public: Public, policy: SharingPolicy, codec: Codec, *, parallel: bool) -> None:
        self._policy = policy
        self._codec = codec
        self._parallel = parallel
        self._everyone = policy.detects(1) or not public.first_offline
        self._samples = sum(public.samples)
        self._first = np.zeros((public.features, public.outputs))
        self._moved: list[tuple[int, int, int, int]] = []
        """Epoch, sender, recipient and support (-1: none) of every hand-over; one with two supports has two rows."""

    def set_up(self) -> Sequence[Stage]:
        """Return the stages that the codec needs."""
        return self._codec.set_up()

    def ask(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Request the product of every active device."""
        active = self._policy.active
        if epoch == 1:
            return self._codec.first_round(model, active, everyone=self._everyone)
        request, reply, point = self._codec.encode(model)
        return Round.same(epoch, active, request, reply, point=point)

    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Add the product of all data with the model to the gradient at the zero model."""
        if epoch == 1:
            self._first = self._codec.decode_first(replies, work)
            return np.asarray(self._first / self._samples)
        return np.asarray((self._first + self._codec.decode(replies, work)) / self._samples)

    def after_epoch(self, epoch: int, reply_seconds: Mapping[int, float], lost: Sequence[int]) -> Stage | None:
        """Apply the policy from the epoch on in which stragglers are first determined."""
        if not reply_seconds or not self._policy.detects(epoch):
            return None
        return self._stage(epoch, self._policy.after_epoch(reply_seconds).handovers)

    def _stage(self, epoch: int, handovers: Sequence[Handover]) -> Stage | None:
        transfers = []
        for each in handovers:
            self._moved += [(epoch, each.sender, each.recipient, support) for support in each.supports or (-1,)]
            grant = self._codec.grant(each.sender, each.supports)
            transfers.append(Transfer(each.sender, each.recipient, grant))
        return Stage(transfers, retires=True, parallel=self._parallel) if transfers else None

    def state(self) -> Message:
        """Return the first gradient, which devices send only once, the hand-overs, and the codec's state."""
        moved = np.array(self._moved, np.int64).reshape(-1, 4)
        products = {} if self._codec.products is None else self._codec.products.state()
        return {"first": self._first, "moved": moved, **products}

    def restore(self, state: Message) -> Restored:
        """Repeat earlier hand-overs; secret grants are drawn anew, which changes no result."""
        self._first = state.get("first", self._first)
        if self._codec.products is not None:
            self._codec.products.restore(state)
        rows = [(*row[:3], None if row[3] < 0 else row[3]) for row in state["moved"].tolist()]
        self._policy.resume(row[1:] for row in rows)
        found = []
        for epoch, moved in groupby(rows, key=lambda row: row[0]):
            by_sender = groupby(moved, key=lambda row: row[1:3])  # two rows of one sender are its two supports
            found.append(self._stage(epoch, [Handover(*who, *(row[3] for row in each)) for who, each in by_sender]))
        return Restored([stage for stage in found if stage is not None])


class SharingScheme(Scheme[Options]):
    """Abstract: stragglers hand over by the sharing policy.

    It has the options ``delta``, ``detect_from`` and ``parallel_reception``.
    """

    @abstractmethod
    def codec(self) -> Codec:
        """Make the codec of the server."""

    @property
    def memory(self) -> int:
        """Of each device: its Gram matrix, and what it holds of it."""
        return (8 + self.public.dtype.itemsize) * self.public.features**2 * self.public.devices

    @property
    def chosen_by_delays(self) -> Hashable:
        """Nothing: the policy looks at the times of replies."""
        return ()

    @property
    def supports(self) -> tuple[int, Supply]:
        """The number of supports, and how often each is granted; by default without limit."""
        return 0, "unlimited"

    @property
    def odd_set(self) -> OddSet:
        """What is done about an odd number of stragglers without supports."""
        return "partner"

    @final
    def server(self) -> Server:
        """Prepare the server."""
        return SharingServer(self.public, self._policy(), self.codec(), parallel=self.sharing.parallel)

    @property
    def sharing(self) -> Sharing:
        """The paper's policy."""
        return Sharing(self._policy, self._options.parallel_reception)

    def _policy(self) -> SharingPolicy:
        number, supply = self.supports
        return SharingPolicy(
            devices=self.public.devices,
            supports=number,
            delta=self._options.delta,
            supply=supply,
            odd_set=self.odd_set,
            detect_from=self._options.detect_from,
        )

    @property
    def _options(self) -> Any:
        return self.options
