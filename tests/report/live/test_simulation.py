"""Simulated runs on a live page: what it is told of devices, and that the results stay the same to the last bit."""

from pathlib import Path
from typing import Any

import pytest

from codedfl.report.live import SimulationObserver
from rundirs import results, small_run

SCHEMES: dict[str, dict[str, Any]] = {
    "minibatch": {},
    "drop-slowest": {"scheme": "drop-slowest"},
    "sealed": {"scheme": "sealed", "training.epochs": 60},
    "sealed-coded": {"scheme": "sealed-coded"},
    "asynchronous": {"scheme": "asynchronous"},
}


def watched(path: Path, changes: dict[str, Any]) -> tuple[Any, list[dict[str, Any]], list[str]]:
    tables: list[dict[str, Any]] = []
    begun: list[str] = []
    observer = SimulationObserver(5, lambda: begun.append("begun"))

    def progress(stage: str, done: int, total: int) -> None:
        observer.progress(stage, done, total)
        tables.append(observer.as_table())

    run = small_run(path, changes, observer=observer, progress=progress)
    return run, tables, begun


@pytest.mark.parametrize("name", SCHEMES)
def test_results_are_equal_to_the_last_bit(tmp_path: Path, name: str) -> None:
    run, tables, begun = watched(tmp_path / "watched", SCHEMES[name])
    small_run(tmp_path / "alone", SCHEMES[name])
    assert results(tmp_path / "watched") == results(tmp_path / "alone")
    last = tables[-1]
    assert (last["epoch"], begun) == (run.summary["epochs"], ["begun"])
    assert len(last["handovers"]) == run.summary["handovers"]
    assert [row["site"] for row in last["devices"]] == [f"device-{number}" for number in range(1, 6)]
    assert sum(row["samples_held"] for row in last["devices"]) == sum(row["samples"] for row in last["devices"]) > 0


def test_devices_that_are_not_awaited_compute(tmp_path: Path) -> None:
    _, tables, _ = watched(tmp_path / "run", {"scheme": "drop-slowest"})
    assert sorted(row["state"] for row in tables[-1]["devices"]) == ["replied"] * 4 + ["working"]


def test_lost_and_replacing_devices_are_told(tmp_path: Path) -> None:
    groups = [{"count": 1, "mac_rate": 50e6, "last_epoch": 5}, {"count": 4, "mac_rate": 25e6}]
    options = {"schemes.sealed-coded.workers": 4, "schemes.sealed-coded.threshold": 2}
    run, tables, _ = watched(tmp_path / "run", {"scheme": "sealed-coded", "fleet.devices": groups, **options})
    last = tables[-1]
    lost = [(row["site"], row["lost_in_epoch"]) for row in last["devices"] if row["state"] == "lost"]
    assert lost == [("device-1", 6)]
    assert last["devices"][0]["reason"] == "it left the fleet after its last epoch"
    assert last["replacements"] == [[6, 4]], "the one that was no worker"
    assert last["parcels"] > 0
    assert last["parcel_bytes"] > 0
    assert run.summary["epochs"] == 24
