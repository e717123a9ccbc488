"""Event files, read by TensorBoard itself."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.errors import UsageError
from codedfl.report.exports import write_tensorboard
from codedfl.report.exports.tensorboard import EVENTS
from codedfl.runs import Run, load
from report.exports.made import HOSTILE, copied, made, renamed
from rundirs import tree

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def read(folder: Path) -> Any:
    """What TensorBoard makes of a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()


def test_every_checksum_is_right(tmp_path: Path) -> None:
    """TensorBoard's reader raises for a wrong checksum, and stops at a record that is cut off."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New

    run = load(made())
    write_tensorboard(run, tmp_path / "log")
    reader, found = PyRecordReader_New(str(tmp_path / "log" / EVENTS)), []
    with pytest.raises(Exception, match="No more events"):
        while True:
            reader.GetNext()
            found.append(Event.FromString(reader.record()))
    assert found[0].file_version == "brain.Event:2"
    assert [event.step for event in found[1:]] == list(range(run.summary["epochs"] + 1))


def test_scalars_of_every_epoch_at_virtual_time(tmp_path: Path) -> None:
    run = load(made())
    count = write_tensorboard(run, tmp_path / "log")
    log = read(tmp_path / "log")
    names = {"accuracy": "accuracy", "loss": "loss", "gradient/norm": "gradient_norm", "bits/up": "up_bits"}
    assert len(log.Tags()["scalars"]) == count
    for tag, column in (names | {"time/own_draw": "time", "time/mean": "time_mean"}).items():
        first, *points = log.Scalars(tag)
        assert math.isnan(first.value)
        assert first.step == 0
        assert [point.step for point in points] == run.epochs["epoch"].tolist()
        assert [point.value for point in points] == pytest.approx(run.epochs[column].tolist(), rel=1e-6)
        relative = [point.wall_time - first.wall_time for point in points]
        assert relative == pytest.approx(run.epochs["time"].tolist(), abs=1e-6)
        assert first.wall_time == (made() / "summary.json").stat().st_mtime


def test_what_is_not_known_is_left_out(tmp_path: Path) -> None:
    """Gradient errors are promised by exact schemes only; those of the others have no series."""
    assert np.isnan(load(made()).epochs["gradient_error"]).all()
    write_tensorboard(load(made()), tmp_path / "log")
    assert "gradient/error" not in read(tmp_path / "log").Tags()["scalars"]


def test_the_scenario_is_a_text_without_markup(tmp_path: Path) -> None:
    run = renamed(load(made()))
    write_tensorboard(run, tmp_path / "log")
    log = read(tmp_path / "log")
    text = log.Tensors("scenario")[0].tensor_proto.string_val[0].decode()
    assert log.SummaryMetadata("scenario").plugin_data.plugin_name == "text"
    head, _, body = text.partition("\n\n")
    assert run.summary["scenario_id"] in head
    assert all(line.startswith("    ") for line in body.splitlines())
    assert HOSTILE.split('"')[0] in body
    assert "".join(line[4:] + "\n" for line in body.splitlines()) == run.scenario.to_toml()


def test_an_own_or_empty_folder_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    for _ in range(2):
        write_tensorboard(load(made()), tmp_path / "log")
        assert set(tree(tmp_path)) == {"log", f"log/{EVENTS}"}
    write_tensorboard(load(made()), tmp_path / "a/b/log")
    assert (tmp_path / "a/b/log" / EVENTS).read_bytes() == (tmp_path / "log" / EVENTS).read_bytes()


@pytest.mark.parametrize("names", [("notes.txt",), (EVENTS, "events.out.tfevents.1.mine")])
def test_a_folder_of_others_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    (tmp_path / "log").mkdir()
    for name in names:
        (tmp_path / "log" / name).write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(UsageError, match="exists and is not what this command writes; choose another folder"):
        write_tensorboard(load(made()), tmp_path / "log")
    assert tree(tmp_path) == before


def test_a_regression_has_r2(tmp_path: Path) -> None:
    run: Run = copied(tmp_path / "run", metric="r2")
    write_tensorboard(run, tmp_path / "log")
    assert {"r2", "loss"} <= set(read(tmp_path / "log").Tags()["scalars"])
