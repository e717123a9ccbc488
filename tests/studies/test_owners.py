"""Models of owners alone and of all rows, against closed forms and figures by hand."""

import numpy as np
import pyarrow
import pytest

from codedfl.errors import DataError
from codedfl.studies.owners import alone_federated_pooled, split_by_owner


def table(**columns):
    return pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})


def standardised_ridge(x, y, x_test, ridge):
    """The minimum of mean squared error + ridge |b|^2, the first column standardised, by its normal equations."""
    shift, unit = x.mean(axis=0), np.array([x[:, 0].std(), 1, 1])
    z, z_test = (x - shift) / unit, (x_test - shift) / unit
    b = np.linalg.solve(z.T @ z / len(z) + ridge * np.eye(z.shape[1]), z.T @ (y - y.mean()) / len(z))
    return z_test @ b + y.mean()


@pytest.fixture
def shops():
    """Two owners whose slopes differ, and a text column."""
    generator = np.random.default_rng(1)
    a, owner = generator.normal(3, 10, 60), np.repeat(["n", "s"], 30)
    colour = generator.choice(["red", "blue"], 60)
    y = np.where(owner == "n", 2 * a, -a) + 5 * (colour == "red") + generator.normal(size=60)
    return split_by_owner(table(a=a, colour=colour, owner=owner, y=y), "owner", 0.2, seed=0)


def test_both_models_are_those_of_the_normal_equations(shops):
    train, test = shops
    found = alone_federated_pooled(train, test, target="y", owner="owner", kind="regression", ridges=(0.01,))
    (a, colour, owner, y), (a_test, colour_test, owner_test, y_test) = (
        [np.array(part[name].to_pylist()) for name in ("a", "colour", "owner", "y")] for part in shops
    )
    x = np.column_stack([a, colour == "blue", colour == "red"]).astype(float)
    x_test = np.column_stack([a_test, colour_test == "blue", colour_test == "red"]).astype(float)
    alone = np.empty(len(y_test))
    for name in ("n", "s"):
        own, held = owner == name, owner_test == name
        alone[held] = standardised_ridge(x[own], y[own], x_test[held], 0.01)
    expected = {"alone": alone, "pooled": standardised_ridge(x, y, x_test, 0.01)}
    assert [way.way for way in found.ways] == ["mean of own rows", "alone", "pooled"]
    for way in found.ways[1:]:
        np.testing.assert_allclose(way.losses, (expected[way.way] - y_test) ** 2, rtol=1e-9)
        assert way.scores["rmse"] == pytest.approx(np.sqrt(way.losses.mean()))
        assert way.scores["r2"] == pytest.approx(1 - way.losses.sum() / ((y_test - y_test.mean()) ** 2).sum())
    assert (found.owners, found.rows, found.held_out) == (2, 48, 12)
    assert found.better_off == 0
    assert found.verdict.startswith("federation does not pay: r2 ")
    assert found.verdict.endswith("alone")


def test_federated_predictions_stand_between_and_are_judged(shops):
    train, test = shops
    truth = np.array(test["y"].to_pylist())
    exact = alone_federated_pooled(train, test, target="y", owner="owner", kind="regression", federated=truth)
    assert [way.way for way in exact.ways] == ["mean of own rows", "alone", "federated", "pooled"]
    assert exact.ways[2].scores == {"r2": 1.0, "rmse": 0.0}
    assert exact.better_off == 1
    assert exact.verdict.startswith("federation pays: r2 1.0000 federated, ")


def test_owners_with_few_rows_predict_their_mean():
    train = table(a=[1.0, 2.0, 3.0, 4.0, 9.0], owner=["p", "p", "p", "p", "q"], y=[0.0, 0.0, 4.0, 4.0, 7.0])
    test = table(a=[5.0, 6.0], owner=["q", "p"], y=[8.0, 5.0])
    found = alone_federated_pooled(train, test, target="y", owner="owner", kind="regression")
    for way in found.ways[:2]:  # 7 for q and 2 for p
        np.testing.assert_allclose(way.losses, [1, 9])


