"""The server of the sealed and coded scheme: the stages of its set-up, decoding, and replacement of lost workers."""

from collections.abc import Mapping, Sequence, Set
from functools import partial
from typing import final

import numpy as np
from jaxtyping import Float, UInt

from codedfl.schemes.coded.placing.block_layout import PIECE, REPAIR, BlockLayout
from codedfl.schemes.coded.placing.transfers import PlannedTransfers, counted_stage, planned_stages, planned_transfer
from codedfl.schemes.coded.server import PaddedServer
from codedfl.schemes.coded.worker_choice import Workers
from codedfl.schemes.contract import Restored, Round, Stage
from codedfl.schemes.messages import Message, Work
from codedfl.schemes.public import Public
from codedfl.schemes.sealing import Formats
from codedfl.schemes.sharing.sealed import fresh_grant, pad_of


@final
class SealedCodedServer(PaddedServer):
    """Grants seeds, decodes any K replies, and subtracts the pads."""

    def __init__(self, public: Public, formats: Formats, layout: BlockLayout, workers: Workers) -> None:
        super().__init__(public, formats, workers.chosen, layout.code, layout.width)
        self._layout = layout
        self._first_workers = workers
        self._replacement: int | None = None

    def set_up(self) -> Sequence[Stage]:
        """Return the stages: mask keys, then for each chunk: add up pieces, exchange blocks, distribute coded parts.

        A device sends on a chunk as soon as it has what that takes, while later chunks arrive.
        """
        grants: list[Message] = [fresh_grant(0) for _ in range(self._public.devices)]
        self.add_pads(grants)
        stages, seeds = [], grants
        for planned in planned_stages(self._layout, self._first_workers.chosen):
            own = seeds if planned.kind == PIECE else []
            first_offline = self._public.first_offline
            counted = partial(
                counted_stage, planned, self._layout, own[0] if own else None, first_offline=first_offline
            )
            stages.append(Stage(PlannedTransfers(planned, own), after=planned.after, counted=counted))
            seeds = [] if own else seeds
        return stages

    def add_pads(self, grants: Sequence[Message]) -> None:
        """Add up all pads chunk by chunk, and assemble the sum as devices assemble the data."""
        bands = self._layout.bands
        pads = np.zeros((self._public.features,) * 2, self._field.dtype)
        for chunk in range(bands.chunks):
            total = np.zeros(bands.chunk_size(chunk), self._field.dtype)
            for device, grant in enumerate(grants):
                pad_of(self._field, device, grant, chunk, self._public.nonce(device)).add_to(total)
            for number in bands.chunk(chunk * bands.adders):
                blocks, self._moment_pads[bands.rows_of(number)] = bands.unpack(number, total[bands.within(number)])
                for other, block in blocks.items():
                    pads[bands.band(number), bands.band(other)] = block
                    pads[bands.band(other), bands.band(number)] = block.T
        self._pads = bands.natural(pads)

    def ask(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Request the bands of the right-hand side first, then products, any K of which suffice."""
        if epoch == 1:
            return self._ask_moments(model)
        workers, K = sorted(self._workers), self._needed
        message = {"model": self._field.to_wire(self._products.ask(model))}
        return Round.same(epoch, workers, message, self._product_layout, point=self._products.point, quorum=K, needed=K)

    def _ask_moments(self, model: Float[np.ndarray, "d c"]) -> Round:
        layout = self._layout
        owners = [layout.owner(number) for number in range(layout.bands.adders)]
        heights = {device: sum(map(layout.bands.height, layout.owned_by(device))) for device in owners}
        wire, c = self._field.wire_layout, self._public.outputs
        expected = {device: {"moments": wire(height, c)} for device, height in heights.items()}
        return Round(1, {device: {} for device in heights}, np.zeros_like(model), expected=expected)

    def summed_moments(self, replies: Mapping[int, Message], work: Work) -> UInt[np.ndarray, "d c"]:
        """Put the bands of the right-hand side together, which differ in height."""
        moments = np.zeros_like(self._moment_pads)
        for device, reply in replies.items():
            rows = np.concatenate([self._layout.bands.rows_of(number) for number in self._layout.owned_by(device)])
            who = f"The reply of device {device}"
            moments[rows] = self._field.read(reply, "moments", (len(rows), self._public.outputs), who)
        return moments

    def after_epoch(self, epoch: int, reply_seconds: Mapping[int, float], lost: Sequence[int]) -> Stage | None:
        """Replace a lost worker by the fastest remaining device, while at least K workers are left."""
        if self._replacement is not None and not lost:
            self._workers.append(self._replacement)
        elif not lost:
            return None
        self._gone |= set(lost)
        self._replacement = None
        self._workers = [worker for worker in self._workers if worker not in self._gone]
        spare = [d for d in self._first_workers.order if d not in self._gone and d not in self._workers]
        enough = self._layout.code.K <= len(self._workers) < self._first_workers.count
        if not (enough and spare):
            return None
        self._replacement = spare[0]
        return self._rebuild(spare[0], self._workers[: self._layout.code.K])

    def _rebuild(self, replacement: int, helpers: Sequence[int]) -> Stage:
        """Let K workers send multiples of their coded blocks, whose sum is the new coded block."""
        code = self._layout.code
        factors = self._field.product(code.generator[replacement : replacement + 1], code.decoder(helpers))[0]
        pairs = zip(helpers, self._field.to_wire(factors), strict=True)
        return Stage(
            [planned_transfer(each, replacement, REPAIR, more={"factor": np.array(factor)}) for each, factor in pairs]
        )

    def replacements(self) -> Sequence[Stage]:
        """Let replacement workers get their coded blocks from K of the first workers, present ones first."""
        helpers = sorted(self._first_workers.chosen, key=self._gone.__contains__)[: self._layout.code.K]
        later = [worker for worker in self._workers if worker not in self._first_workers.chosen]
        return [self._rebuild(worker, helpers) for worker in later]

    def keep(self) -> Message:
        """Return the sum of all pads, which opens nothing but sums over all devices."""
        return {} if self._pads is None else {"pads": self._pads}

    def resume(self, state: Message, kept: Message, holders: Sequence[int], present: Set[int]) -> Restored | None:
        """Go on with K coded blocks at least; they give those of workers that have none, the fastest devices first."""
        K, first = self._layout.code.K, self._first_workers
        before = state["workers"].tolist()
        workers = sorted(holders, key=lambda device: device not in before)[: first.count]
        if len(workers) < K or "pads" not in kept:
            return None
        self.rewind(state)
        self._pads, self._gone = kept["pads"], set(range(self._public.devices)) - present
        spare = [each for each in first.order if each in present and each not in workers]
        later = spare[: first.count - len(workers)]
        self._workers = [*workers, *later]
        return Restored([self._rebuild(each, workers[:K]) for each in later])
