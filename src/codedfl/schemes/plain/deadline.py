"""A deadline: the server goes on so many seconds after the request, with the replies that are there."""

from functools import cached_property
from typing import final

import numpy as np

from codedfl.errors import ScenarioError
from codedfl.network import DelayModel, RoundCosts
from codedfl.scenario import SchemeOptions
from codedfl.schemes.contract import Public, Server
from codedfl.schemes.messages import Work, message_bits
from codedfl.schemes.plain.conventional import AveragingServer, GradientDevice, PlainScheme
from codedfl.settings import setting
from codedfl.task import Shard

_SEED = 0x646C696E
"""The choice of a deadline has random numbers of its own, whatever seed a run has."""
_DRAWS = 200
"""Draws of an epoch behind that choice: with 25 devices, the share is met to a percent or so."""


class DeadlineOptions(SchemeOptions):
    """The deadline in seconds; unless given, that by which a ``share`` of all replies is there on average."""

    seconds: float | None = setting(
        default=None, above=0, help="Deadline of an epoch in seconds; chosen from share if unset."
    )
    share: float = setting(
        default=0.5, above=0, below=1, help="Share of all replies that arrive before the chosen deadline on average."
    )


def deadline_for(public: Public, delays: DelayModel, share: float) -> float:
    """Return the least time by which a share of the replies is there, counted over 200 draws of one epoch.

    The draws have a seed of their own, so that the deadline follows from fleet, links and shapes alone.
    """
    replies = delays.reply_seconds(_costs(public), delays.chance(_SEED, 2, 0, _DRAWS))
    return float(np.quantile(replies, share, method="inverted_cdf"))


def _costs(public: Public) -> RoundCosts:
    """Let a device of each size reply for hollow data, and count what it takes."""
    model = {"model": np.zeros((public.features, public.outputs), public.dtype)}
    known = {}
    for samples in set(public.samples):
        work = Work()
        reply = GradientDevice(_hollow(public, samples)).reply(2, model, work)
        known[samples] = work.macs, message_bits(reply)
    macs, up = np.array([known[samples] for samples in public.samples], dtype=np.int64).T
    down, n = np.full(len(up), message_bits(model)), public.devices
    return RoundCosts(np.arange(n), down, macs, up, quorum=n, server_macs=0)


def _hollow(public: Public, samples: int) -> Shard:
    """Return a shard of zeros that takes next to no memory, its Gram matrix known beforehand."""
    d, c, zero = public.features, public.outputs, np.zeros((), public.dtype)
    shard = Shard(np.broadcast_to(zero, (samples, d)), np.broadcast_to(zero, (samples, c)))
    vars(shard).update(gram=np.zeros((d, d), public.dtype), moments=np.zeros((d, c), public.dtype))
    return shard


@final
class Deadline(PlainScheme[DeadlineOptions]):
    """Whoever replies in time counts: epochs of a known length, but the data of slow devices hardly counts."""

    name = "deadline"
    options_type = DeadlineOptions
    exact = False
    follows_timing = True

    def check(self) -> None:
        """Where no deadline is given, something must be known of the fleet."""
        _ = self.seconds

    @cached_property
    def seconds(self) -> float:
        """The deadline, counted from the request."""
        given, delays = self.options.seconds, self.public.delays
        if given is not None:
            return given
        if delays is None:
            raise ScenarioError("schemes.deadline.seconds is not given and nothing is known of the fleet; set it")
        return deadline_for(self.public, delays, self.options.share)

    def server(self) -> Server:
        """Prepare a server that goes on at the deadline, or sooner if everyone has replied."""
        return AveragingServer(self.public, deadline=self.seconds)

    @property
    def survives_losses(self) -> int:
        """All but one: the run goes on, without the data of the lost."""
        return self.public.devices - 1
