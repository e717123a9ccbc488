"""Secure aggregation as a wrapper of another scheme: the server learns the sum of all replies, and no single reply.

The inner scheme can be any whose gradient depends only on the sum of the replies and on which devices replied, so that
``Scheme.reply_sum`` is not None. Devices send its replies under the masks of ``schemes.aggregated.server``: residues as
they are, other numbers in fixed point in Z_2^64. The server opens the exact sum. It passes the sum to the inner server
as the reply of the first device in it, and zeros as the replies of all others.

The options of the inner scheme are in its own table of the scenario, ``[schemes.INNER]``.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl.cipher.masks.graph import MaskGraph
from codedfl.cipher.masks.pairwise import AgreementKey, KeyAgreement
from codedfl.cipher.seals import FixedPoint, Ring
from codedfl.network import RoundCosts
from codedfl.privacy.release import Release
from codedfl.scenario import Privacy, SchemeOptions, known_options
from codedfl.schemes.aggregated.cohort import Cohort
from codedfl.schemes.aggregated.costs import masked_epochs, question_costs
from codedfl.schemes.aggregated.device import SUM_BITS, MaskedDevice, form_message, masked_layouts, sum_format
from codedfl.schemes.aggregated.noisy import ExactReplies, kept_bits, model_steps
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
from codedfl.schemes.contract import CountedCosts, Device, ReplySum, Restored, Round, Scheme, Server, Sharing, Stage
from codedfl.schemes.messages import Layout, Message, Work, message_bits
from codedfl.schemes.rounding import RAISE, Rounding, refuse_outlier
from codedfl.schemes.sealing import check_bounds
from codedfl.schemes.secrecy import LEAKS, SUMS, Cell, Leakage, Secrecy, all_cells
from codedfl.settings import setting
from codedfl.task import Shard


class SecAggOptions(SchemeOptions):
    """The name of the inner scheme, and how many devices' shares open a sum (by default two thirds of all).

    >>> SecAggOptions(inner="sealed").others
    ('sealed',)
    """

    inner: str = setting(default="conventional", help="The scheme whose replies are masked and added.")
    threshold: int | None = setting(
        default=None, low=2, help="Devices whose shares open a sum; two thirds of all if unset."
    )
    neighbours: int | None = neighbours_setting()

    @property
    def others(self) -> tuple[str, ...]:
        """The inner scheme, whose options are also read."""
        return (self.inner,)

    @property
    def file_solver(self) -> str:
        """The solver of the inner scheme."""
        known = known_options()
        return known[self.inner]().file_solver if self.inner in known else super().file_solver

    def check_fleet(self, devices: int) -> None:
        """Refuse a single device, and a threshold of at most half of the devices."""
        check_threshold("secagg", self.threshold, devices)


@final
class SecAggServer(Server):
    """Requests masked replies, opens their sum, and passes it to the inner server."""

    def __init__(
        self,
        reply_sum: ReplySum,
        threshold: Threshold,
        inner: Server,
        *,
        averages: bool,
        signed: bool = False,
        holdings: int = 0,
        kept: int | None = None,
        graph: MaskGraph | None = None,
        agreement: KeyAgreement = AgreementKey,
    ) -> None:
        """With ``averages``, any set of replies suffices for the inner server; the rest as in a sum.

        With ``kept``, the bits of noisy Gram matrices, models are rounded so that products are exact.
        """
        self._kept = kept
        self._graph = graph
        self._agreement = agreement
        self._signed = signed
        self._holdings = holdings
        self._reply_sum = reply_sum
        self._averages = averages
        self._threshold = threshold
        self._inner = inner
        self._sum: MaskedSum | None = None
        self._form: FixedPoint | None = None

    def ask(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Begin a sum over the requests of the inner server; a single request is sent without masks."""
        question = self._inner.ask(epoch, model)
        requests = question.requests
        if len(requests) < 2:
            self._sum = None
            return question
        kinds = {id(request): request for request in requests.values()}.values()
        ring, self._form = sum_format([self._reply_sum(epoch, request) for request in kinds], len(requests))
        told = {} if self._form is None else form_message(self._form.data_bits)
        point = question.point
        if self._form is not None and self._kept is not None:
            bits = self._form.data_bits - self._kept
            told["model"] = point = np.ldexp(model_steps(model, bits), -bits)
        self._sum = MaskedSum(
            epoch,
            {device: {**request, **told} for device, request in requests.items()},
            self._threshold,
            ring,
            awaited=question.quorum,
            needed=0 if self._averages else question.least,
            proper=masked_layouts(question.expected, ring),
            deadline=question.deadline,
            signed=self._signed,
            holdings=self._holdings,
            graph=self._graph,
            agreement=self._agreement,
        )
        return replace(self._sum.begin(), point=point)

    def follow_up(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Round | None:
        """Return the next round; the third has the inner server's requests and deadline."""
        return None if self._sum is None else self._sum.follow_up(replies)

    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Open the sum, and pass it to the inner server as one device's reply, with zeros as the others."""
        if self._sum is None:
            return self._inner.combine(epoch, replies, work)
        opened = self._sum.opened(replies, work)
        total: Message = (
            opened if self._form is None else {name: self._form.decode_sum(part) for name, part in opened.items()}
        )
        nothing = {name: np.zeros_like(part) for name, part in total.items()}
        first, *others = self._sum.survivors
        return self._inner.combine(epoch, {first: total, **dict.fromkeys(others, nothing)}, work)

    def set_up(self) -> Sequence[Stage]:
        """Return the stages of the inner server."""
        return self._inner.set_up()

    def after_epoch(self, epoch: int, reply_seconds: Mapping[int, float], lost: Sequence[int]) -> Stage | None:
        """Return the stage of the inner server."""
        return self._inner.after_epoch(epoch, reply_seconds, lost)

    def receive(self, sender: int, parcel: Message) -> None:
        """Pass an upload to the inner server."""
        self._inner.receive(sender, parcel)

    def state(self) -> Message:
        """Return the inner server's state; no sum lasts longer than an epoch."""
        return self._inner.state()

    def restore(self, state: Message) -> Restored:
        """Restore the inner server."""
        return self._inner.restore(state)

    def totals(self) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d c"]] | None:
        """Return the totals of the inner server."""
        return self._inner.totals()


@final
class SecAgg(Scheme[SecAggOptions]):
    """The inner scheme with every reply under masks that cancel in the sum; it keeps the inner promises."""

    name = "secagg"
    options_type = SecAggOptions
    verdict = SUMS
    verdict_reason = SECAGG_REASON

    @property
    def chosen_by_delays(self) -> Hashable:
        """What the scheme inside chooses."""
        return tuple(each.chosen_by_delays for each in self.wrapped)

    @property
    def opens_sums(self) -> bool:
        """True: of the devices that survive a round."""
        return True

    @property
    def inner(self) -> Scheme[Any]:
        """The inner scheme."""
        return self.wrapped[0]

    def check(self) -> None:
        """Refuse a single device, and what the inner scheme refuses."""
        check_sums(self.name, self.options.threshold, self.public, self.graph)
        self.inner.check()
        if not self.inner.exact and (masks := self._mask_rounding) is not None:
            refuse_outlier(self.name, self.public, masks)

    @property
    def threshold(self) -> Threshold:
        """How many devices' shares open a sum; all of them where devices add noise."""
        return private_threshold(self.public, Threshold(self.options.threshold))

    @cached_property
    def graph(self) -> MaskGraph:
        """Who shares masks with whom; of devices that hand over, whoever remains: every two of them."""
        return MaskGraph.of(self.public.devices, self.options.neighbours if self.inner.sharing is None else 0)

    def refuses_noise(self, privacy: Privacy) -> str | None:
        """Take noise if every sum is over all devices."""
        if not self.inner.exact:
            return f"sums of '{self.inner.name}' are over changing data, and their differences show single devices"
        if privacy.losses:
            return "privacy.losses must be 0, because sums with and without a device show its share of the noise"
        if privacy.release == "once" or self.uses_rows:
            return None
        return f"devices of '{self.inner.name}' do not clip gradients; set schemes.secagg.inner = 'conventional'"

    @property
    def uses_rows(self) -> bool:
        """As the inner scheme."""
        return self.inner.uses_rows

    @property
    def exact(self) -> bool:
        """As the inner scheme."""
        return self.inner.exact

    @property
    def rounding(self) -> Rounding | None:
        """As the inner scheme; beside that, devices round replies that are no residues to half a step of the sum.

        A step is at most 2^(1 - 62) times the bound on the sum, which grows with the largest ||Theta_k||_1.
        """
        inner, own, public = self.inner.rounding, self._mask_rounding, self.public
        if inner is None or own is None:
            return inner
        if self._kept is not None:  # devices round what they multiply, once, and nothing else
            steps = public.devices / 2 * 2.0 ** -self._kept[0], public.devices / 2 * 2.0 ** -self._kept[1]
            return Rounding(*steps, uniform=steps).beside(inner)
        found = own.beside(inner)
        if 2 * own.relative(public) < inner.relative(public) + own.relative(public):
            return found
        cause = (
            f"features up to {public.largest_feature:g} and targets up to {public.largest_target:g}, far above what "
            "is typical"
        )
        return replace(found, cause=cause, advice=f'set features.scale = "standard", remove outliers {RAISE}')

    @property
    def _mask_rounding(self) -> Rounding | None:
        """The error of replies that are no residues, which devices round to half a step of the sum; None: none."""
        public, zero = self.public, np.zeros((self.public.features, self.public.outputs))
        unit = zero.copy()
        unit[0] = 1.0
        first, second = (self._reply_sum(2, {"model": model}) for model in (zero, unit))
        if isinstance(first, Ring) or isinstance(second, Ring):
            return None
        half = public.devices * 2.0**-SUM_BITS
        return Rounding(0.0, half * first, joint=half * (second - first), uniform=(0.0, half * first))

    @cached_property
    def _kept(self) -> tuple[int, int] | None:
        """The bits of noisy Gram matrices and right-hand sides where replies are no residues; else None."""
        release = self.public.release
        return kept_bits(release) if isinstance(release, Release) and self._mask_rounding is not None else None

    @property
    def follows_timing(self) -> bool:
        """As the inner scheme."""
        return self.inner.follows_timing

    @property
    def survives_losses(self) -> int:
        """All but t if the inner scheme averages over any replies, else at most as many as it survives."""
        spare = survived_losses(self.graph, self.threshold)
        return spare if self.inner.averages else min(self.inner.survives_losses, spare)

    @property
    def uploads(self) -> bool:
        """As the inner scheme."""
        return self.inner.uploads

    @property
    def sharing(self) -> Sharing | None:
        """As the inner scheme, with four rounds per epoch."""
        inner = self.inner.sharing
        return None if inner is None else replace(inner, rounds=self._rounds)

    def _rounds(self, active: int, alone: RoundCosts, reply: Message) -> Sequence[RoundCosts]:
        """Return the costs of four rounds, which grow with the number of active devices; of one if one is active."""
        return (alone,) if active < 2 else question_costs(active, self.threshold, alone, reply)

    @property
    def _reply_sum(self) -> ReplySum:
        if self.inner.reply_sum is None:
            raise TypeError(f"replies of '{self.inner.name}' do not add up")
        return self.inner.reply_sum

    def counted(self, shards: Sequence[Shard], epochs: int) -> CountedCosts | None:
        """Count the inner scheme, and add the rounds of the sums, if every sum is over all devices."""
        inner = self.inner.counted(shards, epochs)
        if inner is None or self._kept is not None:
            return None
        form = message_bits({} if self._mask_rounding is None else form_message(0))
        return masked_epochs(inner, self.graph, self.threshold, self.public.features * self.public.outputs, form)

    def parcels(self, index: int) -> Sequence[Layout] | None:
        """As the inner scheme."""
        return self.inner.parcels(index)

    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device of the inner scheme that masks its replies; refuse data that exceed the agreed bounds."""
        check_bounds(self.public, shard)
        share = self.public.samples[index] / self.public.total
        release = self.public.release  # noise of each epoch is in residues, which are not rounded
        noisy, coarsest = None, math.inf
        if isinstance(release, Release) and self._kept is not None:
            noisy, coarsest = ExactReplies(shard, release), release.coarsest_steps[1]
        inner = self.inner.device(index, shard)
        return MaskedDevice(index, inner, self._reply_sum, share, self._cohort, noisy=noisy, coarsest=coarsest)

    @cached_property
    def _cohort(self) -> Cohort:
        """What every device knows of the others."""
        hands_over, degree, survives = self.inner.sharing is not None, self.graph.degree, self.survives_losses
        return Cohort.of(self.public, self.threshold, survives=survives, hands_over=hands_over, degree=degree)

    def server(self) -> Server:
        """Prepare a server that wraps that of the inner scheme."""
        return SecAggServer(
            self._reply_sum,
            self.threshold,
            self.inner.server(),
            averages=self.inner.averages,
            signed=self.public.signed,
            holdings=0 if self.inner.sharing is None else self.public.devices,
            kept=None if self._kept is None else self._kept[0],
            graph=self.graph,
            agreement=self.public.agreement,
        )

    @property
    def allowed_if(self) -> str:
        """Sums may be learned; hand-overs of the inner scheme add its own condition."""
        pooled = " and colludes with no device" if self.inner.sharing is not None else ""
        return sums_allowed(self.public, self.threshold, "gradients", self.graph) + pooled

    def secrecy(self) -> tuple[Secrecy, ...]:
        """The server sees sums; over cohorts that change, differences of them; hand-overs as in the inner scheme."""
        views = aggregated_views(self.public, self.threshold, self.graph)
        if not self.inner.exact:
            differ = Cell(LEAKS, "sums of different devices in different epochs can be subtracted from each other")
            for name in ("server", "server and devices", "deviating server"):
                views[name] = views[name]._replace(gradient=differ, gram=differ, own=differ)
        elif self.survives_losses:
            reason = (
                "a server that calls a device lost has sums with and without it; a threshold of all devices excludes it"
            )
            lost = Cell(LEAKS, reason)
            views["deviating server"] = views["deviating server"]._replace(gradient=lost, gram=lost, own=lost)
        if self.inner.sharing is None:
            return all_cells(views)
        # parcels, and what a server does with them, are those of the inner scheme
        kept = ("server", "deviating server", "devices", "model reader")
        return tuple(
            cell if cell.adversary in kept else own
            for cell, own in zip(all_cells(views), self.inner.secrecy(), strict=True)
        )

    def leakage(self) -> Leakage:
        """Return what each party sees: the server sums only, the others what they see in the inner scheme."""
        found = secagg_leakage(self.public, self.threshold, "replies", self.graph)
        if self.inner.sharing is None:
            return found
        inner = self.inner.leakage()
        return Leakage(server=found.server, devices=inner.devices, eavesdropper=inner.eavesdropper)
