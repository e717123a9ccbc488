"""Sites with tables of their own: unscaled columns, text, empty cells; nothing but sums leaves them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from codedfl.deploy.protocol.terms import terms_of
from codedfl.deploy.protocol.wire import decode
from codedfl.deploy.server.deployment import DeploymentOptions, deploy
from codedfl.deploy.site.configuration import make_host
from codedfl.errors import CodedflError
from codedfl.runs import directory as runs
from codedfl.runs.directory import Run
from codedfl.scenario import Scenario
from codedfl.testing.in_process import InProcessCarrier, Recording, StillClock
from deploy.site.test_configuration import make_key
from tiny import is_one_sentence

SIZES = (1, 40, 7, 25)
RIDGE = 0.02
CONVENTIONAL = {"cohort": [f"device-{number}" for number in range(1, 5)], "schemes": ["conventional"]}
TOWNS = ["ulm", "jena", "bonn"]


def rows(seed: int = 3) -> list[dict[str, list[Any]]]:
    """One table for each owner."""
    rng, tables = np.random.default_rng(seed), []
    for size in SIZES:
        income, year = rng.gamma(2, 20_000, size), 2000 + rng.integers(0, 20, size)
        town = rng.integers(0, 3, size)
        price = 3 * income + 500.0 * (year - 2010) + 9_000 * town + rng.normal(0, 5_000, size)
        columns = {"income": income, "year": year, "town": [TOWNS[t] for t in town], "price": price}
        tables.append({name: list(values) for name, values in columns.items()})
    tables[1]["income"][3] = None
    return tables


def write(path: Path, table: dict[str, list[Any]]) -> None:
    rows_of = zip(*table.values(), strict=True)
    lines = [",".join("" if value is None else str(value) for value in values) for values in rows_of]
    path.write_text("\n".join([",".join(table), *lines]) + "\n", encoding="utf-8")


def scenario(folder: Path, scheme: str, **changes: Any) -> Scenario:
    devices = [{"count": len(SIZES), "mac_rate": 1e6}]
    table = {"scheme": scheme, "data": {"source": "sites"}, "fleet": {"devices": devices}, "name": "own"}
    settings = {
        "features.kind": "none",
        "features.missing": "mean",
        "task.ridge": RIDGE,
        "training.targets": [],
        "timing.draws": 2,
    }
    return Scenario.from_table(table).with_settings(settings | changes)


def deployed(wanted: Scenario, folder: Path, recording: Recording | None = None, **site: Any) -> Run:
    sites = [f"device-{number}" for number in range(1, len(SIZES) + 1)]
    pins, clock = {name: make_key(folder / f"{name}.key") for name in sites}, StillClock()
    carrier = InProcessCarrier(clock=clock, recording=recording)
    for name, table in zip(sites, rows(), strict=True):
        write(folder / f"{name}.csv", table)
        (folder / name).mkdir()
        data = {"source": f"../{name}.csv", "target": "price"}
        values = {"name": name, "key": f"../{name}.key", "data": data, "peers": pins, "folder": str(folder / name)}
        values |= {"agreement": {"cohort": sites, "terms": [terms_of(wanted).digest]}, **site}
        carrier.attach(name, make_host(values, carrier.peers(name)))
    try:
        return deploy(wanted, carrier, sites, folder / "run", options=DeploymentOptions(pins=pins, clock=clock))
    finally:
        carrier.close()


def pooled() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients by scikit-learn on the pooled table: the mean for empty cells, standardised numbers, dummies."""
    together = {name: [value for table in rows() for value in table[name]] for name in rows()[0]}
    numbers = np.array([[np.nan if v is None else v for v in together[name]] for name in ("income", "year")], float).T
    numbers = np.where(np.isnan(numbers), np.nanmean(numbers, axis=0), numbers)
    numbers = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    dummies = np.array([[town == known for known in sorted(TOWNS)] for town in together["town"]], float)
    x, y = np.concatenate([numbers, dummies], axis=1), np.array(together["price"])
    return Ridge(alpha=RIDGE * len(x), solver="cholesky").fit(x, y).coef_, x, y


@pytest.mark.parametrize("scheme", ["conventional", "sealed", "sealed-coded", "secagg", "one-shot", "coded-padded"])
def test_the_model_is_that_of_pooled_tables(scheme: str, tmp_path: Path) -> None:
    run = deployed(scenario(tmp_path, scheme), tmp_path, share_categories=True)
    coefficients, _, y = pooled()
    assert np.allclose(run.model[:, 0] * y.std(), coefficients, rtol=1e-5, atol=1e-5 * np.abs(coefficients).max())


