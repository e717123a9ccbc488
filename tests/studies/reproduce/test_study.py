"""The paper's experiment in small: one feature seed, targets that are reached within a few epochs."""

import csv
import html
import io
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from codedfl.errors import CodedflError
from codedfl.progress import silent
from codedfl.report.drawings import KINDS, Wanted, drawing_of
from codedfl.report.reproduction import write_reproduction
from codedfl.report.results import REPRODUCE, open_results
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario, load
from codedfl.studies.reproduce import experiment as experiments
from codedfl.studies.reproduce import finished, readings, tasks
from codedfl.studies.reproduce import study as module
from codedfl.studies.reproduce.study import Reproduction, reproduce
from codedfl.task import Problem
from rundirs import epochs, strict_json, summary, tree

TARGETS = ("0.5", "0.7")
CLAIMS = {
    "speedup-92",
    "speedup-128",
    "speedup-128-once",
    "speedup-92-shared",
    "speedup-128-shared",
    "codedpadded-transfer-hours",
    "public-key-megabytes",
    "ordering-by-level",
    "gain-above-95",
    "inactivation-improves",
    "single-device-at-end",
    "level-after-overlap-92",
    "level-after-overlap-128",
    "epoch-1-detection",
    "support-overlap-92",
    "support-overlap-128",
    "speedup-sealed",
    "speedup-sealed-coded",
    "speedup-sealed-coded-cg",
    "best-delta-92",
    "best-delta-128",
    "security-level-92",
    "security-level-128",
    "frame-error-rate",
    "gradient-error",
}
CLAIM_KEYS = {"name", "claimed", "measured", "low", "high", "verdict", "reason"}
Reproduced = tuple[Path, dict[str, Any]]


def written(out: Path) -> Reproduction:
    """Reproduce and write the pages, as the command does."""
    found = reproduce(out, quick=True, seeds=[3], progress=silent)
    write_reproduction(found, out)
    return found


SMALLER = {
    "fleet.devices": [
        {"count": count, "mac_rate": rate} for count, rate in ((4, 25e6), (2, 5e6), (2, 2.5e6), (2, 1.25e6))
    ],
    "training.targets": [0.5, 0.7],
    "features.dimension": 80,
    "schemes.code-based.n": 300,
    "schemes.code-based.degree": 5,
}
EXPERIMENT, READINGS = experiments.experiment, experiments.READINGS


def easy(name: str) -> Scenario:
    return load(name).with_settings(SMALLER)


def quicker(*, quick: bool) -> experiments.Experiment:
    """The plan of a quick reproduction with two Deltas and a handful of draws."""
    plan = EXPERIMENT(quick=quick)
    settings = tuple(
        replace(entry, deltas=(entry.options["delta"], 2 * entry.options["delta"])) for entry in plan.settings
    )
    return replace(plan, settings=settings, draws=5, trials=100)


