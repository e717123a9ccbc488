"""A fleet that is fitted to runs: it predicts others, says what it cannot know, and is a scenario's own."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from codedfl.deploy.site.emulation import Emulation
from codedfl.errors import CodedflError
from codedfl.network import DelayModel
from codedfl.runs import Run
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.scenario import load as load_scenario
from codedfl.studies.fleet_fit import FittedFleet, fit_fleet
from contracts.test_engines import chosen, given
from fleets import fleet
from rundirs import small_run
from sleeping import sleeping_clock
from tiny import is_one_sentence

UNLIKE = [
    {"count": 2, "mac_rate": 25e6, "down_rate": 4e6, "up_rate": 3e6, "d2d_rate": 8e6, "loss": 0.2},
    {"count": 1, "mac_rate": 5e6, "d2d_rate": 3e6, "loss": 0.0},
    {"count": 2, "mac_rate": 2e6, "setup_ratio": 1.5, "up_rate": 1e6, "d2d_rate": 2e6},
]
SIX = [*UNLIKE, {"count": 1, "mac_rate": 1e6}]
TRUE = {"fleet.devices": UNLIKE, "links.loss": 0.1, "timing.draws": 200, "training.epochs": 60}


def simulated(path: Path, scheme: str, seed: int, **changes: Any) -> Run:
    return small_run(path, TRUE | {"scheme": scheme, "timing.seed": seed} | changes)


@pytest.fixture(scope="module")
def fitted_on(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("fitted")
    order = [("conventional", 1), ("conventional", 2), ("sealed-coded", 1)]
    return [simulated(folder / f"{scheme}-{seed}", scheme, seed) for scheme, seed in order]


def relative_error(fitted: FittedFleet, held: Run, path: Path) -> float:
    """How far the mean that a fitted fleet predicts is from the mean of held-out draws, each of which is a run."""
    found = fitted.to_table()
    predicting = held.scenario.with_settings({"fleet": found["fleet"], "links": found["links"], "timing.seed": 0})
    predicted = small_run(path, predicting.to_table())
    return abs(float(predicted.timings[:, -1].mean() / held.timings[:, -1].mean()) - 1)


@pytest.mark.parametrize("scheme", ["conventional", "minibatch", "sealed-coded", "secagg"])
def test_held_out_runs_are_predicted(scheme: str, fitted_on: list[Run], tmp_path: Path) -> None:
    """Other seeds, and schemes that send and compute other amounts, within 10%."""
    held = simulated(tmp_path / "held", scheme, 9)
    assert relative_error(fit_fleet(fitted_on), held, tmp_path / "predicted") < 0.1


def test_rates_are_those_of_the_runs(fitted_on: list[Run]) -> None:
    """Links without noise are found to six digits; the rest within five standard errors of some hundred delays."""
    fitted = fit_fleet(fitted_on)
    true, found = (DelayModel.create(part.fleet, part.links) for part in (fitted_on[0].scenario, fitted))
    for name in ("down_rate", "up_rate"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=1e-5)
    # the two fastest are only seen with each other, at their own rate
    assert found.d2d_rate == pytest.approx(true.d2d_rate, rel=1e-5)
    assert found.mac_rate == pytest.approx(true.mac_rate, rel=0.05)
    assert found.setup_ratio == pytest.approx(true.setup_ratio, rel=0.5)
    assert np.all(abs(found.loss - true.loss) < 0.1)
    assert found.loss[2] == 0
    assert fitted.seen["work"] == np.bincount(_steps(fitted_on, "compute"), minlength=5).tolist()


def _steps(found: list[Run], activity: str) -> list[int]:
    rows = [row for run in found for row in pyarrow.parquet.read_table(run.path / "timeline.parquet").to_pylist()]
    return [row["device"] for row in rows if row["activity"] == activity]


def test_the_file_is_a_scenario_that_others_extend(fitted_on: list[Run], tmp_path: Path) -> None:
    fitted = fit_fleet(fitted_on)
    (tmp_path / "fleet.toml").write_text(fitted.to_toml())
    (tmp_path / "mine.toml").write_text('extends = "fleet.toml"\nscheme = "sealed"\n')
    mine = load_scenario(tmp_path / "mine.toml")
    assert (mine.fleet, mine.links, mine.scheme) == (fitted.fleet, fitted.links, "sealed")
    assert tomllib.loads(fitted.to_toml()).keys() == {"fleet", "links"}
    assert [line[2:] for line in fitted.to_toml().splitlines() if line.startswith("# ")][1:] == list(fitted.remarks)


def test_what_runs_do_not_tell_stays_as_declared(fitted_on: list[Run]) -> None:
    alone = fit_fleet(fitted_on[:1])
    assert any("d2d_rate of all devices as declared" in remark for remark in alone.remarks)
    assert any("links.overhead" in remark for remark in alone.remarks)
    declared, found = (DelayModel.create(part.fleet, part.links) for part in (fitted_on[0].scenario, alone))
    assert found.d2d_rate == pytest.approx(declared.d2d_rate)
    assert found.d2d_loss == pytest.approx(declared.d2d_loss)


def test_workers_that_never_replied_are_named(tmp_path: Path) -> None:
    """Devices that hold no coded block do no work."""
    options = {"schemes.sealed-coded.workers": 3, "schemes.sealed-coded.threshold": 2}
    few = simulated(tmp_path / "few", "sealed-coded", 1, **options)
    fitted = fit_fleet([few])
    (said,) = [remark for remark in fitted.remarks if remark.startswith("mac_rate")]
    assert "devices 3, 4 as declared" in said


def emulated(scheme: str, path: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Run:
    """A deployment whose sites sleep on a clock of their own, so that no time of this machine is measured."""
    settings = {"fleet.devices": SIX, "fleet.server_mac_rate": 1e300, "training.epochs": 60, **changes}

    def slow(wanted: Scenario, device: int) -> Emulation:
        return Emulation.of_scenario(wanted, device, time_scale=0.25)

    with fleet(given(), slow=slow, clock=sleeping_clock(monkeypatch)) as sites:
        wanted = chosen(scheme, **settings)
        return sites.deploy(wanted, path, time_scale=0.25, seeded_keys=True, patience=1e9, longest=1e9)


def test_a_deployment_is_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From whole reply times and the devices' own work alone; the virtual time of another seed, within 10%."""
    shown = [emulated("conventional", tmp_path / str(seed), monkeypatch, **{"timing.seed": seed}) for seed in (1, 2)]
    fitted = fit_fleet(shown)
    assert any(remark.startswith("up_rate / down_rate = 0.5 as declared") for remark in fitted.remarks)
    held = shown[0].scenario.with_settings({"timing.seed": 9, "timing.draws": 200, "training.epochs": 60})
    made, found = given(), fitted.to_table()
    predicting = held.with_settings({"fleet": found["fleet"], "links": found["links"], "timing.seed": 0})
    ends = [
        runs.execute(each, tmp_path / name, problem=lambda: made).timings[:, -1].mean()
        for name, each in {"held": held, "predicted": predicting}.items()
    ]
    assert ends[1] == pytest.approx(ends[0], rel=0.1)


