"""Federated learning with a deadline: the server continues with the replies that have arrived by then."""

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import final

import numpy as np

from codedfl.errors import ScenarioError
from codedfl.network import DelayModel, RoundCosts
from codedfl.scenario import InexactOptions
from codedfl.schemes.contract import CountedCosts, Device, Server
from codedfl.schemes.messages import Work, message_bits
from codedfl.schemes.plain.conventional import AveragingServer, GradientDevice, PlainScheme, pooled_devices
from codedfl.schemes.plain.counting import counted_rounds
from codedfl.schemes.public import Public
from codedfl.settings import setting
from codedfl.task import Problem, Shard

_SEED = 0x646C696E
"""Seed of the choice of a deadline, independent of the seed of a run."""
_DRAWS = 200
"""Draws of an epoch for that choice; with 25 devices they give the share to about one percent."""


class DeadlineOptions(InexactOptions):
    """The deadline in seconds; if unset, the time by which a ``share`` of all replies arrives on average.

    >>> DeadlineOptions(seconds=12.5).share
    0.5
    """

    seconds: float | None = setting(
        default=None, above=0, help="Deadline of an epoch in seconds; chosen from share if unset."
    )
    share: float = setting(
        default=0.5, above=0, below=1, help="Share of all replies that arrive before the chosen deadline on average."
    )


def deadline_for(public: Public, delays: DelayModel, share: float) -> float:
    """Return the least time by which a share of the replies arrives, over 200 draws of one epoch.

    The draws have their own seed, so the deadline depends only on fleet, links and shapes.
    """
    replies = delays.reply_seconds(_costs(public), delays.chance(_SEED, 2, 0, _DRAWS))
    return float(np.quantile(replies, share, method="inverted_cdf"))


def _costs(public: Public) -> RoundCosts:
    """Return the costs of a reply, counted on a device of each size with zeros as data."""
    model = {"model": np.zeros((public.features, public.outputs), public.dtype)}
    known = {}
    for samples in set(public.samples):
        work = Work()
        reply = GradientDevice(_zeros(public, samples)).reply(2, model, work)
        known[samples] = work.macs, message_bits(reply)
    macs, up = np.array([known[samples] for samples in public.samples], dtype=np.int64).T
    down, n = np.full(len(up), message_bits(model)), public.devices
    return RoundCosts(np.arange(n), down, macs, up, quorum=n, server_macs=0)


def _zeros(public: Public, samples: int) -> Shard:
    """Return a shard of zeros that needs almost no memory, with its Gram matrix precomputed."""
    d, c, zero = public.features, public.outputs, np.zeros((), public.dtype)
    shard = Shard(np.broadcast_to(zero, (samples, d)), np.broadcast_to(zero, (samples, c)))
    vars(shard).update(gram=np.zeros((d, d), public.dtype), moments=np.zeros((d, c), public.dtype))
    return shard


@final
class Deadline(PlainScheme[DeadlineOptions]):
    """Only replies by the deadline count: epochs have a known length, but slow devices rarely contribute."""

    name = "deadline"
    options_type = DeadlineOptions
    exact = False
    follows_timing = True

    def check(self) -> None:
        """Refuse an unset deadline if the delays of the fleet are unknown."""
        _ = self.seconds

    @property
    def chosen_by_delays(self) -> Hashable:
        """The deadline."""
        return self.seconds

    @cached_property
    def seconds(self) -> float:
        """The deadline, in seconds after the request."""
        given, delays = self.options.seconds, self.public.delays
        if given is not None:
            return given
        if delays is None:
            raise ScenarioError("schemes.deadline.seconds is unset and the delays of the fleet are unknown; set it")
        return deadline_for(self.public, delays, self.options.share)

    def simulated(self, problem: Problem, epochs: int) -> Sequence[Device]:
        """Prepare devices whose replies are summed in one product."""
        return pooled_devices(self, problem, some_for=epochs)

    def counted(self, shards: Sequence[Shard], epochs: int) -> CountedCosts:
        """Count one device for each shard."""
        return counted_rounds(self, shards, epochs)

    def server(self) -> Server:
        """Prepare a server that continues at the deadline, or as soon as all devices have replied."""
        return AveragingServer(self.public, deadline=self.seconds)

    @property
    def survives_losses(self) -> int:
        """All but one; the run continues without the data of lost devices."""
        return self.public.devices - 1
