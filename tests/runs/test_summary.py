"""What a run writes of its epochs."""

import numpy as np

from codedfl.runs.summary import tabulate
from tiny import problem, scenario, trained

FLEET = [{"count": 2, "mac_rate": 1e4}]


def test_epochs_that_not_all_runs_have_get_no_band() -> None:
    """Two runs of a scheme that follows the timing: one has five epochs, the other, in another draw, three."""
    state = trained(problem([4, 5]), scenario({"scheme": "conventional", "fleet.devices": FLEET, "training.epochs": 5}))
    columns = tabulate(state, [np.array([[1.0, 2, 3, 4, 5]]), np.array([[3.0, 6, 9]])])
    assert {len(values) for values in columns.values()} == {5}
    assert columns["time_mean"][:3] == [2, 4, 6]
    assert all(np.isnan(columns[f"time_{name}"][3:]).all() for name in ("mean", "low", "high"))
