"""Sums under the scheme of a run: the scenario of a sum, its total, and what it costs."""

from typing import Any

import numpy as np
import pytest

import codedfl
from codedfl import schemes
from codedfl.data import FeatureMap, Preparation
from codedfl.runs.sums import SEED_STEP, SchemeSummer, SumRecord, leakage_table, sum_error, sum_scenario, sum_shard
from codedfl.scenario import Scenario
from codedfl.task.folds import DeviceRows
from codedfl.task.preparing import ERRORS, PlainSummer, SumRequest

ROWS = (9, 7, 11)


def small(scheme: str, **changes: Any) -> Scenario:
    settings = {"scheme": scheme, "data.source": "t.npz", "timing.seed": 40, **changes}
    return codedfl.load("own-data").with_settings(settings).with_devices(3)


def rows() -> list[DeviceRows]:
    rng = np.random.default_rng(0)
    return [DeviceRows(rng.normal(size=(count, 2)), rng.normal(size=(count, 1))) for count in ROWS]


def request(models: int = 1) -> SumRequest:
    """The squared errors of models."""
    return SumRequest(ERRORS, {"models": np.ones((models, 2, 1))}, Preparation.identity(2, 1))


def summer(scheme: str, records: list[SumRecord], **changes: Any) -> SchemeSummer:
    return SchemeSummer(small(scheme, **changes), rows(), FeatureMap.create("none", inputs=2, dtype="float64"), records)


@pytest.mark.parametrize("scheme", ["conventional", "sealed-coded", "one-shot", "secagg"])
def test_a_sum_is_that_of_all_devices_within_its_error(scheme: str) -> None:
    made = summer(scheme, [])
    plain = PlainSummer(rows(), FeatureMap.create("none", inputs=2, dtype="float64"))
    found, expected = made.total(request()), plain.total(request())
    scale = 1e3  # at most 27 rows of squares below ten
    assert np.abs(found - expected).max() <= (made.error + 1e-12) * scale
    assert 0 < made.error < 1e-6


def test_the_download_of_models_is_counted_after_the_sum() -> None:
    """Each device takes 64 bits a number, and multiplies each of its rows by each number; nothing goes up again."""
    records: list[SumRecord] = []
    summer("conventional", records).total(request(models=5))
    (_, summed, seed), (_, download, other) = records
    columns = download.columns
    assert (len(summed), len(download)) == (1, 1)
    assert columns["down_bits"] == [3 * 64 * 10]
    assert columns["up_bits"] == [0]
    assert columns["device_macs"] == [sum(ROWS) * 10]
    assert columns["server_macs"] == [0]
    assert columns["time"][-1] > 0
    assert columns["epoch"] == [1]
    assert seed == 40 + SEED_STEP
    assert other == seed + 1, "delays of its own, the same in every version"


def test_sums_of_one_run_meet_delays_of_their_own() -> None:
    records: list[SumRecord] = []
    made = summer("conventional", records)
    for _ in range(2):
        made.total(request())
    seeds = [seed for *_, seed in records]
    assert len(set(seeds)) == 4
    assert 40 not in seeds, "the seed of the training"


@pytest.mark.parametrize(
    ("scheme", "used"),
    [
        ("conventional", "conventional"),
        ("sealed-coded", "sealed-coded"),
        ("secagg", "secagg"),
        ("minibatch", "conventional"),
        ("drop-slowest", "conventional"),
        ("code-based", "conventional"),
    ],
)
def test_only_an_exact_scheme_that_protects_something_sums_columns(scheme: str, used: str) -> None:
    made = sum_scenario(small("conventional").with_settings({"scheme": scheme}), 2)
    assert made.scheme == used
    assert (made.timing.seed, made.training.epochs, made.training.tolerance) == (40 + 3 * SEED_STEP, 1, 0)
    assert (made.precision, made.ridges, made.features.kind, made.features.intercept) == (
        "float64",
        (0.0,),
        "none",
        False,
    )
    assert (made.prepared, made.training.solver, tuple(made.training.targets)) == (False, "gradient-descent", ())


def test_a_secure_sum_of_minibatches_becomes_one_of_all_rows() -> None:
    made = sum_scenario(small("secagg").with_settings({"schemes.secagg.inner": "minibatch"}))
    assert made.scheme == "secagg"
    assert schemes.nominal(made).exact


def test_the_right_hand_side_of_a_row_are_the_sums() -> None:
    shard = sum_shard(np.array([3.0, -1.0, 0.5]))
    assert (shard.x.T @ shard.y).tolist() == [[3.0, -1.0, 0.5], [0.0, 0.0, 0.0]]
    assert shard.samples == 1


def test_a_sum_has_the_error_that_its_scheme_states() -> None:
    """Moments alone are summed; a scheme that states none is held to none."""
    stated = schemes.nominal(sum_scenario(small("one-shot")))
    assert stated.rounding is not None
    assert sum_error(stated) == stated.rounding.moments > 0
    silent = schemes.nominal(small("conventional").with_settings({"scheme": "minibatch"}))
    assert silent.rounding is None
    assert sum_error(silent) == 0


@pytest.mark.parametrize(
    ("kind", "intercept", "named"), [("rbf", True, True), ("rbf", False, False), ("none", True, False)]
)
def test_sums_of_kernel_features_are_told_where_an_intercept_takes_them(
    kind: str, intercept: bool, named: bool
) -> None:
    wanted = small("conventional", **{"features.kind": kind, "features.intercept": intercept})
    assert wanted.prepared
    told = leakage_table(wanted, schemes.nominal(wanted))["server"]
    assert ("of its squares and of the targets and of the kernel features" in told) == named


def test_all_that_is_seen_before_the_training_is_listed() -> None:
    wanted = small("conventional", **{"task.ridge": [0.1, 1.0]})
    told = leakage_table(wanted, schemes.nominal(wanted))["server"]
    sums, folds, bounds = (
        told.find(words) for words in ("of every column", ", for each fold, ", ", and from each device")
    )
    assert 0 < sums < folds < bounds


def test_of_held_out_rows_alone_one_thing_is_seen_before_the_training_and_of_columns_two() -> None:
    counted = small("conventional", **{"features.scale": "none", "features.intercept": False, "data.held_out": 0.2})
    scaled = small("conventional")
    assert (counted.prepared, scaled.prepared) == (False, True)
    one, two = (leakage_table(wanted, schemes.nominal(wanted))["devices"] for wanted in (counted, scaled))
    assert "; before the training: the largest of the powers of two" in one
    assert "; before the training: the means and variances of columns and targets over all devices, and the larg" in two