def test_the_better_of_mean_and_model_stands_for_an_owner_alone():
    """Six columns of mere noise: a model of six rows fits it, the mean of an owner's rows does not."""
    generator = np.random.default_rng(0)
    owner = np.repeat([f"owner {number}" for number in range(40)], 8)
    levels = np.repeat(generator.normal(scale=3, size=40), 8)
    noise = {f"x{place}": generator.normal(size=320) for place in range(6)}
    parts = split_by_owner(table(**noise, owner=owner, y=levels + generator.normal(size=320)), "owner", 0.25, 0)
    found = alone_federated_pooled(*parts, target="y", owner="owner", kind="regression", ridges=(1e-6,))
    assert found.ways[0].scores["r2"] > max(way.scores["r2"] for way in found.ways[1:])
    assert found.verdict.startswith("federation does not pay")
    assert found.verdict.endswith("mean of own rows")


def test_a_difference_within_chance_is_said():
    """Alone 7 for q and 2 for p, off by 1 and 3; together off by 3 and 1: no difference on average."""
    train = table(a=[1.0, 2.0, 3.0, 4.0, 9.0], owner=["p", "p", "p", "p", "q"], y=[0.0, 0.0, 4.0, 4.0, 7.0])
    test = table(a=[5.0, 6.0], owner=["q", "p"], y=[8.0, 5.0])
    joint = np.array([11.0, 6.0])
    found = alone_federated_pooled(train, test, target="y", owner="owner", kind="regression", federated=joint)
    assert found.verdict == "no clear difference: r2 -1.2222 federated, -1.2222 mean of own rows"
    assert found.better_off == 0.5


def test_classes_are_scored_by_accuracy():
    """Owner p has only one class, so alone it never says the other; together a threshold at 0 separates them."""
    train = table(
        x=[-3.0, -2.0, -1.0, -4.0, -5.0, 3.0, 2.0, 1.0, -1.5, -2.5],
        owner=["p"] * 5 + ["q"] * 5,
        y=["low"] * 5 + ["high"] * 3 + ["low"] * 2,
    )
    test = table(x=[2.5, -2.0, 2.0, -3.0], owner=["p", "p", "q", "q"], y=["high", "low", "high", "low"])
    labels = np.array(["high", "low", "high", "high"])
    found = alone_federated_pooled(train, test, target="y", owner="owner", kind="classification", federated=labels)
    assert {way.way: way.scores for way in found.ways} == {
        "mean of own rows": {"accuracy": 0.5},
        "alone": {"accuracy": 0.75},
        "federated": {"accuracy": 0.75},
        "pooled": {"accuracy": 1.0},
    }


def test_an_owner_without_training_rows_is_refused():
    train, test = table(a=[1.0], owner=["p"], y=[1.0]), table(a=[1.0], owner=["z"], y=[1.0])
    with pytest.raises(DataError, match="the owner 'z' has held-out rows but none to train on"):
        alone_federated_pooled(train, test, target="y", owner="owner", kind="regression")


class TestSplit:
    DATA = table(
        row=range(22), owner=["p"] * 10 + ["q"] * 11 + ["r"], kind=["a", "b"] * 11, series=[n // 5 for n in range(22)]
    )

    def test_each_owner_gives_its_share_and_keeps_a_row(self):
        train, test = split_by_owner(self.DATA, "owner", 0.4, 0)
        assert sorted(train["row"].to_pylist() + test["row"].to_pylist()) == list(range(22))
        owners = test["owner"].to_pylist()
        assert [owners.count(name) for name in "pqr"] == [4, 4, 0]
        assert split_by_owner(self.DATA, "owner", 0.4, 1)[1] != test, "another seed draws other rows"
        assert split_by_owner(self.DATA, "owner", 0.4, 0)[1] == test

    def test_strata(self):
        kinds = split_by_owner(self.DATA, "owner", 0.4, 0, stratum="kind")[1].to_pylist()
        found = [(row["owner"], row["kind"]) for row in kinds]
        assert {pair: found.count(pair) for pair in found} == {
            **{("p", "a"): 2, ("p", "b"): 2},
            **{("q", "a"): 2, ("q", "b"): 2},
        }

    def test_rows_of_a_group_stay_together(self):
        train, test = split_by_owner(self.DATA, "owner", 0.5, 0, group="series")
        pairs = [
            {(row["owner"], row["series"]) for row in part.select(["owner", "series"]).to_pylist()}
            for part in (train, test)
        ]
        assert not pairs[0] & pairs[1]
        assert sorted(name for name, _ in pairs[1]) == ["p", "q", "q"], "half of 2 and of 3 series, rounded; none of r"