def test_the_server_predicts_from_inputs_by_position(tmp_path: Path) -> None:
    """It knows no names; each category is an input of its own, and empty cells are filled."""
    model = deployed(scenario(tmp_path, "conventional"), tmp_path, share_categories=True).load_model()
    assert [column.name for column in model.columns] == ["0", "1", "2", "3", "4"]
    given = [
        [np.nan if income is None else income, year, *(town == known for known in sorted(TOWNS))]
        for table in rows()
        for income, year, town in zip(table["income"], table["year"], table["town"], strict=True)
    ]
    coefficients, x, y = pooled()
    wanted = (x - x.mean(axis=0)) @ coefficients + y.mean()
    assert model.predict(np.array(given, float)) == pytest.approx(wanted, rel=1e-7)


def test_sites_and_virtual_time_agree_to_the_last_bit(tmp_path: Path) -> None:
    real = deployed(scenario(tmp_path, "sealed"), tmp_path, share_categories=True)
    for number in range(1, len(SIZES) + 1):
        (tmp_path / f"device-{number}.csv").rename(tmp_path / f"owner-{number}.csv")
    together = {"data.source": str(tmp_path / "owner-*.csv"), "partition.kind": "files", "data.target": "price"}
    virtual = runs.execute(
        scenario(tmp_path, "sealed", **together, **{"data.test_fraction": 0.0}), tmp_path / "virtual"
    )
    assert virtual.summary["owners"] == [f"owner-{number}" for number in range(1, len(SIZES) + 1)]
    assert np.array_equal(real.model, virtual.model)


def test_neither_names_nor_values_of_columns_leave_a_site(tmp_path: Path) -> None:
    declared = {"features.categories": [{"column": "town", "values": TOWNS}]}
    recording = Recording()
    deployed(scenario(tmp_path, "sealed", **declared), tmp_path, recording)
    assert recording.received
    for _, payload in recording.received:
        answer = decode(payload)
        assert not any(word in repr(answer.fields) for word in ("income", "price", "ulm"))
    values = {float(value) for table in rows() for name in ("income", "price") for value in table[name] if value}
    shown = {float(v) for _, payload in recording.received for a in decode(payload).arrays.values() for v in a.ravel()}
    assert not values & shown


@pytest.mark.parametrize(
    ("changes", "site", "words"),
    [
        ({"features.missing": "refuse"}, {"share_categories": True}, "row 3, column 'income'"),
        ({"features.categories": [{"column": "town", "values": ["ulm"]}]}, {}, "which is none of its categories"),
        ({"features.categories": [{"column": "city", "values": ["ulm"]}]}, {}, "has no feature column 'city'"),
    ],
)
def test_what_is_wrong_with_a_table_is_in_the_log_of_its_owner_alone(
    changes: dict[str, Any], site: dict[str, Any], words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(CodedflError, match=r"the data of device-\d cannot be used for this run") as error:
        deployed(scenario(tmp_path, "sealed", **changes), tmp_path, **site)
    assert is_one_sentence(str(error.value))
    assert not any(word in str(error.value) for word in ("income", "town", "ulm", "city", str(tmp_path)))
    assert words in " ".join(each.getMessage() for each in caplog.records if each.name.endswith("site.host"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "site", "words"),
    [
        ({}, {}, "declare features.categories"),
        ({}, {"share_categories": True, "agreement": CONVENTIONAL}, "has not agreed to scheme 'sealed'"),
    ],
)
def test_tables_that_do_not_fit_stop_the_run(
    changes: dict[str, Any], site: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(CodedflError, match=words) as error:
        deployed(scenario(tmp_path, "sealed", **changes), tmp_path, **site)
    assert is_one_sentence(str(error.value))
    assert not (tmp_path / "run").exists()


def test_sites_choose_the_ridge_weight_of_virtual_time(tmp_path: Path) -> None:
    several = {"task.ridge": [1e-3, 0.01, 0.1, 1.0], "task.folds": 3}
    real = deployed(scenario(tmp_path, "sealed-coded", **several), tmp_path, share_categories=True)
    for number in range(1, len(SIZES) + 1):
        (tmp_path / f"device-{number}.csv").rename(tmp_path / f"owner-{number}.csv")
    together = {"data.source": str(tmp_path / "owner-*.csv"), "partition.kind": "files", "data.target": "price"}
    changes = several | together | {"data.test_fraction": 0.0}
    virtual = runs.execute(scenario(tmp_path, "sealed-coded", **changes), tmp_path / "virtual")
    assert real.summary["selection"] == virtual.summary["selection"]
    assert np.array_equal(real.model, virtual.model)