def make_small(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(experiments, "load", easy)
    for each in (module, tasks, finished):
        patch.setattr(each, "experiment", quicker)
    patch.setattr(tasks, "LENGTHS", (64, 256))
    patch.setattr(readings, "READINGS", tuple(each for each in READINGS if each.odd_set == "partner"))


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Reproduced:
    """Tests only read it."""
    out = tmp_path_factory.mktemp("reproduced") / "deep" / "down"
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        return out, written(out).summary


def found_runs(out: Path) -> list[runs.Run]:
    return [runs.load(path) for path in sorted((out / "runs").iterdir())]


def test_files(reproduced: Reproduced) -> None:
    out, found = reproduced
    names = {path.name for path in out.iterdir()}
    assert names >= {"summary.json", "claims.csv", "figure1.png", "figure1.svg", "index.html", "runs"}
    assert not [name for name in names if name.startswith(".")]
    assert strict_json((out / "summary.json").read_text()) == found
    table = list(csv.DictReader(io.StringIO((out / "claims.csv").read_text())))
    assert [line["name"] for line in table] == [claim["name"] for claim in found["claims"]]
    assert table[0].keys() >= CLAIM_KEYS


def test_the_page_is_self_contained_and_names_every_claim(reproduced: Reproduced) -> None:
    out, found = reproduced
    text = (out / "index.html").read_text()
    for claim in found["claims"]:
        assert claim["name"] in text
    for mark in ("<img", "@import", "url(http", "href=http", 'href="http'):
        assert mark not in text
    assert "default-src 'none'" in html.unescape(text)


def test_claims_are_those_promised(reproduced: Reproduced) -> None:
    _, found = reproduced
    names = [claim["name"] for claim in found["claims"]]
    assert set(names) >= CLAIMS
    assert len(set(names)) == len(names)


def test_claims_have_the_promised_keys(reproduced: Reproduced) -> None:
    _, found = reproduced
    for claim in found["claims"]:
        assert claim.keys() >= CLAIM_KEYS
        assert claim["verdict"]
        assert claim["reason"], "a verdict has a reason"
        if claim["measured"] is not None and claim["low"] is not None:
            assert claim["low"] <= claim["measured"] <= claim["high"]


def test_a_small_scenario_passes_no_verdict_on_the_papers_numbers(reproduced: Reproduced) -> None:
    _, found = reproduced
    verdicts = {claim["name"]: claim["verdict"] for claim in found["claims"] if claim["name"].startswith("speedup")}
    assert not set(verdicts.values()) & {"reproduced", "not reproduced"}


def test_the_papers_best_deltas_are_the_papers_at_any_size(reproduced: Reproduced) -> None:
    """Section VI of the paper: 3 s in the first setting, 1 s in the second. Small data are tried with a fortieth."""
    _, found = reproduced
    claims = {claim["name"]: claim for claim in found["claims"]}
    assert [claims[f"best-delta-{level}"]["claimed"] for level in (92, 128)] == [3.0, 1.0]
    assert "a fortieth" in claims["best-delta-92"]["reason"]
    for entry in found["delta_sweep"]:
        paper = {92: 3.0, 128: 1.0}[entry["level"]]
        assert [point["delta"] for point in entry["points"]] == [paper / 40, paper / 20]


def test_measurements_follow_from_the_runs(reproduced: Reproduced) -> None:
    out, found = reproduced
    assert found["feature_seeds"] == [3]
    entries = found_runs(out)
    assert {run.scenario.features.seed for run in entries} == {3}
    assert {run.scenario.scheme for run in entries} >= {"minibatch"}
    (base,) = [run for run in entries if run.scenario.scheme == "minibatch"]
    for target in TARGETS:
        (first,) = found["schemes"]["minibatch"]["epochs_to_accuracy"][target]
        scores = epochs(base.path)["accuracy"]
        assert first == int(np.flatnonzero(scores >= float(target))[0]) + 1
        (seconds,) = found["schemes"]["minibatch"]["time_to_accuracy"][target]
        # timings are kept in float32, so each is off by half an ulp at most, and so is their mean
        assert seconds == pytest.approx(epochs(base.path)["time_mean"][first - 1], rel=2**-24 * 1.01)


def test_speedups_are_the_best_of_the_search(reproduced: Reproduced) -> None:
    _, found = reproduced
    claims = {claim["name"]: claim for claim in found["claims"]}
    best = {
        (entry["level"], entry["supply"]): max(entry["points"], key=lambda point: point["speedup"])
        for entry in found["delta_sweep"]
    }
    for name, key in (
        ("speedup-92", (92, "once")),
        ("speedup-128", (128, "reissued")),
        ("speedup-128-once", (128, "once")),
    ):
        assert claims[name]["measured"] == best[key]["speedup"]
    assert claims["best-delta-92"]["measured"] == best[92, "once"]["delta"]
    assert claims["best-delta-128"]["measured"] == best[128, "reissued"]["delta"]


def test_trainings_stop_at_the_last_target(reproduced: Reproduced) -> None:
    out, _ = reproduced
    for run in found_runs(out):
        first = int(np.flatnonzero(run.epochs["accuracy"] >= 0.7)[0]) + 1
        # models of gradient descent are scored in blocks of eight epochs, others one by one
        block = 8 if run.scenario.training.solver == "gradient-descent" else 1
        assert run.summary["epochs"] == -(-first // block) * block


def test_the_ridge_limit_is_that_of_another_solver(reproduced: Reproduced) -> None:
    _, found = reproduced
    scenario = easy("paper-quick").with_settings({"features.seed": 3})
    problem = Problem.build(scenario)
    x = np.concatenate([shard.x for shard in problem.shards]).astype(float)
    y = np.concatenate([shard.y for shard in problem.shards]).astype(float)
    solver = Ridge(alpha=scenario.task.ridge * len(x), fit_intercept=False).fit(x, y)
    guesses = np.argmax(solver.predict(problem.x_test.astype(float)), axis=1)
    # two of 355 test digits may lie on the edge between two classes
    assert found["ridge_accuracy"] == [pytest.approx(np.mean(guesses == problem.y_test), abs=2.5 / len(guesses))]


@pytest.fixture
def again(reproduced: Reproduced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished experiment in which nothing may be trained."""
    out = Path(shutil.copytree(reproduced[0], tmp_path / "again"))
    make_small(monkeypatch)
    monkeypatch.setattr(runs, "train", None)
    return out


@pytest.fixture(scope="module")
def rewritten(reproduced: Reproduced, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Reproduction]:
    """Summed up once more from finished runs, where nothing may be trained or drawn; tests only read it."""
    out = Path(shutil.copytree(reproduced[0], tmp_path_factory.mktemp("rewritten") / "again"))
    for name in ("summary.json", "claims.csv"):
        (out / name).unlink()
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        patch.setattr(runs, "train", None)
        patch.setitem(sys.modules, "matplotlib.figure", None)
        return out, written(out)


def test_finished_runs_are_not_run_again_and_numbers_are_written_without_matplotlib(
    reproduced: Reproduced, rewritten: tuple[Path, Reproduction]
) -> None:
    out, made = rewritten
    assert made.summary == reproduced[1]
    for run in found_runs(out):
        assert run.summary == summary(reproduced[0] / "runs" / run.path.name)
    assert (out / "summary.json").exists()
    assert (out / "claims.csv").exists()


@pytest.mark.parametrize(("quick", "names"), [(True, {"paper-quick"}), (False, {"paper", "paper-92", "paper-128"})])
def test_quick_chooses_the_presets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: bool, names: Any) -> None:
    seen = set()

    def watched(name: str) -> Scenario:
        seen.add(name)
        return load(name)

    class StopHereError(Exception):
        pass

    def stop(*arguments: Any, **options: Any) -> None:
        raise StopHereError

    monkeypatch.setattr(experiments, "load", watched)
    monkeypatch.setattr(tasks, "execute", stop)
    monkeypatch.setattr(module, "in_processes", stop)
    with pytest.raises(StopHereError):
        reproduce(tmp_path, quick=quick, seeds=[0], progress=silent)
    assert seen == names


def test_a_place_that_cannot_be_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CodedflError, match="file"):
        reproduce(tmp_path / "file", quick=True, seeds=[0], progress=silent)
    assert tree(tmp_path) == {"file": b"mine"}


def test_a_finished_experiment_is_read_from_its_folder(
    reproduced: Reproduced, rewritten: tuple[Path, Reproduction], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch)
    monkeypatch.setattr(runs, "train", None)
    out, made = rewritten
    found = finished.load_reproduction(out)
    assert found.summary == reproduced[1]
    for group, others in ((found.runs, made.runs), (found.sealed, made.sealed)):
        assert list(group) == list(others)
        for label, own in group.items():
            for run, other in zip(own, others[label], strict=True):
                assert run.path == other.path
                np.testing.assert_allclose(run.timings, other.timings, rtol=1e-6)
    assert finished.load_reproduction(out, sealed=False).sealed == {}


@pytest.mark.parametrize("kind", KINDS[REPRODUCE])
def test_every_figure_can_be_drawn_from_the_folder(again: Path, kind: str) -> None:
    results = open_results([again])
    assert results.kind == REPRODUCE
    drawing = drawing_of(results, Wanted(kind))
    assert drawing.draw().get_size_inches()[0] == 3.5
    assert any(entry.value is not None for entry in drawing.entries)


def test_a_run_that_is_gone_is_named(again: Path) -> None:
    name = strict_json((again / "summary.json").read_text())["schemes"]["minibatch"]["runs"][0]
    shutil.rmtree(again / "runs" / f"minibatch-{name}")
    with pytest.raises(CodedflError, match=f"no run of scenario {name}"):
        finished.load_reproduction(again)
