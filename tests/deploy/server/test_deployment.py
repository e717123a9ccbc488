"""A run on sites: its directory, and what stops it before it begins."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.deploy.server.deployment import serve
from codedfl.deploy.site import requests
from codedfl.deploy.site.agreement import Agreement
from codedfl.deploy.site.host import DeviceHost
from codedfl.deploy.site.session import LocalData, Site
from codedfl.errors import (
    CodedflError,
    DataError,
    EngineError,
    LostDevicesError,
    RunDirectoryError,
    ScenarioError,
    TrainingError,
    UsageError,
)
from codedfl.runs import Run
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.task import Shard
from codedfl.testing.in_process import any_terms
from contracts.test_engines import EPOCHS, chosen, given
from fleets import InProcessFleet, fleet
from rundirs import strict_json
from tiny import is_one_sentence, problem


def model(run: Run) -> np.ndarray:
    return np.load(run.path / "model.npz")["theta"]


def devices(path: Path) -> dict[str, np.ndarray]:
    table = pyarrow.parquet.read_table(path / "devices.parquet")
    return {name: table[name].to_numpy() for name in table.column_names}


def test_the_directory_is_that_of_every_run(sites: InProcessFleet, tmp_path: Path) -> None:
    run = sites.deploy(chosen("sealed-coded"), tmp_path / "run", check=False)
    files = {path.name for path in run.path.iterdir()} - {".lock"}
    files -= {"deployment.json", "site-records.json"}
    assert files == {
        *("scenario.toml", "epochs.parquet", "summary.json", "model", "model.npz", "timings.npy"),
        *("costs.parquet", "devices.parquet"),
    }
    again = runs.load(run.path)
    assert (again.scenario, again.summary) == (chosen("sealed-coded"), run.summary)
    assert run.timings.shape == (1, EPOCHS)
    assert run.summary["timing_draws"] == 1
    assert np.isnan(run.epochs["time_low"]).all()
    assert np.array_equal(run.epochs["time_mean"], run.epochs["time"])


def test_a_model_of_columns_as_they_are_predicts_by_their_position(sites: InProcessFleet, tmp_path: Path) -> None:
    """The server knows neither names nor, behind a feature map, the number of columns."""
    direct = chosen("sealed-coded").with_settings({"features.kind": "none"})
    run = sites.deploy(direct, tmp_path / "run", check=False)
    found = run.load_model()
    assert np.array_equal(found.theta, model(run))
    assert [column.name for column in found.columns] == [str(number) for number in range(len(found.theta))]
    rows = given().x_test
    assert np.array_equal(found.outputs(rows), rows @ found.theta)
    assert found.classes == (0, 1, 2), "sites keep the names of their classes"
    with pytest.raises(RunDirectoryError, match="its server did not know the columns"):
        mapped = dataclasses.replace(given(), shards=tuple(Shard(shard.x / 100, shard.y) for shard in given().shards))
        with fleet(mapped) as others:
            other = chosen("sealed-coded").with_settings({"features.kind": "rbf"})
            others.deploy(other, tmp_path / "other", check=False).load_model()


def test_a_server_without_data_knows_neither_loss_nor_errors(sites: InProcessFleet, tmp_path: Path) -> None:
    run = sites.deploy(chosen("sealed-coded"), tmp_path / "run", check=False)
    for column in ("accuracy", "loss", "gradient_error"):
        assert np.isnan(run.epochs[column]).all()
    assert (run.epochs["gradient_norm"] > 0).all()
    summary = strict_json((run.path / "summary.json").read_text())
    assert (summary["final_accuracy"], summary["best_accuracy"], summary["gradient_error"]) == (None, None, None)
    assert (summary["metrics"], summary["remark"]) == (None, None)
    assert (summary["virtual_seconds"], summary["real_seconds"]) == (None, run.epochs["time"][-1])
    checked = sites.deploy(chosen("sealed-coded"), tmp_path / "checked")
    assert np.isfinite(checked.epochs["loss"]).all()
    assert np.array_equal(model(run), model(checked))


def test_times_are_real_and_grow(tmp_path: Path) -> None:
    """On the machine's own clock."""
    import time

    with fleet(given()) as sites:
        began = time.monotonic()
        run = sites.deploy(chosen("conventional"), tmp_path / "run", clock=time.monotonic)
        spent = time.monotonic() - began
    times = run.epochs["time"]
    assert (np.diff(times) > 0).all()
    assert 0 < times[0] <= times[-1] <= spent


