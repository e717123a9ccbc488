"""Data of a scenario: which settings say what, which device holds which rows, and first models."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl import load
from codedfl.data import Column
from codedfl.data.dataset import classification, regression
from codedfl.errors import ScenarioError
from codedfl.scenario import Scenario
from codedfl.task import Problem, RawData, feature_map, load_data, partition_rows, with_owners
from codedfl.task.folds import held_out_rows
from codedfl.task.loading import declared_categories, divide_rows, load_start
from codedfl.task.shared import SharedProblem

TABLE = """size,colour,price,kind,place
1,red,10,a,north
2.5,blue,20,b,south
3,red,30,a,east
4,,40,b,north
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "table.csv").write_text(TABLE)
    (tmp_path / "test.csv").write_text(TABLE.splitlines()[0] + "\n9,blue,50,b,west\n")
    return tmp_path / "table.csv"


def wanted(path: Path | str, **changes: Any) -> Scenario:
    given = {"data.source": str(path), "data.test_fraction": 0.0, "fleet.devices": [{"count": 2, "mac_rate": 1e6}]}
    return load("own-data").with_settings(given | {name.replace("__", "."): value for name, value in changes.items()})


class TestLoadedData:
    def test_target_kind_categories_owners_and_missing_values_are_those_of_the_scenario(self, table: Path) -> None:
        colours = [{"column": "colour", "values": ["red", "blue"]}, {"column": "kind", "values": ["a", "b"]}]
        found = load_data(
            wanted(
                table,
                data__target="price",
                data__kind="regression",
                data__test_source=str(table.with_name("test.csv")),
                partition__kind="column",
                partition__column="place",
                features__categories=colours,
                features__missing="mean",
            )
        )
        assert found.kind == "regression"
        assert found.columns == (Column("size"), Column("colour", ("red", "blue")), Column("kind", ("a", "b")))
        nan = np.nan
        expected = [[1, 1, 0, 1, 0], [2.5, 0, 1, 0, 1], [3, 1, 0, 1, 0], [4, nan, nan, 0, 1]]
        assert np.array_equal(found.x_train, expected, equal_nan=True)
        assert found.y_train.tolist() == [[10], [20], [30], [40]]
        assert found.owners is not None and found.owners.tolist() == ["north", "south", "east", "north"]
        assert (found.x_test.tolist(), found.y_test.tolist()) == ([[9, 0, 1, 0, 1]], [[50]])

    def test_without_settings_the_last_column_is_the_target(self, tmp_path: Path) -> None:
        (tmp_path / "plain.csv").write_text("a,b\n1,10.5\n2,20.5\n")
        found = load_data(wanted(tmp_path / "plain.csv"))
        assert (found.x_train.tolist(), found.y_train.tolist()) == ([[1.0], [2.0]], [[10.5], [20.5]])
        assert found.owners is None

    @pytest.mark.parametrize(("scale", "dtype"), [("none", "float32"), ("standard", "float64")])
    def test_columns_that_are_to_be_prepared_are_not_rounded_before(
        self, tmp_path: Path, scale: str, dtype: str
    ) -> None:
        (tmp_path / "plain.csv").write_text("a,b\n0.1,10.5\n2,20.5\n")
        changes = {"features__scale": scale, "features__intercept": False, "task__precision": "float32"}
        assert load_data(wanted(tmp_path / "plain.csv", **changes)).x_train.dtype == dtype

    def test_the_seed_of_the_data_draws_the_test_rows(self, tmp_path: Path) -> None:
        (tmp_path / "plain.csv").write_text("a,b\n" + "".join(f"{row},{row}.5\n" for row in range(40)))
        drawn = [
            load_data(wanted(tmp_path / "plain.csv", data__test_fraction=0.25, data__seed=seed)) for seed in (1, 1, 2)
        ]
        assert [len(each.x_test) for each in drawn] == [10, 10, 10]
        assert drawn[0].x_test.tolist() == drawn[1].x_test.tolist() != drawn[2].x_test.tolist()

    def test_declared_categories_by_column(self) -> None:
        given = [{"column": "a", "values": ["x", "y"]}, {"column": "b", "values": ["z"]}]
        assert declared_categories(wanted("t.csv", features__categories=given)) == {"a": ("x", "y"), "b": ("z",)}
        assert declared_categories(wanted("t.csv")) == {}


