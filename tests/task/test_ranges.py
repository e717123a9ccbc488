"""Columns are prepared by declared ranges alone, and rows are never longer than 1."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from codedfl import schemes
from codedfl.data import Column, FeatureMap, Preparation, Rows
from codedfl.data.dataset import Dataset, classification, regression
from codedfl.errors import DataError, ScenarioError
from codedfl.scenario import Scenario, load
from codedfl.task.folds import DeviceRows
from codedfl.task.ranges import declared_columns, declared_preparation, declared_rows, ranged_preparation
from codedfl.task.shard import make_shard, prepared_features

COLUMNS = (Column("age"), Column("city", ("bern", "rome")), Column("height"))
RANGES = {"age": (0, 120), "height": (1.0, 2.0), "cost": (-100, 300)}
ROWS = np.array([[60.0, 0, 1, 1.75], [200.0, 1, 0, 0.5], [0.0, 0, 1, 2.0]])
COSTS = np.array([[100.0], [1e6], [-100.0]])


def private(ranges: Mapping[str, tuple[float, float]] = RANGES, **more: Any) -> Scenario:
    columns = [{"name": name, "low": low, "high": high} for name, (low, high) in ranges.items()]
    values = [{"column": "city", "values": ["bern", "rome"]}]
    given: dict[str, Any] = {"scheme": "one-shot", "data.source": "rows.csv", "privacy.epsilon": 1.0}
    given |= {"privacy.columns": columns, "features.categories": values, **more}
    return load("own-data").with_settings(given)


def costs(x: Any = ROWS, y: Any = COSTS, columns: Any = COLUMNS, names: Any = ("cost",)) -> Dataset:
    return regression("rows", x, y, x[:0], y[:0], columns=columns, target_names=names)


def prepared(scenario: Scenario, data: Dataset) -> Preparation:
    found = ranged_preparation(scenario, data)
    assert found is not None
    return found


def test_columns_targets_and_constant_by_hand() -> None:
    found, half = prepared(private(), costs()), 0.5  # 1 / sqrt(3 columns + 1)
    features = prepared_features(ROWS, FeatureMap.create("none", inputs=4, dtype="float64"), found)
    expected = [[0, 0, 1, 0.5, 1], [1, 1, 0, -1, 1], [-1, 0, 1, 1, 1]]
    assert features == pytest.approx(half * np.array(expected))
    assert found.targets(COSTS)[:, 0].tolist() == [0, 1, -1]
    assert found.outputs(np.array([[0.5]])) == pytest.approx(np.array([[200.0]]))
    assert found.penalty == pytest.approx(np.full(5, 0.25))


def test_a_site_prepares_by_ranges_where_columns_do_not_stay_as_they_are() -> None:
    """Its columns may come in any order; the declared one is that of all sites."""
    own = Rows(ROWS[:, [3, 0, 1, 2]], COSTS, "regression", (), (COLUMNS[2], *COLUMNS[:2]), ("cost",))
    rows, found = declared_rows(private(**{"data.target": "cost"}), own)
    order = [column.name for column in rows.columns]
    assert sorted(order) == ["age", "city", "height"] and found is not None
    features = prepared_features(rows.x, FeatureMap.create("none", inputs=4, dtype="float64"), found)
    inputs = {"age": [[0], [1], [-1]], "city": [[0, 1], [1, 0], [0, 1]], "height": [[0.5], [-1], [1]]}
    assert features[:, :-1] == pytest.approx(0.5 * np.hstack([inputs[name] for name in order]))
    as_they_are = {"features.scale": "none", "features.intercept": False}
    alone = Rows(ROWS[:, :1], COSTS, "regression", (), COLUMNS[:1], ("cost",))
    assert declared_rows(private({}, **as_they_are, **{"features.categories": []}), alone) == (alone, None)


def test_without_noise_nothing_is_prepared_by_ranges() -> None:
    own = Rows(ROWS, COSTS, "regression", (), COLUMNS, ("cost",))
    open_one = private({}, **{"privacy.epsilon": None})
    assert ranged_preparation(open_one, costs()) is None
    assert declared_rows(open_one, own) == (own, None)


def test_images_stay_as_they_are_with_and_without_noise() -> None:
    digits = load("paper-quick").with_settings({"scheme": "one-shot", "privacy.epsilon": 1.0})
    assert digits.private and digits.data.named
    assert ranged_preparation(digits, costs()) is None


def test_all_sites_prepare_as_the_data_together_are_prepared() -> None:
    """Numeric columns in the order of their ranges, then those of text; the target is none of them."""
    given = private(**{"data.target": "cost"})
    columns, targets = declared_columns(given, regression=True)
    assert [column.name for column in columns] == ["age", "height", "city"]
    assert targets == ("cost",)
    together = costs(ROWS[:, [0, 3, 1, 2]], columns=columns)
    assert declared_preparation(given, 1, regression=True) == prepared(given, together)


def test_targets_are_named_with_commas() -> None:
    given = private({**RANGES, "weight": (0, 9)}, **{"data.target": " cost , weight"})
    assert declared_columns(given, regression=True)[1] == ("cost", "weight")
    several = Rows(ROWS, np.hstack([COSTS, COSTS]), "regression", (), COLUMNS, ("cost", "weight"))
    _, found = declared_rows(given, several)
    assert found is not None
    assert found.target_shift.tolist() == [100, 4.5]
    assert found.target_unit == pytest.approx(np.sqrt(2) * np.array([200, 4.5]))


def test_classes_need_no_target_and_stay_as_they_are() -> None:
    ranges = {name: RANGES[name] for name in ("age", "height")}
    assert declared_columns(private(ranges), regression=False)[1] == ()
    found = declared_preparation(private(ranges), 3, regression=False)
    assert (found.target_shift.tolist(), found.target_unit.tolist()) == ([0, 0, 0], [1, 1, 1])
    assert (found.target_low, found.target_high) == (None, None)
    own = Rows(ROWS, np.array([0, 1, 2]), "classification", ("a", "b", "c"), COLUMNS)
    assert declared_rows(private(ranges), own)[1] == found


def test_columns_of_a_site_without_names_are_named_by_position() -> None:
    """Two rows of three columns."""
    ranges = {"0": (0, 1), "1": (0, 2), "2": (0, 4), "y": (0, 1)}
    given = private(ranges, **{"features.categories": [], "data.target": "y"})
    rows, found = declared_rows(given, Rows(np.ones((2, 3)), np.ones((2, 1)), "regression", ()))
    assert rows.x.shape == (2, 3)
    assert found is not None
    assert found.high is not None and found.high.tolist() == [1, 2, 4]
    assert found.target_unit.tolist() == [0.5]


def test_nothing_depends_on_the_data() -> None:
    other = costs(ROWS[:1] * 1e9, COSTS[:1] - 7)
    assert prepared(private(), costs()) == prepared(private(), other)


@given(arrays(float, (3, 4), elements=st.floats(-1e300, 1e300)), st.integers(0, 1))
def test_no_row_is_longer_than_one(x: Any, place: int) -> None:
    x[:, 1:3] = np.eye(2)[place]
    found = prepared(private(), costs(x))
    features = prepared_features(x, FeatureMap.create("none", inputs=4, dtype="float64"), found)
    assert np.linalg.norm(features, axis=1).max() <= 1 + 1e-15
    assert np.linalg.norm(found.targets(x[:, :1])) <= np.sqrt(3)


def test_several_targets_are_together_no_longer_than_one() -> None:
    y = np.array([[1e9, -1e9], [0.0, 5.0], [4.0, 0.0]])
    ranges = {"age": (0, 120), "height": (1, 2), "a": (0, 8), "b": (-1, 1)}
    found = prepared(private(ranges), costs(y=y, names=("a", "b")))
    assert np.linalg.norm(found.targets(y), axis=1).max() == pytest.approx(1)
    assert found.outputs(found.targets(y))[2] == pytest.approx([4.0, 0.0])


def test_without_an_intercept_there_is_no_constant() -> None:
    found = prepared(private(**{"features.intercept": False}), costs())
    assert found.constant is None
    assert found.penalty is not None
    assert found.penalty.shape == (4,)


def test_the_constant_fits_other_losses_than_the_squared_one() -> None:
    wanted = {"scheme": "secagg", "task.loss": "softmax", "training.solver": "gradient-descent"}
    schemes.check(private(**wanted, **{"privacy.release": "each-epoch"}))
    with pytest.raises(ScenarioError, match=r"'softmax' does not go with features\.intercept"):
        schemes.check(load("own-data").with_settings({"data.source": "rows.csv", **wanted}))


class TestRandomFeatures:
    def test_columns_are_scaled_to_one_and_have_no_intercept(self) -> None:
        found = prepared(private(**{"features.kind": "rbf"}), costs())
        assert found.inputs(ROWS) == pytest.approx(np.array([[0, 0, 1, 0.5], [1, 1, 0, -1], [-1, 0, 1, 1]]))
        assert found.constant is None
        assert found.penalty is None

    def test_a_constant_is_within_what_devices_publish(self) -> None:
        wanted = {"features.kind": "rbf", "features.dimension": 50, "features.intercept": True}
        scenario = private(**wanted, **{"privacy.clip_features": 1.42})
        found = prepared(scenario, costs())
        features = FeatureMap.create("rbf", inputs=4, dimension=50, dtype="float64")
        shard = make_shard(DeviceRows(ROWS, COSTS), features, found)
        assert shard.x[:, -1].tolist() == [1, 1, 1]
        # sums of the constant are as large as the number of rows: a bound of sqrt(2 / d) would overflow
        assert schemes.describe(scenario, shard).largest_feature == 1.42


def test_a_device_without_rows_has_the_same_features() -> None:
    found, features = prepared(private(), costs()), FeatureMap.create("none", inputs=4, dtype="float64")
    shards = [make_shard(DeviceRows(ROWS[:n], COSTS[:n]), features, found) for n in (0, 2)]
    assert [shard.x.shape[1] for shard in shards] == [5, 5]
    assert not shards[0].x.any()


def test_one_range_for_all_others() -> None:
    x = np.array([[1.0, -2.0, 0.5]] * 3)
    ranges = {"*": (-1, 1), "1": (-4, 4), "y": (0, 1)}
    found = prepared(private(ranges, **{"features.categories": []}), costs(x, columns=(), names=()))
    assert found.inputs(x)[0] == pytest.approx(np.array([1, -0.5, 0.5]) / 2)


class TestRefused:
    @pytest.mark.parametrize(
        ("ranges", "says"),
        [
            ({}, "needs a public range of age, height, cost"),
            ({"age": (0, 1), "cost": (0, 1)}, "needs a public range of height "),
            ({"age": (0, 1), "height": (0, 1)}, "needs a public range of cost "),
            ({"*": (0, 1)}, "needs a public range of cost "),
            ({**RANGES, "agee": (0, 1)}, "range of 'agee', which is no numeric column .*did you mean 'age'"),
            ({**RANGES, "city": (0, 1)}, "range of 'city', which is no numeric column"),
        ],
    )
    def test_ranges(self, ranges: Mapping[str, tuple[float, float]], says: str) -> None:
        with pytest.raises(ScenarioError, match=says):
            ranged_preparation(private(ranges), costs())

    def test_sites_name_columns_and_target(self) -> None:
        with pytest.raises(ScenarioError, match=r"data\.target is empty; name the target"):
            declared_columns(private(), regression=True)
        with pytest.raises(ScenarioError, match=r"give a range of '\*'; on sites name every column"):
            declared_columns(private({"*": (0, 1)}, **{"data.target": "cost"}), regression=True)

    @pytest.mark.parametrize(
        ("columns", "target", "error", "says"),
        [
            (COLUMNS[::2], "cost", DataError, "there is no column 'city', which the scenario declares"),
            ((*COLUMNS[:2], Column("length")), "cost", ScenarioError, "range of 'height', which is no numeric column"),
            ((*COLUMNS, Column("length")), "cost", ScenarioError, "needs a public range of length "),
            (COLUMNS, "height", ScenarioError, "a column is called 'height' like the target"),
        ],
    )
    def test_columns_of_a_site(self, columns: Any, target: str, error: type[Exception], says: str) -> None:
        x = np.ones((3, sum(len(column.inputs) for column in columns)))
        own = Rows(x, COSTS, "regression", (), columns, (target,))
        with pytest.raises(error, match=says):
            declared_rows(private(**{"data.target": "cost"}), own)

    def test_another_target_at_a_site(self) -> None:
        own = Rows(ROWS[:, :3], COSTS, "regression", (), COLUMNS[:2], ("height",))
        given = private({name: RANGES[name] for name in ("age", "height")}, **{"data.target": "cost"})
        with pytest.raises(DataError, match=r"the target is height here and data\.target = 'cost'; rename it"):
            declared_rows(given, own)

    @pytest.mark.parametrize(("count", "listed"), [(20, "c19 "), (21, "c19 and 1 more "), (22, "c19 and 2 more ")])
    def test_twenty_names_are_listed(self, count: int, listed: str) -> None:
        columns = tuple(Column(f"c{number}") for number in range(count))
        data = costs(np.ones((3, count)), columns=columns)
        given = private({"cost": (0, 1)}, **{"features.categories": []})
        with pytest.raises(ScenarioError, match=rf"a public range of c0, c1, .*, {listed}\("):
            ranged_preparation(given, data)

    def test_everything_that_lacks_is_said_at_once(self) -> None:
        with pytest.raises(ScenarioError, match=r"age, height, cost .* and all possible values of city "):
            ranged_preparation(private({}, **{"features.categories": []}), costs())

    def test_categories_where_columns_stay_as_they_are(self) -> None:
        as_they_are = {"features.scale": "none", "features.intercept": False, "features.categories": []}
        with pytest.raises(ScenarioError, match="all possible values of city "):
            ranged_preparation(private({}, **as_they_are), costs())
        assert ranged_preparation(private({}, **as_they_are), costs(ROWS[:, :1], columns=(Column("age"),))) is None

    def test_a_column_called_like_the_target(self) -> None:
        with pytest.raises(ScenarioError, match="called 'age' like the target"):
            ranged_preparation(private(), costs(names=("age",)))

    def test_a_range_of_classes(self) -> None:
        labels = np.array(["a", "b", "a"])
        data = classification("rows", ROWS, labels, ROWS[:0], labels[:0], columns=COLUMNS, target_names=("cost",))
        with pytest.raises(ScenarioError, match="range of 'cost', which is no numeric column and no target of a regr"):
            ranged_preparation(private(), data)


class TestTables:
    def test_they_keep_every_bit(self) -> None:
        found = prepared(private(), costs())
        assert Preparation.from_table(found.to_table()) == found

    def test_others_are_as_before(self) -> None:
        assert set(Preparation.identity(2, 1).to_table()) == {
            *("shift", "unit", "fill", "feature_shift", "penalty", "target_shift", "target_unit")
        }

    @pytest.mark.parametrize(
        "change",
        [{"high": None}, {"low": [1e9] * 4}, {"target_low": None}, {"constant": ["x"]}, {"constant": [10**400]}],
    )
    def test_damaged(self, change: Mapping[str, Any]) -> None:
        table = {**prepared(private(), costs()).to_table(), **change}
        with pytest.raises(DataError, match="damaged"):
            Preparation.from_table(table)