def test_what_every_device_took_is_kept(sites: InProcessFleet, tmp_path: Path) -> None:
    run = sites.deploy(chosen("conventional"), tmp_path / "run", check=False)
    table = devices(run.path)
    assert list(table) == [
        "epoch",
        "question",
        "device",
        "seconds",
        "working_seconds",
        "down_bits",
        "up_bits",
        "macs",
    ]
    assert len(table["epoch"]) == 6 * EPOCHS
    assert (table["working_seconds"] <= table["seconds"]).all()
    payload = 64 * given().shape[0] * given().shape[1]
    assert (table["down_bits"] > payload).all()
    assert (table["up_bits"] > payload).all()
    asked = [bits for site, bits in ((s, 8 * len(p)) for s, p in sites.recording.sent) if site == "device-3"]
    assert table["down_bits"][table["device"] == 2].tolist() == asked[2:-1], (
        "describe and prepare before, end_session after"
    )
    found = run.summary["deployment"]
    last = table["seconds"][(table["epoch"] == EPOCHS) & (table["device"] == 3)]
    assert found["last_seconds"]["device-4"] == last[0]
    assert set(found["last_working_seconds"]) == set(sites.sites)


def test_a_finished_run_is_loaded_without_asking_anybody(sites: InProcessFleet, tmp_path: Path) -> None:
    first = sites.deploy(chosen("conventional"), tmp_path / "run")
    asked = len(sites.recording.sent)
    sites.faults.silent |= set(sites.sites)
    again = sites.deploy(chosen("conventional"), tmp_path / "run")
    assert (again.summary, len(sites.recording.sent)) == (first.summary, asked)


def test_data_to_check_by_must_be_those_of_the_scenario(sites: InProcessFleet, tmp_path: Path) -> None:
    """Another ridge would be another model."""
    sites.given = dataclasses.replace(sites.given, ridge=0.5)
    assert "another task" in refused(sites, chosen("conventional"), tmp_path / "run", UsageError)


