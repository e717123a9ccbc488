"""The paper's fleet for real: its 25 devices as processes of this machine, beside what virtual time says of them.

    python -m benchmarks.paper_fleet [FOLDER]

Mini-batches and the paper's scheme with "92" bits, the first epochs of the paper's experiment, in which most data are
handed over: rates, links, losses, keys, ciphertexts and hand-overs are those of the paper, on MNIST at full size. How
it is done: ``benchmarks.emulated_fleet``. It needs 13 GB of memory; without as much, or without FLARE, nothing is
measured.
"""

import sys
from pathlib import Path
from typing import Any

from benchmarks.emulated_fleet import measured_beside_predicted
from benchmarks.measure import possible
from codedfl.deploy.flare.names import need_flare
from codedfl.errors import EngineError
from codedfl.scenario import Scenario, load

FOLDER = Path("out/paper-fleet")
EPOCHS = 30
SCALES = {"minibatch": 0.1, "code-based": 0.3}
"""Real seconds for each of the scenario's: an epoch of the paper's scheme takes about 5 s after the hand-overs, one of
mini-batches 32 s, and what is encrypted is so for real, by many at once."""
PRESETS = {"minibatch": "paper", "code-based": "paper-92"}
MEMORY = 13e9
"""Bytes: 25 devices have two processes each, of 150 to 700 MB together."""


def scenario(scheme: str) -> Scenario:
    """Return the first epochs of the paper's experiment."""
    return load(PRESETS[scheme]).with_settings({"training.epochs": EPOCHS})


def main(folder: Path = FOLDER) -> dict[str, Any]:
    """Predict and measure both."""
    return measured_beside_predicted(scenario, SCALES, folder) if possible(need_flare, need_memory) else {}


def need_memory() -> None:
    """Say so if this machine has too little."""
    import psutil

    if psutil.virtual_memory().available < MEMORY:
        raise EngineError(
            f"25 devices need {MEMORY / 1e9:.0f} GB of free memory; end other work, or use another machine"
        )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
