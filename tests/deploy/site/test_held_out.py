"""Sites hold rows of their own files out; the server opens sums of counts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.data import Preparation
from codedfl.deploy.protocol.sums import SumOrder
from codedfl.deploy.protocol.wire import decode
from codedfl.errors import EngineError
from codedfl.runs import directory as runs
from codedfl.task.folds import held_out_rows
from codedfl.task.metrics import Counts
from codedfl.task.preparing import COUNTS, SumRequest
from contracts.test_engines import chosen, given
from deploy.site.test_preparation import SIZES, deployed, scenario
from fleets import fleet

SHARE = 0.3


@pytest.mark.parametrize(
    ("scheme", "changes"),
    [
        ("sealed-coded", {}),
        ("secagg", {}),
        ("conventional", {"features.scale": "none", "features.intercept": False}),
        ("one-shot", {"task.ridge": [1e-3, 0.1], "task.folds": 3}),
    ],
)
def test_sites_hold_out_the_rows_of_virtual_time(scheme: str, changes: dict[str, Any], tmp_path: Path) -> None:
    wanted = changes | {"data.held_out": SHARE}
    real = deployed(scenario(tmp_path, scheme, **wanted), tmp_path, share_categories=True)
    for number in range(1, len(SIZES) + 1):
        (tmp_path / f"device-{number}.csv").rename(tmp_path / f"owner-{number}.csv")
    together = {"data.source": str(tmp_path / "owner-*.csv"), "partition.kind": "files", "data.target": "price"}
    virtual = runs.execute(
        scenario(tmp_path, scheme, **wanted, **together, **{"data.test_fraction": 0.0}), tmp_path / "virtual"
    )
    assert np.allclose(real.model, virtual.model, rtol=1e-12, atol=0)
    assert real.summary["scored_on"] == virtual.summary["scored_on"] == "rows held out by devices"
    found, expected = real.summary["scoring"], virtual.summary["scoring"]
    assert 0 < found["rows"] == expected["rows"] < sum(SIZES) / 2
    assert real.load_model().samples == sum(SIZES) - found["rows"]
    for name in ("r2", "rmse", "mae"):
        assert real.summary["metrics"][name] == pytest.approx(virtual.summary["metrics"][name], rel=1e-9)
    assert real.summary["leakage"] == virtual.summary["leakage"]


@pytest.mark.parametrize("scheme", ["conventional", "sealed-coded", "secagg"])
def test_classes_are_counted_where_nothing_is_prepared(scheme: str, tmp_path: Path) -> None:
    with fleet(given()) as sites:
        wanted = chosen(scheme).with_settings({"data.held_out": SHARE})
        run = sites.deploy(wanted, tmp_path / "run", check=False)
        asked = [decode(payload).fields for _, payload in sites.recording.sent]
    expected = np.zeros((3, 3))
    for device, shard in enumerate(given().shards):
        out = held_out_rows(shard.samples, SHARE, seed=0, device=device)
        expected += Counts.classified(shard.x[out] @ run.model, np.argmax(shard.y[out], axis=1)).table
    assert expected.sum() > 0
    assert run.summary["metrics"]["confusion_matrix"] == expected.astype(int).tolist()
    assert run.summary["final_accuracy"] == pytest.approx(np.trace(expected) / expected.sum())
    assert {fields["sums"]["kind"] for fields in asked if "sums" in fields} == {"columns", "counts"}


def test_a_lost_site_costs_the_score_and_not_the_model(tmp_path: Path) -> None:
    """It is lost when the server asks for counts."""
    with fleet(given()) as sites:

        def vanish(site: str, tag: int, payload: bytes) -> bytes | None:
            frame = decode(payload)
            if site == sites.sites[0] and frame.fields.get("sums", {}).get("kind") == "counts":
                sites.faults.unreachable.add(site)
                return None
            return payload

        sites.faults.question = vanish
        wanted = chosen("sealed-coded").with_settings({"data.held_out": SHARE})
        run = sites.deploy(wanted, tmp_path / "run", check=False)
    assert run.summary["metrics"] is None
    assert run.summary["scored_on"] is None
    assert "were not scored" in run.summary["remark"]
    assert sites.sites[0] in run.summary["remark"]
    assert np.isfinite(run.model).all()


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"models": np.zeros((2, 3, 2))},
        {"models": np.zeros((1, 3, 2)), "center": np.zeros(3)},
        {"models": np.full((1, 3, 2), np.nan)},
        {"models": np.zeros((1, 3, 2)), "other": np.zeros(2)},
    ],
)
def test_orders_of_counts_that_do_not_fit_are_refused(arrays: dict[str, np.ndarray]) -> None:
    good = SumRequest(COUNTS, {"models": np.zeros((1, 3, 2)), "center": np.zeros(2)}, Preparation.identity(4, 2))
    fields, sent = SumOrder(good).to_message()
    assert SumOrder.read(fields["sums"], sent, 4, 3, 2).request.kind == COUNTS
    with pytest.raises(EngineError, match="does not fit"):
        SumOrder.read(fields["sums"], arrays, 4, 3, 2)
