"""One shot: secure aggregation of all Gram matrices and right-hand sides, once; the server does the rest alone.

In the first epoch every device sends the upper triangle of A_i, and B_i, as residues under the masks of
``schemes.aggregated.server``. The server learns only the sums. They give it the gradient at every model and the
solution in closed form, so it sends no further requests.
"""

from collections.abc import Hashable, Mapping, Sequence, Set
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import Float

from codedfl.cipher.masks.graph import MaskGraph
from codedfl.cipher.randomness import SEED_BYTES
from codedfl.cipher.seals import Z_32, Z_64, pack_upper, packed_size, unpack_upper
from codedfl.network import RoundCosts
from codedfl.privacy.noise import spare_noise
from codedfl.privacy.release import Release
from codedfl.scenario import Privacy, SchemeOptions
from codedfl.schemes.aggregated.cohort import Cohort
from codedfl.schemes.aggregated.costs import sum_rounds, with_sum
from codedfl.schemes.aggregated.device import MaskedDevice
from codedfl.schemes.aggregated.promises import (
    SECAGG_REASON,
    aggregated_views,
    check_sums,
    check_threshold,
    neighbours_setting,
    private_threshold,
    secagg_leakage,
    sums_allowed,
    survived_losses,
)
from codedfl.schemes.aggregated.server import MaskedSum, Threshold
from codedfl.schemes.contract import CountedCosts, Device, Restored, Round, Scheme, Server
from codedfl.schemes.messages import Layout, Message, Work
from codedfl.schemes.private import NoisyShard, once_only
from codedfl.schemes.public import Public
from codedfl.schemes.rounding import Rounding
from codedfl.schemes.sealing import Formats, check_bounds, choose_formats, ring_setting
from codedfl.schemes.secrecy import SUMS, Leakage, Secrecy, all_cells, released, sums
from codedfl.settings import setting
from codedfl.task import Shard

ONE_SHOT_RINGS = (Z_32, Z_64)


class OneShotOptions(SchemeOptions):
    """How many devices' shares open the sums (by default two thirds of all), and the ring of the sums.

    >>> OneShotOptions(ring="Z_2^64").solver
    'closed-form'
    """

    solver = "closed-form"

    @property
    def file_solver(self) -> str:
        """The closed form here as well."""
        return self.solver

    threshold: int | None = setting(
        default=None, low=2, help="Devices whose shares open a sum; two thirds of all if unset."
    )
    neighbours: int | None = neighbours_setting()
    ring: str = ring_setting(ONE_SHOT_RINGS)

    def check_fleet(self, devices: int) -> None:
        """Refuse a single device, and a threshold of at most half of the devices."""
        check_threshold("one-shot", self.threshold, devices)


