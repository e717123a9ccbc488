"""One fleet on FLARE for all tests that need real processes: starting it takes longer than any of them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:  # what is imported here would be so before the checker of signatures is in place
    from benchmarks.lab import Lab

    from codedfl.scenario import Scenario

DEVICES = 4


@pytest.fixture(scope="session")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> "Scenario":
    """Few samples of few features, a scheme that any two of four devices suffice for, and a solver that ends late."""
    from codedfl.scenario import Scenario

    rng = np.random.default_rng(0)
    x, path = rng.standard_normal((80, 6)).round(3), tmp_path_factory.mktemp("data") / "data.csv"
    labels = np.argmax(x[:, :3], axis=1)
    rows = [",".join(map(str, [*values, "abc"[label]])) for values, label in zip(x.tolist(), labels, strict=True)]
    path.write_text("\n".join(["u,v,w,x,y,z,what", *rows]) + "\n")
    return Scenario.from_table(
        {
            "scheme": "sealed-coded",
            "data": {"source": str(path), "kind": "classification", "target": "what"},
            "features": {"kind": "none"},
            "task": {"precision": "float64"},
            "fleet": {"devices": [{"count": DEVICES, "mac_rate": 25e6}]},
            "training": {"solver": "gradient-descent", "epochs": 12, "learning_rate": 0.05},
            "schemes": {"sealed-coded": {"workers": DEVICES, "threshold": 2}},
        }
    )


@pytest.fixture(scope="session")
def lab(scenario: "Scenario", tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Lab]":
    pytest.importorskip("nvflare", reason="a deployment needs NVIDIA FLARE, of the extra 'flare'")
    import psutil
    from benchmarks.lab import Lab
    from benchmarks.networks import Forwarder

    import codedfl
    from codedfl.deploy.flare.processes import kits_of, status

    with pytest.MonkeyPatch.context() as patch:
        # FLARE starts processes in other folders; they are to run this very source
        before = os.environ.get("PYTHONPATH")
        paths = [str(Path(codedfl.__file__).parents[1]), *([before] if before else [])]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        made = Lab(tmp_path_factory.mktemp("lab"), scenario, Forwarder())
        with made.running():
            yield made
    assert [(one.pid, one.jobs) for one in status(kits_of(made.kits))] == [(None, ())] * (1 + DEVICES)
    lines = [" ".join(one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"])]
    assert not any(str(made.folder) in line for line in lines)
