"""Secure aggregation round another scheme: the server is given the sum of all replies, and none of its own.

Any scheme whose gradient depends on who replied and on the sum of the replies can stand inside (``AddingScheme``). Its
replies, numbers rounded to fixed point in Z_2^64 or residues as they are, travel under the masks of
``schemes.aggregated.server``; what opens is the exact sum. To the inner server it is passed as the reply of the first
device that is in it, beside zeros from all others.

The inner scheme's own options are those of its own table in the scenario, ``[schemes.INNER]``.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, final

import numpy as np
from jaxtyping import Float

from codedfl.cipher.seals import Z_64, FixedPoint, Ring
from codedfl.errors import ScenarioError, TrainingError
from codedfl.network import RoundCosts
from codedfl.scenario import SchemeOptions
from codedfl.schemes.aggregated.costs import question_costs
from codedfl.schemes.aggregated.device import (
    SUM_BITS,
    MaskedDevice,
    SharingMaskedDevice,
    form_message,
    number_form,
)
from codedfl.schemes.aggregated.server import MaskedSum, Threshold
from codedfl.schemes.contract import (
    AddingScheme,
    Device,
    Exposure,
    Layout,
    Leakage,
    Message,
    PlacingServer,
    Public,
    Round,
    Scheme,
    Server,
    SharingDevice,
    SharingScheme,
    SharingServer,
    Transcript,
    Transfer,
    Work,
)
from codedfl.schemes.plain.conventional import Conventional
from codedfl.schemes.sealing import check_bounds
from codedfl.schemes.sharing.policy import SharingPolicy
from codedfl.security.views.secagg import masked_exposures, summed_exposures
from codedfl.settings import setting
from codedfl.task import Shard

__all__ = [
    "SECAGG_REASON",
    "SecAgg",
    "SecAggOptions",
    "SecAggSettings",
    "SharingSecAgg",
    "Wrapper",
    "around",
    "check_threshold",
    "secagg_leakage",
]

SECAGG_REASON = (
    "The server opens sums only: masks that devices agree on (X25519, AES-256) hide every single reply as long as the "
    "server keeps to the protocol and fewer devices than the threshold collude with it."
)

LARGEST = 1e250
"""Sums up to this and from its inverse on are told apart from overflow and from nothing."""


def check_threshold(scheme: str, threshold: int | None, devices: int) -> None:
    """Refuse a fleet of one, and a threshold that not all devices together reach or that half of them do."""
    if devices < 2:
        raise ScenarioError(f"scheme = '{scheme}' needs at least 2 devices: with one, the sum is its own reply")
    low = devices // 2 + 1
    if threshold is not None and not low <= threshold <= devices:
        raise ScenarioError(
            f"schemes.{scheme}.threshold = {threshold} must be between {low}, more than half of the devices, and "
            f"{devices}, all of them"
        )


def secagg_leakage(public: Public, threshold: Threshold, what: str) -> Leakage:
    """Say who sees what where the server is given sums only."""
    t = threshold.of(public.devices)
    return Leakage(
        server=f"{what}, summed over all devices that replied ({t} at least), and nothing of a single one; together "
        f"with devices that collude with it, fewer than {t}, the sum over the others",
        devices="nothing of each other but what the models tell: sums over all devices, and so the gradients of a "
        "single device if all others collude",
        eavesdropper="what the server sees, sums over devices, unless the transport is encrypted",
    )


class SecAggOptions(SchemeOptions):
    """The scheme inside, by its name, and how many devices' shares open a sum (two thirds of all unless given)."""

    inner: str = setting(default="conventional", help="The scheme whose replies are masked and added.")
    threshold: int | None = setting(
        default=None, low=2, help="Devices whose shares open a sum; two thirds of all if unset."
    )

    @property
    def others(self) -> tuple[str, ...]:
        """The scheme inside has options of its own."""
        return (self.inner,)

    def check_fleet(self, devices: int) -> None:
        """A sum takes two devices; the threshold must be more than half of them."""
        check_threshold("secagg", self.threshold, devices)


class SecAggSettings(SchemeOptions):
    """The options of the wrapper and of the scheme inside, from their tables in the scenario."""

    own: SecAggOptions = setting()
    inside: SchemeOptions = setting()