def test_a_run_that_goes_on_without_a_site_that_placed_data_says_so(
    sites: InProcessFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
    scenario = chosen("sealed-coded", **{"schemes.sealed-coded.workers": 3, "schemes.sealed-coded.threshold": 2})

    def stop(site: str, tag: int, payload: bytes) -> list[bytes]:
        frame = decode(payload)
        return [b"garbage"] if frame.fields.get("epoch") == 3 else [payload]

    sites.faults.reply = stop
    with pytest.raises(LostDevicesError, match="epoch 3 got 0 of the 2"):
        sites.deploy(scenario, tmp_path / "run")
    sites.faults.reply = lambda site, tag, payload: [payload]
    sites.faults.question = lambda site, tag, payload: (
        None if site == "device-6" and decode(payload).kind == "carry" else payload
    )
    with pytest.raises(LostDevicesError, match="device-6 cannot be reached, and a resumed run") as error:
        sites.deploy(scenario, tmp_path / "run", longest=60.0)
    assert is_one_sentence(str(error.value))
    sites.faults.question = lambda site, tag, payload: payload
    run = sites.deploy(scenario, tmp_path / "run")
    with fleet(given()) as others:
        whole = others.deploy(scenario, tmp_path / "whole")
    assert np.array_equal(model(run), model(whole))


# before it begins


def refused(sites: InProcessFleet, scenario: Scenario, path: Path, kind: type[CodedflError], **more: Any) -> str:
    with pytest.raises(kind) as error:
        sites.deploy(scenario, path, **more)
    assert is_one_sentence(str(error.value))
    assert not path.exists(), "nothing is written before the sites are found usable"
    return str(error.value)


def replace(sites: InProcessFleet, device: int, **changes: Any) -> None:
    name, shard = sites.sites[device], sites.given.shards[device]
    pins = {site: key.fingerprint for site, key in sites.keys.items()}
    local_data = changes.pop("local_data", LocalData(shard, "classification", ("a", "b", "c")))
    own: dict[str, Any] = {"name": name, "load": lambda scenario: local_data, "key": sites.keys[name], "pins": pins}
    own["agreement"] = any_terms(sites.sites)
    sites.carrier.attach(name, DeviceHost(Site(**(own | changes)), sites.carrier.peers(name)))


def test_there_must_be_a_site_for_every_device(sites: InProcessFleet, tmp_path: Path) -> None:
    sites.sites = sites.sites[:-1]
    assert "5 sites were given for the 6 devices" in refused(
        sites, chosen("conventional"), tmp_path / "run", UsageError
    )


def test_a_site_that_refuses_is_named_with_its_reason(sites: InProcessFleet, tmp_path: Path) -> None:
    replace(sites, 3, agreement=Agreement(cohort=sites.sites, schemes=("sealed",)))
    sentence = refused(sites, chosen("conventional"), tmp_path / "run", EngineError)
    assert "device-4: device-4 has not agreed to scheme 'conventional'" in sentence


def test_a_site_without_the_libraries_of_a_scheme_is_named(
    sites: InProcessFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(requests, "is_installed", lambda library: library != "scipy")
    sentence = refused(sites, chosen("parity"), tmp_path / "run", EngineError)
    words = "device-4 cannot take part in scheme 'parity': it needs scipy, which is not installed there"
    assert f"device-4: {words}; pip install 'codedfl[study]' at that site" in sentence
    assert words in caplog.text, "its owner is told"
    sites.deploy(chosen("conventional"), tmp_path / "other", check=False)


def test_a_scheme_that_does_not_say_what_it_needs_is_refused_in_a_sentence_too(
    sites: InProcessFleet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def lacking(scenario: Scenario) -> LocalData:
        raise ModuleNotFoundError("No module named 'scipy'", name="scipy")

    replace(sites, 2, load=lacking)
    sentence = refused(sites, chosen("conventional"), tmp_path / "run", EngineError)
    assert "device-3: device-3 cannot go on: it needs scipy, which is not installed there; pip install" in sentence
    assert not [record for record in caplog.records if record.exc_info], "no traceback"


def test_data_that_cannot_be_loaded_stop_the_run(
    sites: InProcessFleet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(scenario: Scenario) -> LocalData:
        raise DataError("there is no file mine.csv; check the path.")

    replace(sites, 2, load=broken)
    sentence = refused(sites, chosen("conventional"), tmp_path / "run", EngineError)
    assert "device-3: the data of device-3 cannot be used for this run" in sentence
    assert "mine.csv" not in sentence
    assert "there is no file mine.csv" in caplog.text, "its owner is told"


@pytest.mark.parametrize(
    ("local_data", "words"),
    [
        (LocalData(problem([5], features=11).shards[0], "classification", ("a", "b", "c")), "device 1 has 11 features"),
        (LocalData(given().shards[0], "classification", ("a", "c", "b")), "device-2 and device-1 differ"),
        (LocalData(given().shards[0], "regression"), "device-2 and device-1 differ"),
    ],
)
def test_sites_must_hold_data_alike(local_data: LocalData, words: str, sites: InProcessFleet, tmp_path: Path) -> None:
    replace(sites, 1, local_data=local_data)
    assert words in refused(sites, chosen("conventional"), tmp_path / "run", DataError)


def test_another_version_is_refused(sites: InProcessFleet, tmp_path: Path) -> None:
    def older(site: str, tag: int, payload: bytes) -> list[bytes]:
        frame = decode(payload)
        fields = (
            {**frame.fields, "version": "0.0"} if site == "device-2" and "version" in frame.fields else frame.fields
        )
        return [encode(Frame(frame.kind, fields, frame.arrays))]

    sites.faults.reply = older
    assert "device-2 has version 0.0" in refused(sites, chosen("conventional"), tmp_path / "run", EngineError)


@pytest.mark.parametrize(
    "change",
    [
        {"samples": 0},
        {"features": "many"},
        {"largest_feature": -1.0},
        {"dtype": "int8"},
        {"dtype": "nonsense"},
        {"kind": "poetry"},
        {"classes": None},
        {"member": ["zz"]},
        {"member": ["00" * 32, "00" * 32]},
        {"nonce": None},
        {"nonce": "00"},
    ],
    ids=str,
)
def test_a_site_that_does_not_say_what_it_holds_is_refused(
    change: dict[str, Any], sites: InProcessFleet, tmp_path: Path
) -> None:
    def lie(site: str, tag: int, payload: bytes) -> list[bytes]:
        frame = decode(payload)
        fields = {**frame.fields, **change} if site == "device-2" and "version" in frame.fields else frame.fields
        return [encode(Frame(frame.kind, fields, frame.arrays))]

    sites.faults.reply = lie
    words = refused(sites, chosen("conventional"), tmp_path / "run", EngineError)
    assert "device-2 sent an invalid description" in words


def test_another_cohort_trains_anew_and_does_not_get_the_run_of_the_first(
    sites: InProcessFleet, tmp_path: Path
) -> None:
    """A site is revoked and another added: the scenario is the same, the run is not."""
    table = {"scenario": chosen("conventional", **ON_SITES).to_toml(), "site": {"folder": str(tmp_path)}}
    first = serve(sites.carrier, table | {"sites": list(sites.sites)})
    assert serve(sites.carrier, table | {"sites": list(sites.sites)}) == first
    other = [*sites.sites[1:], sites.sites[0]]
    pins = {site: key.fingerprint for site, key in sites.keys.items()}
    for site, shard in zip(sites.sites, given().shards, strict=True):  # owners agree to the other cohort
        local_data = LocalData(shard, "classification", ("a", "b", "c"))
        load, agreed = (lambda scenario, local_data=local_data: local_data), any_terms(other)
        own = Site(site, load, sites.keys[site], pins, agreed)
        sites.carrier.attach(site, DeviceHost(own, sites.carrier.peers(site)))
    assert serve(sites.carrier, table | {"sites": other})["summary"]["deployment"]["sites"] == other
    with pytest.raises(RunDirectoryError, match="was trained on other sites") as error:
        serve(sites.carrier, table | {"sites": other, "run": first["run"]})
    assert is_one_sentence(str(error.value))


ON_SITES = {
    "data.source": "sites",
    "features.scale": "none",
    "features.intercept": False,
    "training.solver": "gradient-descent",
}


def test_a_data_source_of_sites_is_for_deployments_only(tmp_path: Path) -> None:
    scenario = chosen("conventional", **ON_SITES)
    assert scenario.id() != chosen("conventional").id()
    with pytest.raises(DataError, match="only the sites of a deployment"):
        runs.execute(scenario, tmp_path / "run")
    with fleet(given()) as sites:
        assert sites.deploy(scenario, tmp_path / "real").summary["epochs"] == EPOCHS


def test_divergence_is_noticed_by_the_gradients(sites: InProcessFleet, tmp_path: Path) -> None:
    scenario = chosen("conventional", **{"training.learning_rate": 30.0, "training.epochs": 30})
    with pytest.raises(TrainingError, match=r"norm of the gradient is .* that of the first epoch") as error:
        sites.deploy(scenario, tmp_path / "run", check=False)
    assert "set training.learning_rate (now 30) lower" in str(error.value)
    assert is_one_sentence(str(error.value))


def test_an_adapter_starts_the_server_from_plain_data(sites: InProcessFleet, tmp_path: Path) -> None:
    arguments = {
        "scenario": chosen("conventional", **ON_SITES).to_toml(),
        "sites": list(sites.sites),
        "run": "runs/one",
        "site": {
            "folder": str(tmp_path),
            "fingerprints": {site: key.fingerprint for site, key in sites.keys.items()},
        },
        "patience": 20.0,
    }
    result = serve(sites.carrier, json.loads(json.dumps(arguments)))
    assert result["run"] == str(tmp_path / "runs/one")
    assert result["summary"] == runs.load(tmp_path / "runs/one").summary
    with pytest.raises(ScenarioError):
        serve(sites.carrier, arguments | {"scenario": "nonsense = 1"})
