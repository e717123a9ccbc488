"""Times of sharing schemes in many draws: epochs in blocks against one epoch after the other, CPU seconds and bits."""

import itertools
import time
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measure import show
from codedfl.network import DelayModel, Draws, RoundCosts, TransferCosts
from codedfl.scenario import load
from codedfl.schemes.sharing.policy import SharingPolicy
from codedfl.training.costs import SharedCosts
from codedfl.training.timing import Variant, epoch_ends, replay

EPOCHS, DRAWS = 1000, 100
POLICIES = itertools.product((16, 4), ("once", "reissued"), ("partner", "two-errors"), (2, 1), (0.5, 3.0))


def main() -> dict[str, Any]:
    """Time policies as ``reproduce`` does, on the paper's fleet, with costs of about the paper's sizes."""
    scenario, results = load("paper-92"), {}
    variants = [_variant(scenario.fleet.size, *chosen) for chosen in list(POLICIES)[::3]]
    for channel in ("parallel", "shared"):
        links = scenario.with_settings({"links.d2d_channel": channel}).links
        delays = DelayModel.create(scenario.fleet, links)
        began = time.process_time()
        blocks = epoch_ends(variants, delays, epochs=EPOCHS, seed=3, draws=DRAWS)
        between = time.process_time()
        single, draws = np.empty_like(blocks), Draws(delays, seed=3, count=DRAWS)
        side_by_side = zip(*(replay(variant, draws) for variant in variants), strict=True)
        for epoch, played in enumerate(itertools.islice(side_by_side, EPOCHS)):
            single[:, :, epoch] = [each.ends for each in played]
        slow, quick = time.process_time() - between, between - began
        different = int(np.count_nonzero(blocks != single))
        show(f"{channel} links, {len(variants)} policies, epoch by epoch: CPU time", slow, unit="s")
        show(f"{channel} links, {len(variants)} policies, in blocks: CPU time", quick, unit="s")
        show(f"{channel} links: times that differ, of {blocks.size}", different, 0)
        results[channel] = {"epoch_by_epoch": slow, "in_blocks": quick, "different": different}
    return results


def _variant(devices: int, supports: int, supply: Any, odd_set: Any, detect_from: int, delta: float) -> Variant:
    each, model, coded = np.ones(devices, np.int64), 2000 * 10 * 32, 2000 * 4000

    def costs(down: int, macs: int, up: int, server: int) -> RoundCosts:
        return RoundCosts(np.arange(devices), down * each, macs * each, up * each, devices, server)

    def hand_over(errors: int) -> TransferCosts:
        return TransferCosts(0, 0, 2048 * errors, 2000 * 64 * 5 * errors, 32 * coded, coded)

    shared = SharedCosts(
        first=costs(0, 0, model, 100_000),
        other=costs(model, 10 * coded, 2 * model, 100_000_000),
        granted=hand_over(1),
        forwarded=hand_over(0),
        doubled=hand_over(2),
    )
    options = {"delta": delta, "supply": supply, "odd_set": odd_set, "detect_from": detect_from}
    return Variant(shared, partial(SharingPolicy, devices=devices, supports=supports, **options))
