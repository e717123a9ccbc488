"""The set-up of ``sealed-coded`` in fleets of 25 to 10,000 devices: its time beside the link bound, and its parcels.

The link bound is the mean time in which a device sends its own triangle, sealed, once. Devices are those of the paper,
in the same shares; 2000 features. Costs are counted from sizes.
"""

import time
from collections.abc import Sequence

import numpy as np

from benchmarks.measure import show
from codedfl import schemes
from codedfl.network import DelayModel, Draws, OverlappingStage, TransferTable
from codedfl.scenario import load
from codedfl.training.records import StageRecord, overlapping

DEVICES = 25, 100, 1000, 10_000
DRAWS = {25: 250, 100: 20, 1000: 3, 10_000: 1}


def main() -> dict[str, dict[str, float]]:
    """Print the figures of each size of the fleet."""
    base, found = load("sealed-coded"), {}
    for devices in DEVICES:
        groups = [{**group, "count": group["count"] * devices // 25} for group in base.to_table()["fleet"]["devices"]]
        scenario = base.with_settings({"fleet.devices": groups})
        began = time.perf_counter()
        scheme = schemes.nominal(scenario)
        counted = scheme.counted((), 2)
        assert counted is not None
        stages = [StageRecord(0, each, after=after) for each, after in zip(counted.stages, counted.after, strict=True)]
        delays = DelayModel.create(scenario.fleet, scenario.links)
        draws = Draws(delays, seed=0, count=DRAWS[devices])
        seconds, number = np.zeros(DRAWS[devices]), 0
        for group in overlapping(stages):
            numbered = enumerate(group, start=number)
            seconds += draws.stages([OverlappingStage(i, each.costs, each.after or ()) for i, each in numbered]).seconds
            number += len(group)
        sent, taken = (_most(counted.stages, party, devices) for party in ("sender", "recipient"))
        layout = scheme.layout  # type: ignore[attr-defined]
        bits = sum(layout.sizes["piece"]) * layout.word_bits
        bound = float(np.mean(delays.send_seconds(np.array(bits), delays.d2d_rate) / (1 - delays.d2d_loss)))
        figures = {"seconds": float(seconds.mean()), "link bound": bound, "sent": sent, "received": taken}
        figures |= {"ratio": figures["seconds"] / bound, "wall seconds": time.perf_counter() - began}
        for name, value in figures.items():
            show(f"{devices} devices, {DRAWS[devices]} draws: {name}", value)
        found[str(devices)] = figures
    return found


def _most(stages: Sequence[TransferTable], party: str, devices: int) -> int:
    """Return the most parcels that a device sends or receives."""
    return int(np.sum([np.bincount(each.column(party), minlength=devices) for each in stages], axis=0).max())


if __name__ == "__main__":
    main()
