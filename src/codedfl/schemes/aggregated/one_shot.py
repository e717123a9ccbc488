"""One shot: devices send Gram matrices and right-hand sides once, securely added up; the server does the rest alone.

In the first epoch every device sends the upper triangle of A_i and B_i as residues, under the masks of
``schemes.aggregated.server``. The server opens the sums and nothing else. From then on it knows the gradient at every
model, and can solve in closed form: no device is asked again.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import Float

from codedfl.cipher.seals import RINGS, packed_size, unpack_upper
from codedfl.scenario import SchemeOptions
from codedfl.schemes.aggregated.device import MaskedDevice
from codedfl.schemes.aggregated.secagg import SECAGG_REASON, check_threshold, secagg_leakage
from codedfl.schemes.aggregated.server import MaskedSum, Threshold
from codedfl.schemes.contract import Device, Leakage, Public, Restored, Round, Scheme, Server
from codedfl.schemes.messages import Message, Work
from codedfl.schemes.sealing import Formats, check_bounds
from codedfl.settings import setting
from codedfl.task import Shard

AUTO = "auto"
RING_OF = {"float32": "Z_2^32", "float64": "Z_2^64"}
"""Words as wide as the numbers of the scenario: then rounding them is of the order of the numbers' own rounding."""


class OneShotOptions(SchemeOptions):
    """How many devices' shares open the sums (two thirds of all unless given), and the ring that they are added in."""

    solver = "closed-form"

    threshold: int | None = setting(
        default=None, low=2, help="Devices whose shares open a sum; two thirds of all if unset."
    )
    ring: str = setting(
        default=AUTO,
        choices=(AUTO, "Z_2^32", "Z_2^64"),
        help="Ring in which masked sums are added; auto: as wide as task.precision.",
    )

    def check_fleet(self, devices: int) -> None:
        """A sum takes two devices; the threshold must be more than half of them."""
        check_threshold("one-shot", self.threshold, devices)


@final
class GramDevice(Device):
    """Replies with its Gram matrix and its right-hand side, as residues."""

    def __init__(self, shard: Shard, formats: Formats) -> None:
        self._reply = {
            "gram": formats.gram.encode_symmetric(shard.gram),
            "moments": formats.moments.encode(shard.moments),
        }

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Send what was prepared."""
        return self._reply


@final
class OneShotServer(Server):
    """Opens the sums once, and computes every gradient from them."""

    def __init__(self, public: Public, formats: Formats, threshold: Threshold) -> None:
        self._public = public
        self._formats = formats
        self._threshold = threshold
        self._sum: MaskedSum | None = None
        self._model = np.zeros((public.features, public.outputs))
        self._known: dict[str, Float[np.ndarray, "..."]] = {}
        self._gram = np.zeros((0, 0))

    def ask(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Begin the sums if they are not known; else ask nobody."""
        self._model = model.astype(self._public.dtype).astype(np.float64)
        self._sum = None
        if self._known:
            return Round(epoch, {})
        requests: dict[int, Message] = {device: {} for device in range(self._public.devices)}
        ring, everyone = self._formats.gram.ring, self._public.devices
        shapes = {"gram": (packed_size(self._public.features),), "moments": self._model.shape}
        reply = {name: (ring.dtype, shape) for name, shape in shapes.items()}
        proper = dict.fromkeys(requests, reply)
        self._sum = MaskedSum(epoch, requests, self._threshold, ring, awaited=everyone, needed=0, proper=proper)
        return self._sum.begin()

    def follow_up(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Round | None:
        """Go on with the sums."""
        return None if self._sum is None else self._sum.follow_up(replies)

    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Open the sums if they are not known, and return the gradient that they give."""
        if self._sum is not None:
            opened, samples = self._sum.opened(replies, work), self._public.samples
            # where devices are missing, the sums are scaled to all data points
            scale = sum(samples) / sum(samples[device] for device in self._sum.survivors)
            gram = scale * self._formats.gram.decode_sum(opened["gram"])
            self._know({"gram": gram, "moments": scale * self._formats.moments.decode_sum(opened["moments"])})
        total = work.product(self._gram, self._model) - self._known["moments"]
        return np.asarray(total / sum(self._public.samples))

    def _know(self, known: Mapping[str, Float[np.ndarray, "..."]]) -> None:
        self._known, self._gram = dict(known), unpack_upper(known["gram"])

    def totals(self) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d c"]]:
        """Return the sums; where devices were lost, the sums over the others, scaled to all data points."""
        return self._gram, self._known["moments"]

    def state(self) -> Message:
        """Return the sums: no device is asked for them again."""
        return self._known

    def restore(self, state: Message) -> Restored:
        """Take the sums back; no round is open."""
        if state:
            self._know(state)
        return Restored()


@final
class OneShot(Scheme[OneShotOptions]):
    """Gram matrices and right-hand sides, securely added up once; the server solves by itself."""

    name = "one-shot"
    options_type = OneShotOptions
    exact = True
    sums = True
    solver = "closed-form"
    verdict = "holds"
    verdict_reason = SECAGG_REASON

    def check(self) -> None:
        """Refuse a fleet that is too small, and data that the ring cannot hold."""
        check_threshold(self.name, None, self.public.devices)
        _ = self.formats

    @property
    def threshold(self) -> Threshold:
        """How many devices' shares open the sums."""
        return Threshold(self.options.threshold)

    @cached_property
    def formats(self) -> Formats:
        """The number formats, which everybody can work out."""
        wanted = self.options.ring
        ring = RING_OF[self.public.dtype.name] if wanted == AUTO else wanted
        return Formats.choose(RINGS[ring], self.public, multiplied=False)

    def device(self, index: int, shard: Shard) -> Device:
        """Encode the shard's Gram matrix and right-hand side, behind masks; refuse data beyond the agreed bounds."""
        check_bounds(self.public, shard)
        ring = self.formats.gram.ring
        share = self.public.samples[index] / sum(self.public.samples)
        return MaskedDevice(index, GramDevice(shard, self.formats), lambda *_: ring, share, self.threshold)

    def server(self) -> Server:
        """Prepare the server."""
        return OneShotServer(self.public, self.formats, self.threshold)

    @property
    def survives_losses(self) -> int:
        """All but t, in the first epoch; after that, all: nobody is asked."""
        return self.public.devices - self.threshold.of(self.public.devices)

    def leakage(self) -> Leakage:
        """Two sums."""
        return secagg_leakage(self.public, self.threshold, "Gram matrices and right-hand sides")
