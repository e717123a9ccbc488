"""Readings: what they change, and that replayed times are those of the runs."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.network import RoundCosts
from codedfl.progress import silent
from codedfl.runs import execute
from codedfl.scenario import load
from codedfl.studies.reproduce.experiment import READINGS, Experiment, Reading, Setting, experiment
from codedfl.studies.reproduce.readings import (
    CurveCase,
    Timed,
    alone_shares,
    claimed_cases,
    curve_table,
    end_cases,
    hollow_problem,
    reading_times,
    readings_table,
    variant_of,
)
from codedfl.training.costs import SharedCosts, measure
from codedfl.training.timing import Band

FEW = {"training.epochs": 12, "timing.draws": 5}


def small() -> Experiment:
    plan = experiment(quick=True)
    chosen = [
        dataclasses.replace(setting, scenario=setting.scenario.with_settings(FEW), deltas=setting.deltas[1:2])
        for setting in plan.settings
    ]
    return dataclasses.replace(
        plan, minibatch=plan.minibatch.with_settings(FEW), settings=(chosen[0], chosen[1]), draws=5
    )


def test_every_combination_is_read_once() -> None:
    assert len(set(READINGS)) == len(READINGS) == 2**4
    assert READINGS[0] == Reading()
    scenario = load("paper-92")
    for reading in READINGS:
        table = scenario.with_settings(reading.settings(2.0)).to_table()
        options = table["schemes"]["code-based"]
        found = (table["links"]["d2d_channel"], options["detect_from"], options["supply"], options["odd_set"])
        assert found == dataclasses.astuple(reading)
        assert options["delta"] == 2.0


@pytest.mark.parametrize("channel", ["parallel", "shared"])
def test_replayed_times_are_those_of_runs(channel: str, tmp_path: Any) -> None:
    """On hollow data, costs are those of real arrays; the run's server adds what it computes itself."""
    plan = small()
    times = reading_times(plan, hollow_problem(plan), {}, [], silent)[0][channel]
    chosen = [reading for reading in READINGS if reading.channel == channel]
    assert times.shape == (2, len(chosen), 1, 5, 12)
    for number, setting in enumerate(plan.settings):
        for place in (0, 3, 6, 7):
            scenario = setting.scenario.with_settings(chosen[place].settings(setting.deltas[0]))
            run = execute(scenario, tmp_path / f"{number}-{place}")
            assert np.array_equal(run.timings, times[number, place, 0].astype(run.timings.dtype))


def test_costs_do_not_depend_on_what_is_left_open() -> None:
    """So they are measured once for a setting; only who may add two errors has the costs of that."""
    plan = small()
    problem = hollow_problem(plan)
    for setting in plan.settings:
        known: dict[int, SharedCosts] = {}
        shared = variant_of(setting, READINGS[0], setting.deltas[0], problem, known).costs
        assert list(known) == [setting.level]
        for reading in (each for each in READINGS if each.channel == "parallel"):
            scenario = setting.scenario.with_settings(reading.settings(setting.deltas[0]))
            offline = scenario.training.first_epoch_offline
            own = measure(schemes.create(scenario, problem), problem, first_offline=offline)
            for name in ("granted", "forwarded"):
                assert getattr(own, name) == getattr(shared, name)
            assert own.doubled == (shared.doubled if reading.odd_set == "two-errors" else None)
            assert shared.doubled is not None
            assert [costs.key() for costs in own.questions(2)] == [costs.key() for costs in shared.questions(2)]
            pairs = zip(own.first_questions, shared.first_questions, strict=True)
            assert all(_keys(one) == _keys(other) for one, other in pairs)


def _keys(question: tuple[RoundCosts, RoundCosts | None]) -> list[Any]:
    return [None if costs is None else costs.key() for costs in question]


def timed(setting: Setting, reading: Reading, mean: float | None) -> Timed:
    bands = None if mean is None else tuple(Band(mean, mean / 2, 2 * mean) for _ in setting.deltas)
    return Timed(setting, reading, bands)


def test_the_nearest_reading_comes_first() -> None:
    plan = experiment(quick=False)
    found = {}
    for number, reading in enumerate(READINGS):
        for setting in plan.settings:
            factor = 1.1 if number == 5 else 2.0 + number
            found[setting.level, reading] = timed(setting, reading, setting.speedup * factor)
    found[128, READINGS[7]] = timed(plan.settings[1], READINGS[7], None)
    rows = readings_table(found)
    assert rows[0] == {
        **dataclasses.asdict(READINGS[5]),
        "92_best": 4.7 * 1.1,
        "92": 4.7 * 1.1,
        "92_low": 4.7 * 1.1 / 2,
        "92_high": 4.7 * 1.1 * 2,
        "128_best": 4.4,
        "128": 4.4,
        "128_low": 2.2,
        "128_high": 8.8,
        "distance": pytest.approx(math.log(1.1)),
    }
    assert rows[-1] | dataclasses.asdict(READINGS[7]) == rows[-1]
    assert rows[-1]["128"] is None
    assert rows[-1]["distance"] is None
    distances = [row["distance"] for row in rows[:-1]]
    assert distances == sorted(distances)


def test_curves_begin_with_everyone_and_never_rise() -> None:
    plan = small()
    case = CurveCase(plan.settings[0], "once", 0.0)
    (found,) = reading_times(plan, hollow_problem(plan), {}, [case], silent)[1]
    assert (found.active[:, 0] == plan.minibatch.fleet.size).all()
    assert (found.supports[:, 0] == plan.settings[0].options["M"]).all()
    assert (np.diff(found.active, axis=1) <= 0).all()
    assert (np.diff(found.supports, axis=1) <= 0).all()
    assert found.active[0, -1] < plan.minibatch.fleet.size


def test_tables_of_curves_name_their_cases() -> None:
    plan, known = small(), dict[int, SharedCosts]()
    claimed, at_end = claimed_cases(plan), end_cases(plan)
    found = reading_times(plan, hollow_problem(plan), known, [*claimed, *at_end], silent)[1]
    rows = [curve_table(*each) for each in zip(claimed, found, strict=False)]
    named = [(row["level"], row["supply"], row["delta"]) for row in rows]
    assert named == [
        (each.level, supply, each.options["delta"]) for each in plan.settings for supply in ("once", "reissued")
    ]
    assert all(row["active"][0] == plan.minibatch.fleet.size for row in rows)
    shares = alone_shares(dict(zip(at_end, found[len(claimed) :], strict=True)))
    (alone,) = reading_times(plan, hollow_problem(plan), known, at_end[-1:], silent)[1]
    assert list(shares) == ["once", "reissued"]
    assert shares["reissued"][at_end[-1].delta] == alone.alone
