"""What studies say of ``secagg`` follows from the scheme inside it, not from the wrapper's class."""

from pathlib import Path
from typing import Any

import pytest

from codedfl.schemes import nominal
from codedfl.studies.compare import compare_all
from codedfl.studies.compare.predicting import predictable
from codedfl.studies.plan import Shapes, plan
from rundirs import small
from tiny import known

INNER = ("conventional", "minibatch", "drop-slowest", "deadline", "sealed")
EXACT = {"conventional", "sealed"}
FOLLOWING = {"drop-slowest", "deadline"}


def around(inner: str, **changes: Any) -> Any:
    options = {"schemes.sealed": {"delta": 1e-3}, "training.targets": [0.5], **changes}
    return small({"scheme": "secagg", "schemes.secagg.inner": inner, **options})


@pytest.mark.parametrize("inner", INNER)
def test_a_model_is_predictable_where_that_of_the_inner_scheme_is(inner: str) -> None:
    assert predictable(around(inner)) == predictable(small({"scheme": inner})) == (inner in EXACT)
    wrapped = nominal(around(inner))
    assert (wrapped.exact, wrapped.follows_timing) == (inner in EXACT, inner in FOLLOWING)
    assert (wrapped.exact, wrapped.follows_timing) == (known(inner).exact, known(inner).follows_timing)


@pytest.mark.parametrize("inner", INNER)
def test_plan_offers_the_solvers_that_the_inner_scheme_serves(inner: str) -> None:
    scenario = around(inner)
    (offer,) = plan(scenario, Shapes.of_data(scenario), names=["secagg"], draws=20).offers
    assert offer.refused is None
    served = {prediction.solver for prediction in offer.predictions}
    assert served == {"gradient-descent"} | ({"conjugate-gradients"} if inner in EXACT else set())
    assert offer.to_table()["verdict"] == "server sees sums"


@pytest.mark.parametrize("inner", INNER)
def test_compare_all_predicts_only_what_does_not_follow_the_timing(inner: str, tmp_path: Path) -> None:
    settings = {"training.epochs": 6, "timing.repeats": 2}
    six = [{"count": 2, "mac_rate": 25e6}, {"count": 3, "mac_rate": 5e6}, {"count": 1, "mac_rate": 0.2e6}]
    fleets = {"five": around(inner, **settings), "six": around(inner, **settings, **{"fleet.devices": six})}
    found = compare_all(fleets["five"], ["secagg"], tmp_path / "out", attacked_epochs=0, fleets=fleets)
    rows = {row["fleet"]: row for row in found if row["scheme"] == "secagg"}
    assert [rows[fleet]["refused"] for fleet in ("five", "six")] == [None, None]
    assert not rows["five"]["predicted"]
    assert rows["six"]["predicted"] == (inner in EXACT)
    assert rows["six"]["verdict"] == "server sees sums"