class SecAggServer(Server):
    """Asks for masked replies, opens their sum, and lets the inner server combine it."""

    def __init__(self, scheme: AddingScheme[Any], threshold: Threshold, inner: Server) -> None:
        self._scheme = scheme
        self._threshold = threshold
        self._inner = inner
        self._round = Round(0, {})
        self._sum: MaskedSum | None = None
        self._form: FixedPoint | None = None

    def broadcast(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Let the inner server say who is asked what, and begin a sum over these; one alone is asked as it is."""
        self._round = self._inner.broadcast(epoch, model)
        requests = self._round.requests
        if len(requests) < 2:
            self._sum = None
            return self._round
        kinds = {id(request): request for request in requests.values()}.values()
        ring, self._form = self._format([self._scheme.reply_sum(epoch, request) for request in kinds])
        told = {} if self._form is None else form_message(self._form.data_bits)
        self._sum = MaskedSum(
            epoch,
            {device: {**request, **told} for device, request in requests.items()},
            self._threshold,
            ring,
            awaited=self._inner.quorum,
            needed=0 if self._scheme.averages else self._inner.least,
            proper=_masked(self._round.expected, ring),
        )
        return Round(epoch, self._sum.begin(), self._round.point, expected=self._sum.expected)

    def _format(self, kinds: Sequence[Ring | float]) -> tuple[Ring, FixedPoint | None]:
        """Return the ring to add in; where replies are numbers, with steps so fine that their sum is sure to fit."""
        if isinstance(kinds[0], Ring):
            return kinds[0], None
        bound = max(float(kind) for kind in kinds if not isinstance(kind, Ring))
        if not bound <= LARGEST:
            raise TrainingError("training diverged: the model is no longer finite; lower training.learning_rate")
        _, exponent = math.frexp(max(bound, 1 / LARGEST))  # the bound is below 2^exponent
        return Z_64, number_form(SUM_BITS - exponent, len(self._round.requests))

    @property
    def quorum(self) -> int:
        """How many replies to the newest question are awaited."""
        return self._inner.quorum if self._sum is None else self._sum.quorum

    @property
    def least(self) -> int:
        """How many will do when no more come."""
        return self._inner.least if self._sum is None else self._sum.least

    def follow_up(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Round | None:
        """Go on with the protocol; the third question is the inner one, with its deadline."""
        if self._sum is None:
            return None
        requests = self._sum.follow_up(replies)
        if requests is None:
            return None
        proper = any("envelopes" in request for request in requests.values())
        deadline = self._round.deadline if proper else None
        return Round(epoch, requests, deadline=deadline, expected=self._sum.expected)

    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Open the sum, and let the inner server combine it as one device's reply beside zeros."""
        if self._sum is None:
            return self._inner.combine(epoch, replies, work)
        opened = self._sum.opened(replies, work)
        total: Message = (
            opened if self._form is None else {name: self._form.decode_sum(part) for name, part in opened.items()}
        )
        nothing = {name: np.zeros_like(part) for name, part in total.items()}
        first, *others = self._sum.survivors
        return self._inner.combine(epoch, {first: total, **dict.fromkeys(others, nothing)}, work)


def _masked(expected: Mapping[int, Layout] | None, ring: Ring) -> dict[int, Layout] | None:
    """Return what replies look like under masks: residues of the ring, in the same shapes."""
    if expected is None:
        return None
    return {
        device: {name: (ring.dtype, shape) for name, (_, shape) in reply.items()} for device, reply in expected.items()
    }


class SharingSecAggServer(SecAggServer, SharingServer):
    """The same round a server that moves data between epochs."""

    _inner: SharingServer

    def after_epoch(self, reply_seconds: Mapping[int, float]) -> Sequence[Transfer]:
        """Decide as the inner server does."""
        return self._inner.after_epoch(reply_seconds)

    def memory(self) -> Message:
        """Remember what the inner server must; sums are begun and ended within an epoch."""
        return self._inner.memory()

    def resume(self, moved: Sequence[tuple[int, int, int | None]], memory: Message) -> Sequence[Transfer]:
        """Take over as the inner server does."""
        return self._inner.resume(moved, memory)


@final
class PlacingSecAggServer(SharingSecAggServer, PlacingServer):
    """The same round a server that also has devices send to each other before the first epoch."""

    def __init__(self, scheme: AddingScheme[Any], threshold: Threshold, inner: SharingServer) -> None:
        super().__init__(scheme, threshold, inner)
        if not isinstance(inner, PlacingServer):
            raise TypeError(f"{type(inner).__name__} places nothing")
        self._placing: PlacingServer = inner

    def stages(self) -> Sequence[Sequence[Transfer]]:
        """Set up as the inner server does."""
        return self._placing.stages()

    def receive(self, sender: int, parcel: Message) -> None:
        """Take in for the inner server."""
        self._placing.receive(sender, parcel)

    def repair(self, lost: Sequence[int]) -> Sequence[Transfer]:
        """Repair as the inner server does."""
        return self._placing.repair(lost)

    def recall(self, memory: Message) -> Sequence[Sequence[Transfer]]:
        """Take back what the inner server had remembered."""
        return self._placing.recall(memory)


class Wrapper(Scheme[SecAggSettings]):
    """What the wrapper is and promises, whatever stands inside; ``around`` makes its class for an inner scheme."""

    name = "secagg"
    options_type = SecAggOptions
    exact = Conventional.exact
    follows_timing = Conventional.follows_timing
    verdict = "holds"
    because = SECAGG_REASON
    inside: ClassVar[type[AddingScheme[Any]]] = Conventional

    def check(self) -> None:
        """Make the scheme inside; it refuses what does not fit it."""
        check_threshold(self.name, None, self.public.devices)
        self.inner = self.inside(self.public, self.options.inside)
        self.threshold = Threshold(self.options.own.threshold)

    def masked(self, index: int) -> tuple[Any, float, Threshold]:
        """Return what a device must know to mask: how large sums get, its share of all data points, the threshold."""
        return self.inner.reply_sum, self.public.samples[index] / sum(self.public.samples), self.threshold

    @property
    def survives_losses(self) -> int:
        """All but t where the inner scheme can average over who is there, else as many as that one survives."""
        spare = self.public.devices - self.threshold.of(self.public.devices)
        return spare if self.inner.averages else min(self.inner.survives_losses, spare)

    def leakage(self) -> Leakage:
        """Sums only; what devices and eavesdroppers see of parcels is as in the inner scheme."""
        found = secagg_leakage(self.public, self.threshold, "replies")
        if not issubclass(self.inside, SharingScheme):
            return found
        inner = self.inner.leakage()
        return Leakage(server=found.server, devices=inner.devices, eavesdropper=inner.eavesdropper)

    def exposures(self, transcript: Transcript, shards: Sequence[Shard]) -> Sequence[Exposure]:
        """Masked replies as the server sees them, in every view of the inner scheme, and the sums that it opens."""
        found = masked_exposures(self.inner, transcript, shards)
        return [*found, *summed_exposures(self.inner, self.threshold, transcript, shards)]


class SecAgg(Wrapper):
    """The inner scheme with every reply under masks that cancel in the sum."""

    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device of the inner scheme, behind masks; data beyond the agreed bounds is refused."""
        check_bounds(self.public, shard)
        return MaskedDevice(index, self.inner.device(index, shard), *self.masked(index))

    def server(self) -> Server:
        """Prepare the server round that of the inner scheme."""
        return SecAggServer(self.inner, self.threshold, self.inner.server())


class SharingSecAgg(Wrapper, SharingScheme[SecAggSettings]):
    """The same where the inner scheme moves data between devices."""

    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device of the inner scheme, behind masks."""
        inner = self.inner.device(index, shard)
        if not isinstance(inner, SharingDevice):
            raise TypeError(f"{type(inner).__name__} does not share")
        return SharingMaskedDevice(index, inner, *self.masked(index))

    def server(self) -> Server:
        """Prepare the server round that of the inner scheme."""
        inner = self.inner.server()
        if not isinstance(inner, SharingServer):
            raise TypeError(f"{type(inner).__name__} does not share")
        kind = PlacingSecAggServer if isinstance(inner, PlacingServer) else SharingSecAggServer
        return kind(self.inner, self.threshold, inner)

    @property
    def _sharing(self) -> SharingScheme[Any]:
        inner: Any = self.inner
        return inner  # type: ignore[no-any-return]

    def policy(self) -> SharingPolicy:
        """Return the sharing policy of the inner scheme."""
        return self._sharing.policy()

    @property
    def parallel_reception(self) -> bool:
        """As the inner scheme has it."""
        return self._sharing.parallel_reception

    def questions(self, active: int, alone: RoundCosts, reply: Message) -> Sequence[RoundCosts]:
        """Four questions, whose sizes grow with the number of active devices; one device alone is asked once."""
        if active < 2:
            return (alone,)
        return question_costs(active, self.threshold, alone, reply)


@cache
def around(inside: type[AddingScheme[Any]]) -> type[Wrapper]:
    """Return the class of the wrapper round a scheme: it promises what that one promises."""
    base: type[Wrapper] = SharingSecAgg if issubclass(inside, SharingScheme) else SecAgg
    facts = {"inside": inside, "exact": inside.exact, "follows_timing": inside.follows_timing}
    return type(base.__name__, (base,), {**facts, "__doc__": base.__doc__, "__module__": base.__module__})