class TestOwners:
    def test_there_is_a_device_for_each(self, table: Path) -> None:
        given = wanted(table, partition__kind="column", partition__column="place")
        found = with_owners(given)
        assert found.fleet.size == 3
        assert with_owners(wanted(table)) == wanted(table)

    def test_of_files_each_is_an_owner(self, tmp_path: Path) -> None:
        for name in "abcd":
            (tmp_path / f"{name}.csv").write_text("x,y\n1,2.5\n2,3.5\n")
        given = wanted(tmp_path / "*.csv", partition__kind="files")
        assert with_owners(given).fleet.size == 4
        raw = RawData.load(with_owners(given))
        assert (len(raw.parts), raw.owners) == (4, ("a", "b", "c", "d"))

    def test_data_elsewhere_are_not_looked_at(self) -> None:
        given = wanted("sites", partition__kind="column", partition__column="place")
        assert with_owners(given) is given


X = np.arange(24.0).reshape(12, 2)
Y = np.arange(12.0)
NAMES = np.array(["b", "a", "b", "c"] * 3)


class TestRawData:
    def test_rows_of_a_device_are_those_it_trains_on_and_those_it_holds_out(self) -> None:
        given = wanted("t.csv", data__held_out=0.5, data__seed=4, features__kind="rbf", features__dimension=5)
        raw = RawData.create(given, regression("rows", X, Y, X[:0], Y[:0]))
        parts = partition_rows(given, Y[:, None], 12)
        assert sorted(np.concatenate(parts).tolist()) == list(range(12))
        for device, rows in enumerate(parts):
            out = held_out_rows(len(rows), 0.5, seed=4, device=device)
            assert raw.device(device).x.tolist() == X[rows[~out]].tolist()
            assert raw.device(device).y[:, 0].tolist() == rows[~out].tolist()
            assert raw.held_out(device).x.tolist() == X[rows[out]].tolist()
            assert raw.held_out(device).y[:, 0].tolist() == rows[out].tolist()
        assert divide_rows(given, parts)[0][0].tolist() == raw.parts[0].tolist()
        assert (raw.features.kind, raw.features.dimension, raw.features.inputs) == ("rbf", 5, 2)
        assert raw.owners == ()

    def test_classes_become_rows_of_zeros_and_a_one(self) -> None:
        loaded = classification("rows", X, NAMES, X[:0], NAMES[:0])
        raw = RawData.create(wanted("t.csv"), loaded)
        for device, rows in enumerate(raw.parts):
            assert raw.device(device).y.tolist() == [[float(NAMES[row] == name) for name in "abc"] for row in rows]

    def test_devices_are_owners_in_sorted_order(self) -> None:
        given = wanted("t.csv", partition__kind="column", partition__column="place").with_devices(3)
        owners = np.array(["b", "a", "b", "c", *"bababaab"])
        raw = RawData.create(given, regression("rows", X, Y, X[:0], Y[:0], owners=owners))
        assert raw.owners == ("a", "b", "c")
        assert [sorted(rows.tolist()) for rows in raw.parts] == [[1, 5, 7, 9, 10], [0, 2, 4, 6, 8, 11], [3]]

    def test_inputs_that_stand_for_categories(self) -> None:
        columns = (Column("a"), Column("b", ("x", "y")))
        for names, x, expected in (((), X, [False, False]), (columns, np.eye(12)[:, :3], [False, True, True])):
            raw = RawData.create(wanted("t.csv"), regression("rows", x, Y, x[:0], Y[:0], columns=names))
            assert raw.dummies.tolist() == expected

    def test_the_feature_map_is_that_of_the_settings(self) -> None:
        changes = {"features__kind": "rbf", "features__dimension": 3, "features__gamma": 0.5, "features__seed": 8}
        found = feature_map(wanted("t.csv", **changes, task__precision="float64"), 2)
        other = feature_map(wanted("t.csv", **(changes | {"features__seed": 9}), task__precision="float64"), 2)
        assert (found.kind, found.inputs, found.dimension, found.dtype) == ("rbf", 2, 3, np.float64)
        assert found.weights.tolist() == np.random.RandomState(8).normal(size=(2, 3)).tolist()
        assert found.weights.tolist() != other.weights.tolist()


