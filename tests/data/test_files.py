import datetime

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from codedfl.data import load, load_file
from codedfl.errors import DataError, ScenarioError

X = np.random.default_rng(0).normal(size=(50, 3))
CLASSES = np.arange(50) % 4


def write(path, columns):
    table = pa.table(columns)
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)
    return path


def columns(**more):
    return {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], **more}


@pytest.fixture(params=[".csv", ".parquet"])
def table_path(request, tmp_path):
    return tmp_path / f"table{request.param}"


def test_table_of_classes(table_path):
    write(table_path, columns(label=CLASSES))
    data = load(str(table_path), seed=1)
    assert data.kind == "classification"
    assert data.class_names == ("0", "1", "2", "3")
    assert data.x_train.dtype == np.float32
    assert (data.samples, len(data.x_test), data.inputs) == (40, 10, 3)


def test_text_labels_named_target_and_separate_test_file(table_path, tmp_path):
    names = np.array(["dog", "cat"])[CLASSES % 2]
    write(table_path, {"animal": names, **columns()})
    test = write(tmp_path / "test.parquet", {"animal": ["cat"], "a": [1.0], "b": [2.0], "c": [3.0]})
    data = load_file(table_path, target="animal", test_path=test, dtype="float64")
    assert data.class_names == ("cat", "dog")
    assert data.samples == 50
    np.testing.assert_array_equal(data.x_test, [[1, 2, 3]])
    np.testing.assert_array_equal(data.x_train, X)
    np.testing.assert_array_equal(data.y_test, [0])


def test_truth_values_are_classes_and_features(table_path):
    write(table_path, {"flag": CLASSES > 1, "yes": CLASSES % 2 == 0})
    data = load_file(table_path)
    assert data.class_names == ("False", "True")
    assert set(np.unique(data.x_train)) == {0.0, 1.0}


def test_several_targets_make_a_regression(table_path):
    write(table_path, columns(**{"u": X[:, 0] + 1, "v": CLASSES}))
    data = load_file(table_path, target="u, v")
    assert (data.kind, data.outputs, data.inputs) == ("regression", 2, 3)
    np.testing.assert_allclose(data.y_train[:, 0], data.x_train[:, 0] + 1, rtol=1e-5, atol=1e-6)


def test_many_whole_numbers_make_a_regression(tmp_path):
    np.savez(tmp_path / "d.npz", X=np.arange(300.0).reshape(150, 2), y=np.arange(150))
    assert load_file(tmp_path / "d.npz").kind == "regression"
    assert load_file(tmp_path / "d.npz", kind="regression").outputs == 1


def test_npz_with_test_samples(tmp_path):
    path = tmp_path / "d.npz"
    np.savez(path, x_train=X, y_train=CLASSES[:, None], x_test=X[:5], y_test=CLASSES[:5])
    data = load_file(path)
    assert (data.kind, data.samples, data.classes) == ("classification", 50, 4)


