"""Cost of one timing draw of one epoch as the fleet grows: at most linear."""

from typing import Any

import numpy as np

from benchmarks.measure import best_seconds, show
from codedfl.network import Clock, DelayModel, Draws, RoundCosts
from codedfl.scenario import DeviceGroup, Fleet, Links

SIZES = (25, 250, 2_500, 25_000)
DRAWS = 200


def main() -> dict[str, Any]:
    """Draw the epochs of conventional FL for fleets of four sizes; the time of a draw, and of a draw and device."""
    seconds = {}
    for size in SIZES:
        group = DeviceGroup(count=size, mac_rate=1e6)
        delays = DelayModel.create(Fleet(devices=(group,)), Links())
        ones = np.ones(size, dtype=np.int64)
        costs = RoundCosts(np.arange(size), 640_000 * ones, 40_000_000 * ones, 640_000 * ones, size, 0)
        best = best_seconds(
            {"draw": lambda d=delays, c=costs: Clock(Draws(d, seed=0, count=DRAWS)).ask(2, 0, c)}, rounds=5
        )  # type: ignore[misc]
        seconds[size] = best["draw"] / DRAWS
        show(f"one draw, N = {size}", seconds[size] * 1e6, unit="us")
        show("  for each device", seconds[size] / size * 1e9, unit="ns")
    growth = {size: (seconds[size] / seconds[SIZES[0]]) / (size / SIZES[0]) for size in SIZES}
    show("growth from 25 to 25,000 devices, relative to linear", growth[SIZES[-1]], 1.0)
    return {"seconds_per_draw": seconds, "relative_to_linear": growth}


if __name__ == "__main__":
    main()
