"""Sentences and tables of reports: runs are compared only where that is fair, and nothing is left out of sums."""

import json
from pathlib import Path
from typing import Any

import pytest

from codedfl.errors import RunDirectoryError
from codedfl.report.pages.chart_data import device_costs
from codedfl.report.pages.sections import costs_table, headline, privacy_section
from codedfl.runs import Run, execute, load
from report.pages.test_text import read
from rundirs import small

FEW = {"training.epochs": 6, "timing.draws": 4, "training.targets": [0.05]}


def made(folder: Path, scheme: str, **changes: Any) -> Run:
    settings = {name.replace("__", "."): value for name, value in changes.items()}
    return execute(small({**FEW, "scheme": scheme, **settings}), folder / f"{scheme}-{len(list(folder.iterdir()))}")


def test_the_quickest_is_compared_with_the_benchmark(tmp_path: Path) -> None:
    schemes = ("minibatch", "conventional")
    target = min(float(made(tmp_path, scheme).epochs["accuracy"].max()) for scheme in schemes)
    runs = {scheme: [made(tmp_path, scheme, training__targets=[target])] for scheme in schemes}
    times = {label: float(run.seconds_to(target).mean()) for label, (run,) in runs.items()}  # type: ignore[union-attr]
    quick, slow = sorted(times, key=lambda label: times[label])
    words = headline(runs)
    assert times[slow] > 1.01 * times[quick], "else there is nothing to say"
    assert f"{quick} reaches accuracy {target:g}" in words
    assert f"{times[slow] / times[quick]:.3g} times sooner than {slow}" in words


def test_runs_on_other_links_are_not_compared(tmp_path: Path) -> None:
    runs = {"a": [made(tmp_path, "minibatch")], "b": [made(tmp_path, "minibatch", links__loss=0.4)]}
    assert "times are not compared" in headline(runs)
    assert "sooner" not in headline(runs)


def test_a_target_that_not_all_have_does_not_count(tmp_path: Path) -> None:
    runs = {"a": [made(tmp_path, "minibatch")], "b": [made(tmp_path, "minibatch", training__targets=[0.06])]}
    assert "reaches" not in headline(runs)


def test_every_device_of_every_run_has_a_row(tmp_path: Path) -> None:
    first, second = made(tmp_path, "minibatch"), made(tmp_path, "conventional")
    fewer = execute(small({**FEW, "scheme": "minibatch"}).with_devices(2), tmp_path / "fewer")
    costs = [(str(number), run, device_costs(run)) for number, run in enumerate((fewer, first, second))]
    found = read(costs_table([(label, run, each) for label, run, each in costs if each is not None]))
    rows = sum(run.scenario.fleet.size for _, run, _ in costs)
    assert found.tags.count("tr") == rows + len(costs)


def test_releases_add_up() -> None:
    promise = {"epsilon": 1.5, "delta": 1e-5, "statement": "<b>"}
    content = privacy_section([("a", promise), ("b", promise), ("c", None)]).content
    assert "epsilon 3" in content
    assert "delta 2e-05" in content
    assert "Without noise, so that nothing bounds it: c." in content
    assert "<b>" not in content


@pytest.mark.parametrize("key", ["time_to_accuracy_band", "bits_per_device", "verdict", "leakage"])
def test_summaries_without_a_key_are_damaged(tmp_path: Path, key: str) -> None:
    run = made(tmp_path, "minibatch")
    summary = json.loads((run.path / "summary.json").read_text())
    del summary[key]
    (run.path / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(RunDirectoryError, match="is damaged"):
        load(run.path)


def test_costs_of_other_devices_are_damaged(tmp_path: Path) -> None:
    run, other = made(tmp_path, "minibatch"), execute(small(FEW).with_devices(2), tmp_path / "other")
    (run.path / "costs.parquet").write_bytes((other.path / "costs.parquet").read_bytes())
    with pytest.raises(RunDirectoryError, match=r"costs\.parquet' is damaged"):
        device_costs(run)