@final
class GramDevice(Device):
    """Replies its Gram matrix and its right-hand side as residues."""

    def __init__(self, shard: Shard, formats: Formats) -> None:
        self._shard = shard
        self._formats = formats

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Return the residues, which are asked for once and not kept."""
        shard, formats = self._shard, self._formats
        grams, moments = formats.gram.encode_symmetric(shard.gram_once()), formats.moments.encode(shard.moments)
        return {"gram": grams, "moments": moments}


@final
class OneShotServer(Server):
    """Opens the sums once, and computes every gradient from them."""

    def __init__(self, public: Public, formats: Formats, threshold: Threshold, graph: MaskGraph) -> None:
        self._public = public
        self._graph = graph
        self._formats = formats
        self._threshold = threshold
        self._sum: MaskedSum | None = None
        self._model = np.zeros((public.features, public.outputs))
        self._known: dict[str, Float[np.ndarray, "..."]] = {}
        self._gram = np.zeros((0, 0))

    def ask(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Begin the sums if they are unknown; else send no request."""
        self._model = model.astype(self._public.dtype).astype(np.float64)
        self._sum = None
        if self._known:
            return Round(epoch, {})
        requests: dict[int, Message] = {device: {} for device in range(self._public.devices)}
        ring, everyone = self._formats.gram.ring, self._public.devices
        shapes = {"gram": (packed_size(self._public.features),), "moments": self._model.shape}
        reply = {name: (ring.dtype, shape) for name, shape in shapes.items()}
        proper = dict.fromkeys(requests, reply)
        signed = self._public.signed
        self._sum = MaskedSum(
            epoch,
            requests,
            self._threshold,
            ring,
            awaited=everyone,
            needed=0,
            proper=proper,
            signed=signed,
            spares=self._spares,
            graph=self._graph,
            agreement=self._public.agreement,
        )
        return self._sum.begin()

    def losses_left(self, promised: int, lost: Set[int]) -> int:
        """Return all devices that are left: once the sums are known, nobody is asked."""
        return self._public.devices - len(lost)

    def follow_up(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Round | None:
        """Return the next round of the sums."""
        return None if self._sum is None else self._sum.follow_up(replies)

    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Open the sums if they are unknown, and compute the gradient from them."""
        if self._sum is not None:
            opened, samples = self._sum.opened(replies, work), self._public.samples
            # if devices are lost, scale the sums to all data points
            scale = sum(samples) / sum(samples[device] for device in self._sum.survivors)
            gram = self._formats.gram.decode_sum(opened["gram"])
            moments = self._formats.moments.decode_sum(opened["moments"])
            if self._spares:
                self._remove_spares(gram, moments, replies, work)
            self._know({"gram": scale * gram, "moments": scale * moments})
        total = work.product(self._gram, self._model) - self._known["moments"]
        return np.asarray(total / sum(self._public.samples))

    @property
    def _spares(self) -> bool:
        """Whether devices add noise for others that may be lost."""
        return isinstance(self._public.release, Release) and any(self._public.release.spare_steps)

    def _remove_spares(
        self,
        gram: Float[np.ndarray, "entries"],
        moments: Float[np.ndarray, "d c"],
        replies: Mapping[int, Message],
        work: Work,
    ) -> None:
        """Subtract the spare noise of the devices that told its seed, in place."""
        assert isinstance(self._public.release, Release)  # noqa: S101 - what spares are asked for
        for device in sorted(replies):
            told = replies[device].get("spare", np.zeros(0))
            if told.any():
                spare = spare_noise(self._public.release, told.tobytes())
                gram -= pack_upper(spare[0])
                moments -= spare[1]
                work.add(gram.size + moments.size)

    def _know(self, known: Mapping[str, Float[np.ndarray, "..."]]) -> None:
        self._known, self._gram = dict(known), unpack_upper(known["gram"])

    def totals(self) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d c"]]:
        """Return the sums; if devices were lost, the sums over the others, scaled to all data points."""
        return self._gram, self._known["moments"]

    def state(self) -> Message:
        """Return the sums, which devices send only once."""
        return self._known

    def restore(self, state: Message) -> Restored:
        """Restore the sums; no round is open."""
        if state:
            self._know(state)
        return Restored()


@final
class OneShot(Scheme[OneShotOptions]):
    """Secure aggregation of Gram matrices and right-hand sides, once; the server solves alone."""

    name = "one-shot"
    options_type = OneShotOptions
    exact = True
    sums = True
    solver = "closed-form"
    verdict = SUMS
    verdict_reason = SECAGG_REASON

    def check(self) -> None:
        """Refuse a single device, and data that the ring cannot hold."""
        check_sums(self.name, self.options.threshold, self.public, self.graph)
        _ = self.formats

    @property
    def chosen_by_delays(self) -> Hashable:
        """Nothing: every device takes part."""
        return ()

    @property
    def opens_sums(self) -> bool:
        """True: of the devices that survive a round."""
        return True

    @property
    def threshold(self) -> Threshold:
        """How many devices' shares open the sums."""
        return private_threshold(self.public, Threshold(self.options.threshold))

    @cached_property
    def graph(self) -> MaskGraph:
        """Who shares masks with whom."""
        return MaskGraph.of(self.public.devices, self.options.neighbours)

    def refuses_noise(self, privacy: Privacy) -> str | None:
        """Take noise: the server opens one sum."""
        return once_only(privacy)

    @cached_property
    def formats(self) -> Formats:
        """The number formats, computed from public facts."""
        return choose_formats(self.public, self.options.ring, ONE_SHOT_RINGS, multiplied=False)

    @property
    def rounding(self) -> Rounding:
        """Devices round their data to steps of the format."""
        return self.formats.rounding(self.public)

    @property
    def memory(self) -> int:
        """The masked triangles of all devices."""
        return 8 * packed_size(self.public.features) * self.public.devices

    def parcels(self, index: int) -> Sequence[Layout]:
        """Return nothing: devices send no parcels to each other."""
        return ()

    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device that masks its Gram matrix and right-hand side; refuse data above the agreed bounds."""
        check_bounds(self.public, shard)
        ring = self.formats.gram.ring
        share = self.public.samples[index] / self.public.total
        cohort = self._cohort
        spare = shard.spare if isinstance(shard, NoisyShard) else None
        return MaskedDevice(
            index, GramDevice(shard, self.formats), lambda *_: ring, share, cohort, once=True, spare=spare
        )

    @cached_property
    def _cohort(self) -> Cohort:
        """What every device knows of the others."""
        return Cohort.of(self.public, self.threshold, survives=self.survives_losses, degree=self.graph.degree)

    def counted(self, shards: Sequence[Shard], epochs: int) -> CountedCosts:
        """Count one sum of Gram matrices and right-hand sides, then epochs without requests."""
        d, c, word = self.public.features, self.public.outputs, self.formats.gram.ring.dtype.itemsize * 8
        n, words, product = self.public.devices, packed_size(d) + d * c, d * d * c
        release = self.public.release
        spare = 8 * SEED_BYTES if isinstance(release, Release) and any(release.spare_steps) else 0
        rounds = sum_rounds(self.graph, self.threshold, words, word, spare=spare)
        none, nobody = np.zeros(n, np.int64), np.zeros(0, np.int64)
        alone = RoundCosts(np.arange(n), none, none, none, n, product, n)
        rest = RoundCosts(nobody, nobody, nobody, nobody, 0, product)
        return CountedCosts([with_sum(alone, rounds), *([rest] for _ in range(1, epochs))])

    def server(self) -> Server:
        """Prepare the server."""
        return OneShotServer(self.public, self.formats, self.threshold, self.graph)

    @property
    def survives_losses(self) -> int:
        """All but t in the first epoch; later all, because the server sends no requests."""
        return survived_losses(self.graph, self.threshold)

    @property
    def allowed_if(self) -> str:
        """The sum of the Gram matrices may be learned."""
        found = sums_allowed(self.public, self.threshold, "Gram matrices", self.graph)
        return f"{found}, and may so learn who is in the data of all devices together"

    def secrecy(self) -> tuple[Secrecy, ...]:
        """The server sees one sum of Gram matrices; devices see no model before the released one."""
        views = aggregated_views(self.public, self.threshold, self.graph)
        last = released()["model reader"]
        one = sums("it gets the released model only, computed from sums over all devices", "all devices")
        return all_cells(views | {"device": one, "deviating device": one, "devices": last})

    def leakage(self) -> Leakage:
        """Return what each party sees: the server, two sums."""
        return secagg_leakage(self.public, self.threshold, "Gram matrices and right-hand sides", self.graph)
