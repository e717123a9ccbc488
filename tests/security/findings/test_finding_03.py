"""Finding 3: kits allow any scheme and any option.

`minibatch` with as many parts as rows and no feature map reads the first raw row. An owner's log names no scheme.
"""

import logging
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="kits need NVIDIA FLARE, of the extra 'flare'")

from security.findings.hostile import HostileServer, attempt
from security.findings.kits import ROWS, KitSites, kit_sites, scenario, table

ANY = {"features.kind": "none", "scheme": "minibatch", "schemes.minibatch.parts": ROWS}


def first_row(sites: KitSites) -> np.ndarray:
    """What the gradient of one row at the model zero is: minus the row, in the column of its class."""
    hostile = HostileServer(sites, scenario(**ANY))  # type: ignore[arg-type]
    model = {"model": np.zeros((4, 2))}
    gradient = hostile.ask(1, {0: model})[0]["gradient"]
    return np.asarray(-gradient.sum(axis=1))


def test_another_scheme_without_a_feature_map_reads_no_raw_row(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with kit_sites(tmp_path, scenario()) as sites:
        error, refusal = attempt(lambda: first_row(sites), table(0)[0][0])
    assert error == np.inf, f"read the first raw row to {error:.0e}"
    assert "device-1 has not agreed to scheme 'minibatch' with these options" in refusal
    assert "has not agreed to scheme 'minibatch'" in caplog.text, "the owner's log says it, too"


@pytest.mark.parametrize(
    "change",
    [
        {"features.kind": "none"},
        {"features.dimension": 15},
        {"features.scale": "standard"},
        {"training.epochs": 5},
        {"schemes.sealed-coded.threshold": 1},
        {"data.held_out": 0.1},
    ],
    ids=str,
)
def test_the_kit_pins_scheme_options_features_and_preparation(change: dict[str, object], tmp_path: Path) -> None:
    with kit_sites(tmp_path, scenario()) as sites, pytest.raises(Exception, match="has not agreed to scheme"):
        sites.deploy(scenario(**change), tmp_path / "run")


def test_the_log_of_the_owner_says_what_was_asked_agreed_computed_and_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with kit_sites(tmp_path, scenario()) as sites:
        sites.deploy(scenario(), tmp_path / "run")
    own = [each.getMessage() for each in caplog.records if ".site." in each.name]
    text = " ".join(line for line in own if line.startswith("device-2"))
    assert "asks for scheme sealed-coded" in text
    assert "the server sees sums over all devices" in text
    # of three devices: two keys, and two pieces, one block and two parts of each of two chunks
    assert re.search(r"ended \(finished\): [1-4] replies, 12 parcels, \d+ bytes sent, 0 requests refused", text)