def test_unlike_requests_tell_both_ways_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Requests whose shares of bits down and up differ, on links without loss: both rates, to six digits."""
    run = emulated("conventional", tmp_path / "run", monkeypatch, **{"training.epochs": 20})
    requests, epochs = (pyarrow.parquet.read_table(run.path / f"{name}.parquet") for name in ("devices", "epochs"))
    rows, totals = ({name: each[name].to_numpy().copy() for name in each.column_names} for each in (requests, epochs))
    rows["seconds"] = rows["working_seconds"].copy()
    for way, rate in (("down", 9e6), ("up", 1e6)):
        bits = rng.integers(1000, 9000, len(rows["epoch"]))
        rows[f"{way}_bits"], rows["seconds"] = bits, rows["seconds"] + bits * 1.1 / rate
        totals[f"{way}_bits"] = np.bincount(rows["epoch"] - 1, bits).astype(np.int64)
    pyarrow.parquet.write_table(pyarrow.table(rows), run.path / "devices.parquet")
    pyarrow.parquet.write_table(pyarrow.table(totals), run.path / "epochs.parquet")
    fitted = fit_fleet([runs.load(run.path)])
    assert any("told apart" in remark for remark in fitted.remarks)
    assert (fitted.links.down_rate, fitted.links.up_rate) == pytest.approx((9e6, 1e6), rel=1e-5)
    assert fitted.links.loss == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("file", ["timeline.parquet", "costs.parquet"])
def test_damaged_runs_are_refused(file: str, tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    (run.path / file).write_bytes(b"PAR1")
    with pytest.raises(CodedflError, match=file) as refused:
        fit_fleet([run])
    assert is_one_sentence(str(refused.value))


def test_tables_of_other_fleets_and_versions_are_refused(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    table = pyarrow.parquet.read_table(run.path / "timeline.parquet")
    with pytest.raises(CodedflError, match="5 devices"):
        fit_fleet([small_run(tmp_path / "more", {"fleet.devices": [{"count": 6, "mac_rate": 1e6}]}), run])
    pyarrow.parquet.write_table(table.drop_columns(["macs"]), run.path / "timeline.parquet")
    with pytest.raises(CodedflError, match="no column 'macs'"):
        fit_fleet([run])
    wrong = table.set_column(1, "device", pyarrow.array([99] * table.num_rows))
    pyarrow.parquet.write_table(wrong, run.path / "timeline.parquet")
    with pytest.raises(CodedflError, match="damaged"):
        fit_fleet([run])
    (run.path / "timeline.parquet").unlink()
    with pytest.raises(CodedflError, match="neither"):
        fit_fleet([run])
    with pytest.raises(CodedflError, match="no run is named"):
        fit_fleet([])
