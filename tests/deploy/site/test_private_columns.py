"""Sites with tables of their own under differential privacy: declared ranges scale columns, and no sums are asked."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from codedfl.data import Column
from codedfl.deploy.protocol.terms import terms_of
from codedfl.deploy.protocol.wire import decode
from codedfl.deploy.server.deployment import DeploymentOptions, deploy
from codedfl.deploy.site.configuration import make_host
from codedfl.errors import CodedflError, ScenarioError
from codedfl.runs.directory import Run, execute
from codedfl.scenario import Scenario
from codedfl.testing.in_process import InProcessCarrier, Recording, StillClock
from deploy.site.test_configuration import make_key
from deploy.site.test_preparation import write

SIZES, RIDGE = (12, 40, 7), 0.02
RANGES = {"year": (2000, 2020), "price": (0, 400_000), "income": (0, 80_000)}
TOWNS = ["jena", "ulm"]


def tables() -> list[dict[str, list[Any]]]:
    """One table for each owner, each with its own order of columns."""
    rng, made = np.random.default_rng(3), []
    for place, size in enumerate(SIZES):
        income, year = rng.gamma(2, 20_000, size), 2000 + rng.integers(0, 20, size)
        town = rng.integers(0, 2, size)
        price = 3 * income + 500.0 * (year - 2010) + 9_000 * town + rng.normal(0, 5_000, size)
        columns = {"income": income, "town": [TOWNS[t] for t in town], "year": year, "price": price}
        names = list(columns)[place:] + list(columns)[:place]
        made.append({name: list(columns[name]) for name in names})
    return made


def scenario(**changes: Any) -> Scenario:
    devices = [{"count": len(SIZES), "mac_rate": 1e6}]
    table = {"scheme": "one-shot", "data": {"source": "sites"}, "fleet": {"devices": devices}, "name": "own"}
    columns = [{"name": name, "low": low, "high": high} for name, (low, high) in RANGES.items()]
    settings = {
        "features.kind": "none",
        "features.categories": [{"column": "town", "values": TOWNS}],
        "data.target": "price",
        "task.ridge": RIDGE,
        "training.targets": [],
        "timing.draws": 2,
        "privacy": {"epsilon": 1e10, "columns": columns},
    }
    return Scenario.from_table(table).with_settings(settings | changes)


def deployed(
    wanted: Scenario,
    folder: Path,
    target: str = "price",
    recording: Recording | None = None,
    kind: str = "auto",
    *,
    parts: bool = False,
) -> Run:
    """Train on a file of each site, or on parts of one."""
    sites = [f"device-{number}" for number in range(1, len(SIZES) + 1)]
    pins, clock = {name: make_key(folder / f"{name}.key") for name in sites}, StillClock()
    carrier = InProcessCarrier(clock=clock, recording=recording)
    for number, (name, table) in enumerate(zip(sites, tables(), strict=True), start=1):
        write(folder / f"{name}.csv", table)
        (folder / name).mkdir()
        values: dict[str, Any] = {"name": name, "key": f"../{name}.key", "peers": pins, "folder": str(folder / name)}
        own = {"source": "../all.csv", "part": number, "parts": len(SIZES)} if parts else {"source": f"../{name}.csv"}
        values |= {"data": {**own, "target": target, "kind": kind}}
        values |= {"agreement": {"cohort": sites, "terms": [terms_of(wanted).digest]}}
        carrier.attach(name, make_host(values, carrier.peers(name)))
    try:
        return deploy(wanted, carrier, sites, folder / "run", options=DeploymentOptions(pins=pins, clock=clock))
    finally:
        carrier.close()


def together() -> dict[str, np.ndarray]:
    return {name: np.array([value for table in tables() for value in table[name]]) for name in tables()[0]}


@pytest.mark.parametrize("scheme", ["one-shot", "sealed-coded"])
def test_the_model_is_that_of_pooled_rows(tmp_path: Path, scheme: str) -> None:
    recording = Recording()
    run, rows = deployed(scenario(scheme=scheme), tmp_path, recording=recording), together()
    year, income = (np.interp(rows[name], RANGES[name], (-1, 1)) for name in ("year", "income"))
    x = np.stack([year, income, *(rows["town"] == town for town in TOWNS), np.ones(len(year))], axis=1)
    y = np.interp(rows["price"], RANGES["price"], (-1, 1))
    expected = 200_000 * (1 + Ridge(alpha=RIDGE * len(x), fit_intercept=False).fit(x, y).predict(x))
    model = run.load_model()
    assert model.columns == (Column("year"), Column("income"), Column("town", tuple(TOWNS)))
    assert model.targets == ("price",)
    found = model.predict({name: rows[name] for name in ("income", "town", "year")})
    assert np.abs(found - expected).max() < 1e-3 * expected.std()
    assert model.privacy is not None
    asked = [decode(bytes_sent) for _, bytes_sent in recording.sent]
    assert not [frame for frame in asked if "sums" in frame.fields or "preparation" in frame.fields]


@pytest.mark.parametrize(("kind", "classes"), [("auto", []), ("classification", []), ("auto", TOWNS)])
def test_classes_are_declared_and_never_found_in_the_data(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, classes: list[str]
) -> None:
    """Whether any row has a class would be told without noise."""
    columns = [{"name": name, "low": low, "high": high} for name, (low, high) in RANGES.items()]
    changes = {
        "data.target": "town",
        "features.categories": [],
        "privacy.columns": columns,
        "data.classes": classes or None,
    }
    wanted = scenario(**changes, **{"privacy.epsilon": 1.0})
    if classes:
        assert deployed(wanted, tmp_path, target="town").load_model().classes == tuple(classes)
        return
    with pytest.raises(CodedflError, match="the data of device-1 cannot be used for this run"):
        deployed(wanted, tmp_path, target="town", kind=kind)
    words = {"auto": "the target is text", "classification": "noise does not hide which classes"}
    assert words[kind] in caplog.text


def test_parts_of_one_file_give_the_model_of_a_simulation(tmp_path: Path) -> None:
    write(tmp_path / "all.csv", {name: values.tolist() for name, values in together().items()})
    wanted = scenario(**{"data.source": str(tmp_path / "all.csv"), "data.test_fraction": 0.2})
    run = deployed(wanted, tmp_path, parts=True)
    simulated = execute(wanted, tmp_path / "simulated")
    assert run.summary["final_r2"] == pytest.approx(simulated.summary["final_r2"], abs=1e-3)
    assert run.load_model().columns == simulated.load_model().columns


def test_a_site_with_another_target_refuses(tmp_path: Path) -> None:
    with pytest.raises(CodedflError, match="the data of device-1 cannot be used for this run"):
        deployed(scenario(), tmp_path, target="income")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data.target": "", "data.kind": "regression"}, "data.target is empty; name the target"),
        ({"privacy.columns": [{"name": "*", "low": 0, "high": 1}]}, r"range of '\*'; on sites name every column"),
    ],
)
def test_what_no_site_can_use_is_refused(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    recording = Recording()
    with pytest.raises(ScenarioError, match=says):
        deployed(scenario(**changes), tmp_path, recording=recording)
    assert recording.sent == []
