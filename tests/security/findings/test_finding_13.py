"""Finding 13: one claimed bound (or an honest outlier) ruins everybody's precision without a word.

Gradient error 6e-5 at the true bound, 0.25 at 50 times it, 0.94 at 200 times. Now a claim above what can be is refused,
a wider ring is chosen where there is one, and else the run stops with the name of the device.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.engines import VirtualEngine
from codedfl.errors import CodedflError, DataError, ScenarioError
from codedfl.network import DelayModel
from codedfl.scenario import Scenario
from codedfl.task import Problem, Shard
from codedfl.testing.in_process import Faults
from codedfl.training import State, train
from contracts.test_engines import chosen, given
from fleets import fleet
from tiny import is_one_sentence, problem, scenario

DEVICES, FEATURES, OUTPUTS, LIAR = 5, 100, 3, 2
ANYTHING = {"task.bound_share": 1e300}


def data(dtype: str = "float32") -> Problem:
    made = problem([40] * DEVICES, features=FEATURES, outputs=OUTPUTS, dtype=dtype)
    return replace(made, shards=tuple(Shard(np.clip(shard.x / 4, -1, 1), shard.y) for shard in made.shards))


def wanted(scheme: str, changes: Mapping[str, Any] | None = None) -> Scenario:
    fixed = {
        "scheme": scheme,
        "features.kind": "none",
        "training.learning_rate": 4.0,
        "fleet.devices": [{"count": DEVICES, "mac_rate": 1e6}],
    }
    return scenario(fixed | dict(changes or {}))


def built(asked: Scenario, factor: float) -> Any:
    """The scheme of a fleet in which one device claims ``factor`` times the bound on its features."""
    facts = [schemes.describe(asked, shard) for shard in data(asked.precision).shards]
    facts[LIAR] = replace(facts[LIAR], largest_feature=factor * facts[LIAR].largest_feature)
    return schemes.build(asked, schemes.agree(asked, facts))


def gradient_error(asked: Scenario, factor: float) -> float:
    """The largest error of a gradient in a few epochs, relative to the size of the first."""
    scheme, made = built(asked, factor), data(asked.precision)
    devices = [scheme.device(index, shard) for index, shard in enumerate(made.shards)]
    engine = VirtualEngine(devices, DelayModel.create(asked.fleet, asked.links), seed=0, draw=0)
    state = train(made, asked, scheme, engine, State.fresh(made))
    return float(max(state.history.columns["gradient_error"]))


@pytest.mark.parametrize("factor", [64, 256])
@pytest.mark.parametrize("scheme", ["sealed", "he"])
def test_a_claim_that_costs_precision_stops_the_run_with_the_name_of_the_device(scheme: str, factor: int) -> None:
    ring = {"schemes.sealed.ring": "Z_2^32"} if scheme == "sealed" else {}
    with pytest.raises(ScenarioError, match=f"device {LIAR} has features up to .* task.bound_share") as error:
        built(wanted(scheme, ring), 16 * factor)
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize("inner", ["drop-slowest", "deadline"])
def test_sums_over_some_devices_are_stopped_as_well(inner: str) -> None:
    """They promise no exact gradient, but steps of a sum that has room for the claim would hide everything else."""
    chosen = wanted("secagg", {"schemes.secagg.inner": inner})
    built(chosen, 2.0)
    with pytest.raises(ScenarioError, match=f"device {LIAR} has features up to .* task.bound_share"):
        built(chosen, 2.0**40)


def test_what_is_stopped_would_have_ruined_the_gradient() -> None:
    """The same claims with the limit lifted: that is what they cost, and all it takes to lift it is a setting."""
    lifted = wanted("sealed", {"schemes.sealed.ring": "Z_2^32"} | ANYTHING)
    errors = [gradient_error(lifted, factor) for factor in (1, 50, 200)]
    assert errors[0] < 1e-4 < 0.1 < errors[1] < 1 < errors[2]


@pytest.mark.parametrize("scheme", ["sealed", "sealed-coded", "one-shot", "coded-padded"])
def test_a_wider_ring_is_chosen_where_there_is_one(scheme: str) -> None:
    assert gradient_error(wanted(scheme), 1024) < wanted(scheme).accuracy


def test_secure_aggregation_of_inexact_schemes_stops_too() -> None:
    inner = {"schemes.secagg.inner": "minibatch"}
    assert built(wanted("secagg", inner), 1024) is not None
    with pytest.raises(ScenarioError, match=f"device {LIAR} has features up to"):
        built(wanted("secagg", inner), 2.0**40)


def test_plain_numbers_lose_nothing() -> None:
    assert gradient_error(wanted("conventional"), 2.0**40) < 1e-5


def claiming(changes: Mapping[str, Any]) -> Any:
    """Let the first site of a fleet claim other values in its descriptions."""

    def reply(site: str, tag: int, payload: bytes) -> list[bytes]:
        frame = decode(payload)
        if site != "device-1" or not changes.keys() <= frame.fields.keys():
            return [payload]
        return [encode(Frame(frame.kind, {**frame.fields, **changes}, frame.arrays))]

    return reply


@pytest.mark.parametrize("changes", [{"largest_target": 64.0}, {"largest_feature": 2.0**40}])
def test_a_site_that_claims_more_than_can_be_is_named(changes: dict[str, float], tmp_path: Path) -> None:
    with fleet(given()) as sites:
        sites.faults.reply = claiming(changes)
        with pytest.raises(CodedflError, match=r"device-1 (claims targets up to 64|has features up to)") as error:
            sites.deploy(chosen("sealed"), tmp_path / "run")
    assert is_one_sentence(str(error.value))


def test_claims_above_the_bound_of_a_feature_map_are_refused(tmp_path: Path) -> None:
    small = replace(given(), shards=tuple(Shard(shard.x / 100, shard.y) for shard in given().shards))
    with fleet(small) as sites:
        sites.faults.reply = claiming({"largest_feature": 1.0})
        with pytest.raises(DataError, match=r"device-1 claims features up to 1, where none can be above 0\.408"):
            sites.deploy(chosen("sealed").with_settings({"features.kind": "rbf"}), tmp_path / "run")


@pytest.mark.parametrize("scheme", ["sealed", "secagg"])
def test_claims_that_the_sums_of_columns_disprove_are_refused(scheme: str, tmp_path: Path) -> None:
    """No entry is larger than the root of the sum of squares, and devices publish at most twice their largest."""
    made = problem([40] * 6, features=4, outputs=1, kind="regression")
    with fleet(made) as sites:
        faults: Faults = sites.faults

        def reply(site: str, tag: int, payload: bytes) -> list[bytes]:
            frame = decode(payload)
            if site != "device-1" or "bounds" not in frame.fields:
                return [payload]
            bounds = [frame.fields["bounds"][0] * 1024, *frame.fields["bounds"][1:]]
            return [encode(Frame(frame.kind, {**frame.fields, "bounds": bounds}, frame.arrays))]

        faults.reply = reply
        scaled = {"features.kind": "none", "features.scale": "standard", "features.intercept": True}
        with pytest.raises(DataError, match=r"device-1 claims that input 0 \(counted from 0\) reach") as error:
            sites.deploy(chosen(scheme).with_settings(scaled), tmp_path / "run", check=False)
    assert is_one_sentence(str(error.value))


def test_an_honest_outlier_in_own_columns_stops_the_run_or_is_allowed_by_a_setting() -> None:
    """Of scaled columns, sums of squares are known and nothing is lost (``tests/runs/test_awkward_tables.py``)."""
    made = data("float64")
    made.shards[3].x[0, 0] = 1e6
    files = {"task.precision": "float64", "task.accuracy": 1e-6}
    with pytest.raises(
        ScenarioError, match=r"device 3 has features up to 1\.04858e\+06, where 1 is the median"
    ) as error:
        schemes.create(wanted("sealed", files), made)
    assert 'set features.scale = "standard"' in str(error.value)
    assert schemes.create(wanted("sealed", files | ANYTHING), made).exact
    assert schemes.create(wanted("conventional", files), made).exact