class Touching:
    """What makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


class TestFirstModels:
    def start(self, tmp_path: Path, theta: Any, shape: tuple[int, int] = (2, 1)) -> Any:
        np.savez(tmp_path / "model.npz", theta=theta)
        return load_start(wanted("t.csv", training__start=str(tmp_path / "model.npz")), shape)

    def test_without_one_it_is_zero(self) -> None:
        assert load_start(wanted("t.csv"), (2, 1)) is None

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint16"])
    def test_real_numbers_of_any_format(self, tmp_path: Path, dtype: str) -> None:
        found = self.start(tmp_path, np.array([[1], [2]], dtype))
        assert found.dtype == np.float64
        assert found.tolist() == [[1], [2]]

    @pytest.mark.parametrize("theta", [np.ones((2, 1), complex), np.ones((2, 1), bool), np.array([["a"], ["b"]])])
    def test_other_entries_are_refused(self, tmp_path: Path, theta: np.ndarray) -> None:
        with pytest.raises(ScenarioError, match="holds no array theta of real numbers"):
            self.start(tmp_path, theta)

    def test_objects_are_refused_before_they_are_made(self, tmp_path: Path) -> None:
        theta = np.array([[Touching(tmp_path / "touched")], [1.0]], dtype=object)
        with pytest.raises(ScenarioError, match="holds no array theta of real numbers"):
            self.start(tmp_path, theta)
        assert not (tmp_path / "touched").exists()

    @pytest.mark.parametrize("shape", [(1, 2), (3, 1), (2,), ()])
    def test_another_shape_is_refused(self, tmp_path: Path, shape: tuple[int, ...]) -> None:
        with pytest.raises(ScenarioError, match=r"has shape .*; this task needs finite \(2, 1\)"):
            self.start(tmp_path, np.ones(shape))

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_numbers_that_are_not_finite_are_refused(self, tmp_path: Path, value: float) -> None:
        with pytest.raises(ScenarioError, match="holds numbers that are not finite"):
            self.start(tmp_path, np.array([[1.0], [value]]))


class TestSharedProblems:
    def scenario(self, path: Path, **changes: Any) -> Scenario:
        return wanted(path, features__scale="none", features__intercept=False, **changes)

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        np.savez(tmp_path / "rows.npz", x=X, y=Y)
        return tmp_path / "rows.npz"

    def test_other_data_are_loaded_and_the_same_are_not(self, path: Path) -> None:
        seen: list[Scenario] = []
        shared, first = SharedProblem(), self.scenario(path)

        def problem_of(given: Scenario) -> Problem:
            return shared.get(given, lambda scenario, raw: seen.append(scenario))()

        one = problem_of(first)
        assert problem_of(self.scenario(path, training__epochs=7, scheme="conventional")) is one
        assert seen == [first]
        others = [
            self.scenario(path, task__ridge=0.5),
            self.scenario(path, data__seed=5),
            self.scenario(path, partition__seed=5),
            self.scenario(path).with_devices(3),
            self.scenario(path, features__missing="mean"),
        ]
        for other in others:
            assert problem_of(other) is not one
        assert seen == [first, *others]
        again = problem_of(first)
        assert again is not one, "only the newest is kept"
        assert [shard.x.tolist() for shard in again.shards] == [shard.x.tolist() for shard in one.shards]

    def test_nothing_is_loaded_before_it_is_needed(self, path: Path) -> None:
        seen: list[Scenario] = []
        SharedProblem().get(self.scenario(path), lambda scenario, raw: seen.append(scenario))
        assert seen == []