def test_the_split_depends_on_the_seed_only(tmp_path):
    np.savez(tmp_path / "d.npz", x=X, y=CLASSES)
    first, same, other = (load_file(tmp_path / "d.npz", seed=seed).x_test for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def broken_zip(path):
    np.savez(path, x=X, y=CLASSES)
    path.write_bytes(path.read_bytes()[:300])


def lone_array(path):
    with path.open("wb") as stream:
        np.save(stream, X)


NPZ_ERRORS = {
    "objects": (lambda p: np.savez(p, x=X, y=np.array([{}] * 50), allow_pickle=True), "holds objects"),
    "keys": (lambda p: np.savez(p, features=X, y=CLASSES), "holds the arrays features, y"),
    "length": (lambda p: np.savez(p, x=X, y=CLASSES[:9]), r"shape \(50, 3\) but y has shape \(9,\)"),
    "text": (lambda p: np.savez(p, x=X.astype(str), y=CLASSES), "not a real number"),
    "complex": (lambda p: np.savez(p, x=X + 1j, y=CLASSES), "not a real number"),
    "dates": (lambda p: np.savez(p, x=X, y=CLASSES.astype("datetime64[s]")), "numbers or text"),
    "rank": (lambda p: np.savez(p, x=X[:, :, None], y=CLASSES), "x_train has 3 dimensions"),
    "nan": (lambda p: np.savez(p, x=np.full((50, 3), np.nan), y=CLASSES), "missing or infinite"),
    "overflow": (lambda p: np.savez(p, x=X * 1e300, y=CLASSES), "missing or infinite"),
    "empty": (lambda p: np.savez(p, x=X[:0], y=CLASSES[:0]), "leaves no test sample"),
    "tiny": (lambda p: np.savez(p, x=X[:2], y=CLASSES[:2]), "leaves no test sample"),
    "broken": (broken_zip, "cannot be read as .npz"),
    "garbage": (lambda p: p.write_bytes(b"hello"), "cannot be read as .npz"),
    "nothing": (lambda p: p.write_bytes(b""), "cannot be read as .npz"),
    "npy": (lone_array, "cannot be read as .npz"),
}


@pytest.mark.parametrize("case", NPZ_ERRORS)
def test_unusable_npz_is_refused(tmp_path, case):
    make, sentence = NPZ_ERRORS[case]
    make(tmp_path / "d.npz")
    with pytest.raises(DataError, match=sentence) as caught:
        load_file(tmp_path / "d.npz")
    assert "\n" not in str(caught.value)


DAY = datetime.date(2020, 1, 1)
TABLE_ERRORS = {
    "target": (columns(y=CLASSES), {"target": "label"}, "no column 'label' .* columns are a, b, c, y"),
    "dates as feature": (columns(d=[DAY] * 50, y=CLASSES), {}, r"column 'd' holds date32"),
    "text among numbers": (columns(d=["1", "2", "x"] * 16 + ["3", "4"], y=CLASSES), {}, "row 2 .* 'd' holds 'x' among"),
    "text of many kinds": ({"a": [f"n{i}" for i in range(1001)], "y": [0, 1] * 500 + [0]}, {}, "text of 1001 kinds"),
    "missing target": (columns(y=[None] + [1] * 49), {}, "target 'y' is missing in 1 of 50 rows"),
    "missing feature": ({"a": [None] + [1.5] * 49, "y": CLASSES}, {}, "holds 1 missing"),
    "only target": ({"y": CLASSES}, {}, "no column beside the target y"),
    "text targets": (columns(u=["x"] * 50, y=CLASSES), {"target": "u,y"}, "'u' is not numeric"),
    "text regression": (columns(y=["x", "z"] * 25), {"kind": "regression"}, "regression needs numbers"),
    "dates": (columns(y=[DAY] * 50), {}, "holds date32"),
    "many names": ({"a": np.arange(150.0), "y": [f"n{i}" for i in range(150)]}, {}, "more than 100 kinds"),
    "classes in columns": (columns(u=CLASSES, y=CLASSES), {"target": "u,y", "kind": "classification"}, "one"),
}


@pytest.mark.parametrize("case", TABLE_ERRORS)
def test_unusable_table_is_refused(table_path, case):
    content, options, sentence = TABLE_ERRORS[case]
    write(table_path, content)
    with pytest.raises(DataError, match=sentence) as caught:
        load_file(table_path, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("d.parquet", b"PAR1 not really"),
        ("d.parquet", b""),
        ("d.csv", b""),
        ("d.csv", b"a,b\n1,2\n1,2,3\n"),
        ("d.csv", b"a,b\n"),
        ("d.csv", b"a,a\n1,2\n"),
        ("d.csv", b"a,b\n\xff\xfe,\xff\n"),
        ("d.txt", b"1 2 3"),
    ],
)
def test_broken_file_is_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        load_file(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_missing_file_and_unknown_name_are_refused(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        load_file(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"'mnits' is neither a known data set \(mnist, fashion, digits, .*, watch\)"):
        load("mnits")


def test_test_file_of_other_columns_is_refused(tmp_path):
    train = write(tmp_path / "train.csv", columns(y=CLASSES))
    test = write(tmp_path / "test.csv", {"a": [1.0], "z": [1.0], "c": [1.0], "y": [1]})
    with pytest.raises(DataError, match="differ in b, z"):
        load_file(train, test_path=test)


def test_test_label_that_never_occurs_in_training_is_refused(tmp_path):
    train = write(tmp_path / "train.csv", columns(y=CLASSES))
    test = write(tmp_path / "test.csv", {"a": [1.0], "b": [1.0], "c": [1.0], "y": [9]})
    with pytest.raises(DataError, match="holds 9, which never occurs"):
        load_file(train, test_path=test)


def test_wrong_requests_are_refused(tmp_path):
    path, whole = tmp_path / "d.npz", tmp_path / "whole.npz"
    np.savez(path, x=X, y=CLASSES)
    np.savez(whole, x_train=X, y_train=CLASSES, x_test=X, y_test=CLASSES)
    for options, sentence in (
        ({"test_fraction": 1.0}, "test_fraction is 1.0"),
        ({"kind": "ranking"}, "kind 'ranking' is unknown"),
        ({"dtype": "float16"}, "'float16'; choose float32"),
        ({"seed": -1}, "seed of the test split is -1"),
        ({"target": "y"}, "leave the target out"),
    ):
        with pytest.raises(ScenarioError, match=sentence):
            load_file(path, **options)
    with pytest.raises(ScenarioError, match="one too many"):
        load_file(whole, test_path=path)
    with pytest.raises(DataError, match="training part of its own"):
        load_file(path, test_path=whole)
