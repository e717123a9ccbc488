import gzip
import hashlib
import os
import pickle
import struct
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from codedfl.data import TABLES, fetch, read_known_table, resolve
from codedfl.data.sources import tables
from codedfl.data.sources.download import DataFile
from codedfl.data.sources.lazy_load import read_data_frame
from codedfl.data.sources.origins import EnvironmentFolder
from codedfl.data.sources.pickled import read_pickled_dictionary
from codedfl.data.sources.tables import read_chem97, read_insteval, read_watch, table_file
from codedfl.errors import DataError, DownloadError, MissingExtraError

RATINGS = b"""\
"","s","d","studage","lectage","service","dept","y"
"1","1","1002","2","2","0","2",5
"2","1","1050","2","1","1","6",2
"3","2","1002","4","2","0","2",3
"""


def npy(value, protocol=2):
    """A .npy file with one object, as NumPy 1 wrote it."""
    box = np.empty((), dtype=object)
    box[()] = value
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (), }\n"
    body = pickle.dumps(box, protocol).replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


class Harmful:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


class TestPickled:
    def test_lists_texts_and_arrays_of_numbers(self):
        rows = np.arange(6.0).reshape(2, 3)
        found = read_pickled_dictionary(
            npy({"X": [rows, np.asfortranarray(rows)], "y": np.array([3, 4]), "n": "é"}), "f"
        )
        np.testing.assert_array_equal(found["X"], [rows, rows])
        np.testing.assert_array_equal(found["y"], [3, 4])
        assert found["n"] == "é"
        assert found["y"].dtype == np.int64

    def test_nothing_that_the_file_names_is_called(self, tmp_path):
        victim = str(tmp_path / "made")
        harmful = npy({"X": Harmful(victim), "y": 0})
        pickle.loads(harmful[harmful.index(b"\n") + 1 :].replace(b"numpy.core", b"numpy._core"))
        Path(victim).rmdir()  # the pickle does harm where it is unpickled
        with pytest.raises(DataError, match=r"f is not read, because it asks for \w+ mkdir"):
            read_pickled_dictionary(harmful, "f")
        assert not Path(victim).exists()

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (npy({"X": np.ones(2)}, protocol=4), "it uses the pickle opcode"),
            (npy({"X": np.array(["a"]), "y": 0}), "an array holds"),
            (npy({"X": np.array([1, None]), "y": 0}), "an array holds"),
            (npy([1, 2]), "no dictionary"),
            (npy({"X": {1, 2}, "y": 0}), "asks for"),
            (npy({"X": 1})[:-4], "pickle exhausted|not read"),
            (b"no file", "no .npy file"),
            (b"", "no .npy file"),
        ],
    )
    def test_everything_else_is_refused(self, content, reason):
        with pytest.raises(DataError, match=reason):
            read_pickled_dictionary(content, "f")


@pytest.fixture
def r_database(tmp_path):
    """The index and records of an R package with one data frame of three pupils."""
    rdata = pytest.importorskip("rdata", reason="R data need rdata, of the extra 'data'")
    pandas = pytest.importorskip("pandas")
    factors = {"lea": ["1", "1", "2"], "school": ["1", "1", "8"], "student": ["a", "b", "c"], "gender": ["F", "M", "F"]}
    numbers = {
        "score": [4.0, 10.0, 0.0],
        "age": [3.0, -3.0, 0.0],
        "gcsescore": [6.5, 7.5, 5.0],
        "gcsecnt": [0, 1, -1.5],
    }
    frame = pandas.DataFrame({name: pandas.Categorical(values) for name, values in factors.items()} | numbers)
    record = tmp_path / "record.rds"
    rdata.write_rds(record, frame)
    content = gzip.decompress(record.read_bytes())
    stored = struct.pack(">I", len(content)) + zlib.compress(content)
    index = {"variables": {"Chem97": np.array([5, len(stored)], np.int32)}, "references": {}, "compressed": True}
    rdata.write_rds(record, index)
    return record.read_bytes(), b"other" + stored + b"other"


