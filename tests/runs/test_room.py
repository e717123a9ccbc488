"""A run whose data do not fit into memory: the same bits from arrays on disk, or one sentence before work begins."""

from pathlib import Path

import numpy as np
import pytest

from codedfl import storage
from codedfl.cli import main
from codedfl.errors import ScenarioError
from codedfl.runs import directory as runs
from codedfl.runs import room
from codedfl.runs.memory import run_in_memory
from codedfl.runs.room import LIMIT, Memory, free_memory
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES
from codedfl.studies import processes
from codedfl.task import Problem, RawData
from codedfl.task.shared import SharedProblem
from rundirs import SMALL, InlinePool, tree
from tiny import is_one_sentence

KEPT = ("conventional", "sealed", "sealed-coded", "coded-padded", "one-shot", "code-based")
CODE = {"n": 80, "degree": 7, "t_tot": 12, "t": 4, "M": 4, "beta": 2, "delta": 0.02}


def chosen(scheme: str, **more: object) -> Scenario:
    return Scenario.from_toml(SMALL).with_settings({"scheme": scheme, "schemes.code-based": CODE, **more})


@pytest.mark.parametrize("scheme", KEPT)
def test_arrays_on_disk_change_no_bit(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    within = runs.execute(chosen(scheme), tmp_path / "memory")
    made, said = [], []
    real = storage.np.memmap

    def counted(file: object, *arguments: object, **options: object) -> object:
        made.append(arguments)
        return real(file, *arguments, **options)

    monkeypatch.setattr(storage, "LARGE", 64)
    monkeypatch.setattr(storage.np, "memmap", counted)
    monkeypatch.setattr(room, "free_memory", lambda: Memory.needed(chosen(scheme), RawData.load(chosen(scheme))).rest)
    path = tmp_path / "disk"
    outside = runs.execute(chosen(scheme), path, progress=lambda stage, *_: said.append(stage))
    assert made
    assert np.array_equal(within.model, outside.model)
    assert within.epochs["gradient_error"].tolist() == outside.epochs["gradient_error"].tolist()
    assert {place.name for place in path.iterdir()} == {place.name for place in within.path.iterdir()}
    (sentence,) = {stage for stage in said if "GB" in stage}
    assert str(tmp_path) in sentence


@pytest.mark.parametrize("scheme", ["conventional", "sealed"])
def test_what_does_not_fit_is_refused_before_a_feature_is_computed(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIMIT, "0.001")
    monkeypatch.setattr("codedfl.task.problem.make_shard", lambda *_: pytest.fail("features were computed"))
    with pytest.raises(
        ScenarioError, match=r"GB of memory .* and 0\.0 GB are free; lower features\.dimension"
    ) as found:
        runs.execute(chosen(scheme), tmp_path / "run")
    assert is_one_sentence(str(found.value))
    assert tree(tmp_path) == {}


STUDIES = {
    "sweep": ("sweep", "small.toml", "--over", "links.loss=0,0.1", "--workers", "1"),
    "compare": ("compare", "small.toml", "conventional", "sealed"),
    "compare --all": ("compare", "--all", "small.toml", "--workers", "1"),
    "reproduce": ("reproduce", "--quick", "--workers", "1"),
}


@pytest.mark.parametrize("name", STUDIES)
def test_studies_refuse_what_does_not_fit_as_a_run_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence, the exit code of a run, no feature computed and nothing written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(LIMIT, "0.001")
    monkeypatch.setattr("codedfl.task.problem.make_shard", lambda *_: pytest.fail("features were computed"))
    monkeypatch.setattr(processes, "ProcessPoolExecutor", InlinePool)
    Path("small.toml").write_text(SMALL)
    before, said = tree(tmp_path), {}
    for command in (("run", "small.toml"), STUDIES[name]):
        with pytest.raises(SystemExit) as ended:
            main([*command, "--out", "out"])
        said[command[0]] = ended.value.code, capsys.readouterr().err.splitlines()[-1]
        assert tree(tmp_path) == before
    (code, sentence), (other_code, other) = said.values()
    assert (code, sentence[:30]) == (other_code, other[:30])
    assert is_one_sentence(other.removeprefix("codedfl: "))
    assert "GB of memory (features " in other


def test_a_study_checks_data_that_are_there_and_those_of_another_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Features that are shared are not needed again; wider ones are refused before they are computed."""
    shared = SharedProblem()
    runs.execute(chosen("conventional"), tmp_path / "first", shared=shared)
    wide = chosen("sealed", **{"features.dimension": 2000})
    monkeypatch.setattr("codedfl.task.problem.make_shard", lambda *_: pytest.fail("features were computed"))
    enough = Memory.needed(chosen("sealed"), shared.get(chosen("sealed"))()).total
    monkeypatch.setattr(room, "free_memory", lambda: enough)
    runs.execute(chosen("sealed"), tmp_path / "second", shared=shared)
    with pytest.raises(ScenarioError, match="GB of memory"):
        runs.execute(wide, tmp_path / "wide", shared=shared)
    assert not (tmp_path / "wide").exists()


def test_a_full_disk_is_said_before_work_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need = Memory.needed(chosen("sealed"), RawData.load(chosen("sealed")))
    monkeypatch.setattr(room, "free_memory", lambda: need.rest)
    monkeypatch.setattr(room.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 10})())
    with pytest.raises(ScenarioError, match=r"with 0\.0 GB of disk at"):
        runs.execute(chosen("sealed"), tmp_path / "run")
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_bound_covers_what_is_certainly_held(scheme: str) -> None:
    """Features that are there are not needed again; a wider model needs more of everything."""
    data = RawData.load(chosen(scheme))
    need, wide = Memory.needed(chosen(scheme), data), chosen(scheme, **{"features.dimension": 60})
    more, built = Memory.needed(wide, RawData.load(wide)), Memory.needed(wide, Problem.build(wide))
    rows, item = sum(map(len, data.parts)) + len(data.loaded.x_test), np.dtype(wide.precision).itemsize
    assert more.features == rows * 60 * item
    assert built.features == 0
    assert (built.devices, built.rest) == (more.devices, more.rest)
    assert more.devices >= need.devices
    assert more.rest > need.rest
    assert more.rest >= 60 * 60 * 8 * 3  # the reference sum, and a system of equations with its copy


def test_free_memory_is_at_most_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT, "0.5")
    assert free_memory() == 500_000_000
    monkeypatch.setenv(LIMIT, "1e9")
    assert 1 << 20 < (free_memory() or 0) < 1 << 50


def test_free_memory_is_unknown_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: Path) -> str:
        raise FileNotFoundError(path)

    monkeypatch.delenv(LIMIT, raising=False)
    monkeypatch.setattr(room.Path, "read_text", missing)
    assert free_memory() is None


@pytest.mark.parametrize("told", ["much", "8 GB", "nan"])
def test_a_limit_that_is_no_number_is_refused(told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT, told)
    with pytest.raises(ScenarioError, match=f"CODEDFL_MEMORY = '{told}' is no number of gigabytes"):
        runs.execute(chosen("conventional"), tmp_path / "run")
    assert tree(tmp_path) == {}


def test_estimators_refuse_what_does_not_fit_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT, "0.001")
    with pytest.raises(ScenarioError, match="GB of memory"):
        run_in_memory(chosen("conventional"), RawData.load(chosen("conventional")))