class TestChem97:
    def test_factors_are_text_and_numbers_stay(self, r_database):
        table = read_chem97({"Rdata.rdx": r_database[0], "Rdata.rdb": r_database[1]})
        assert table.column("school").to_pylist() == ["1", "1", "8"]
        assert table.column("gender").to_pylist() == ["F", "M", "F"]
        assert table.column("score").to_pylist() == [4.0, 10.0, 0.0]
        assert {str(table.schema.field(name).type) for name in ("lea", "school", "student", "gender")} == {"string"}

    def test_a_broken_record_is_refused(self, r_database):
        index, database = r_database
        for broken in (database[:40], bytes(len(database)), database[:9] + b"?" + database[10:]):
            with pytest.raises(DataError, match="the record of 'Chem97' in the R database is broken"):
                read_data_frame(index, broken, "Chem97")

    def test_an_unknown_data_frame_is_refused(self, r_database):
        with pytest.raises(DataError, match="no data frame 'Exam'; it has Chem97"):
            read_data_frame(*r_database, "Exam")

    def test_the_extra_is_named_where_it_is_missing(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "rdata", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'codedfl\[data\]'"):
            read_data_frame(b"", b"", "Chem97")


def test_insteval_labels_are_text_and_counts_are_numbers():
    table = read_insteval({"InstEval.csv": RATINGS})
    assert table.slice(1, 1).to_pylist() == [
        {"s": "1", "d": "1050", "studage": 2, "lectage": 1, "service": 1, "dept": "6", "y": 2.0}
    ]
    assert table.num_rows == 3


def test_watch_describes_windows_that_do_not_overlap():
    long, short = np.zeros((250, 6)), np.ones((130, 6))
    long[:100, 0], long[100:200:2, 5], long[200:] = 3.0, -2.0, 99.0
    labels = {"X_labels": ["ax", "ay", "az", "wx", "wy", "wz"], "y_labels": ["PEN", "ROW"]}
    people = {"y": np.array([1, 0]), "subject": np.array([4, 10]), "side": np.array([1.0, 0.0])}
    table = read_watch({"watch_dataset.npy": npy({"X": [np.asfortranarray(long), short]} | labels | people)})
    rows = table.to_pylist()
    assert [(row["subject"], row["exercise"], row["side"], row["series"]) for row in rows] == [
        ("4", "ROW", "right", 0),
        ("4", "ROW", "right", 0),
        ("10", "PEN", "left", 1),
    ]
    assert [rows[0][f"ax_{name}"] for name in ("mean", "std", "min", "max", "energy")] == [3, 0, 3, 3, 9]
    # half of the samples are -2, half 0: mean -1, deviation 1, mean square 2
    assert [rows[1][f"wz_{name}"] for name in ("mean", "std", "min", "max", "energy")] == [-1, 1, -2, 0, 2]
    assert table.column_names == [*TABLES["watch"].features, "series", "side", "subject", "exercise"]


class TestColumns:
    def test_the_target_is_last_and_the_owner_is_no_feature(self):
        assert TABLES["chem97"].columns("lea") == ("gender", "age", "gcsescore", "lea", "score")
        assert TABLES["insteval"].columns("dept") == ("studage", "lectage", "service", "dept", "y")
        assert TABLES["insteval"].columns() == ("studage", "lectage", "service", "dept", "y")

    def test_a_column_that_names_no_owner_is_refused(self):
        with pytest.raises(DataError, match="insteval: the column 'studage' names no owner; choose one of s, d, dept"):
            table_file("insteval", "studage")


@pytest.fixture
def ratings(tmp_path, monkeypatch):
    """The table insteval with three rows, from a folder."""
    (tmp_path / "InstEval.csv").write_bytes(RATINGS)
    monkeypatch.setenv("CODEDFL_DATA", str(tmp_path))
    pinned = DataFile("InstEval.csv", hashlib.sha256(RATINGS).hexdigest(), len(RATINGS))
    known = TABLES["insteval"]
    source = replace(known.source, files=(pinned,), origins=(EnvironmentFolder("insteval"),))
    monkeypatch.setattr(tables, "TABLES", {"insteval": replace(known, source=source)})
    return tmp_path / "cache" / "insteval"


class TestKnownTables:
    def test_fetching_verifies_the_files(self, ratings):
        assert fetch("insteval") == ratings
        assert (ratings / "InstEval.csv").read_bytes() == RATINGS

    def test_other_bytes_are_refused(self, ratings, tmp_path):
        (tmp_path / "InstEval.csv").write_bytes(RATINGS[:-2] + b"4\n")
        with pytest.raises(DownloadError, match=r"InstEval.csv does not match its checksum .*; put InstEval.csv"):
            read_known_table("insteval")
        assert not ratings.exists()

    def test_the_file_holds_the_columns_of_the_task(self, ratings):
        path = table_file("insteval", "s")
        assert path == ratings / "insteval-by-s.parquet"
        assert pyarrow.parquet.read_table(path).to_pylist()[2] == {
            **{"studage": 4, "lectage": 2, "service": 0, "dept": "2"},
            **{"s": "2", "y": 3.0},
        }
        assert resolve("insteval") == ratings / "insteval.parquet"

    def test_an_altered_file_is_written_again(self, ratings):
        path = table_file("insteval", "d")
        whole = path.read_bytes()
        path.write_bytes(b"altered")
        assert resolve("insteval", "d") == path
        assert path.read_bytes() == whole

    def test_other_sources_are_paths(self):
        assert resolve("rows.csv") == Path("rows.csv")

    def test_an_unknown_table_is_refused(self):
        with pytest.raises(DataError, match="'iris'; choose one of chem97, insteval, watch"):
            read_known_table("iris")


@pytest.mark.parametrize("known", TABLES.values(), ids=TABLES)
def test_every_table_is_complete(known):
    assert all(len(file.sha256) == 64 for file in known.source.files)
    assert known.source.places[0] == "the cache folder"
    assert known.target not in known.features
    assert known.kind in ("regression", "classification")


SIZES = {
    "chem97": (31_022, {"school": 2_410, "lea": 131}),
    "insteval": (73_421, {"s": 2_972, "d": 1_128, "dept": 14}),
    "watch": (2_369, {"subject": 10}),
}


@pytest.mark.network
@pytest.mark.skipif(os.environ.get("CODEDFL_TEST_NETWORK") != "1", reason="CODEDFL_TEST_NETWORK is not 1")
@pytest.mark.parametrize("name", TABLES)
def test_real_tables_arrive(name):
    table, (rows, owners) = read_known_table(name), SIZES[name]
    assert table.num_rows == rows
    assert {column: len(set(table.column(column).to_pylist())) for column in TABLES[name].owners} == owners
    assert set(TABLES[name].columns()) <= set(table.column_names)
    assert sum(column.null_count for column in table.columns) == 0
