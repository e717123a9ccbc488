"""Trainings that begin at a model other than zero: they go on as the training that made it would."""

from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import numpy as np
import pytest

from codedfl import schemes
from codedfl.deploy.protocol.carrier import Carrier
from codedfl.deploy.server.deployment import deploy
from codedfl.errors import DataError, ScenarioError, UsageError
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario, load
from codedfl.task import Problem
from codedfl.task.loading import load_start
from rundirs import Stopped, results, stop_at
from tiny import is_one_sentence, scenario

D = 40
FLEET = [{"count": 3, "mac_rate": 2e6}, {"count": 2, "mac_rate": 2e5}]
CODE = {"n": 80, "degree": 7, "t_tot": 12, "t": 4, "M": 4, "beta": 2, "delta": 0.02}
RIDGE = 0.01
LIMITS = {
    **dict.fromkeys(("conventional", "code-based"), 1e-12),
    **{"secagg": 1e-9, "coded-padded": 1e-5},
    **dict.fromkeys(("sealed", "sealed-coded"), 2e-4),
}
"""Relative errors that number formats leave: float64, a ring of 64 bits, 24 fractional bits, models of few steps."""


def wanted(scheme: str, **changes: Any) -> Scenario:
    base = {
        "scheme": scheme,
        "features.dimension": D,
        "fleet.devices": FLEET,
        "task.ridge": RIDGE,
        "task.precision": "float64",
        "training.learning_rate": 0.5,
        "training.decay_epochs": [],
        "timing.draws": 2,
        "schemes.code-based": CODE,
        "schemes.sealed.delta": 0.02,
    }
    return scenario({**base, **{key.replace("__", "."): value for key, value in changes.items()}})


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The model of 8 epochs of plain gradient descent."""
    path = tmp_path_factory.mktemp("first") / "run"
    return str(runs.execute(wanted("conventional", training__epochs=8), path).path / "model.npz")


@pytest.mark.parametrize("scheme", LIMITS)
def test_a_training_goes_on_where_the_first_one_ended(scheme: str, first: str, tmp_path: Path) -> None:
    """16 more epochs from the model of 8, against gradient descent by hand on the rows themselves."""
    run = runs.execute(wanted(scheme, training__epochs=16, training__start=first), tmp_path / "run")
    plain = Problem.build(wanted("conventional"))
    x, y = (np.concatenate([getattr(shard, name) for shard in plain.shards]) for name in "xy")
    begun = model = np.load(first)["theta"]
    losses = []
    for _ in range(16):
        model = model - 0.5 * (x.T @ (x @ model - y) / len(x) + RIDGE * model)
        losses.append(np.sum((x @ model - y) ** 2) / (2 * len(x)) + RIDGE * np.sum(model**2) / 2)
    assert np.linalg.norm(run.model - model) <= LIMITS[scheme] * np.linalg.norm(model - begun)
    assert run.epochs["loss"] == pytest.approx(losses, rel=LIMITS[scheme])
    accuracy = np.mean(np.argmax(plain.x_test @ model, axis=1) == plain.y_test)
    assert run.summary["final_accuracy"] == pytest.approx(accuracy, abs=1.5 / len(plain.y_test))
    assert run.summary["gradient_error"] <= LIMITS[scheme]


@pytest.mark.parametrize(
    ("scheme", "solver"),
    [("one-shot", "closed-form"), ("conventional", "conjugate-gradients"), ("sealed", "conjugate-gradients")],
)
def test_the_solution_does_not_depend_on_the_start(scheme: str, solver: str, first: str, tmp_path: Path) -> None:
    changes = {"training__solver": solver, "training__epochs": 40, "schemes__sealed__ring": "Z_2^64"}
    run = runs.execute(wanted(scheme, training__start=first, **changes), tmp_path / "run")
    plain = Problem.build(wanted(scheme))
    assert np.linalg.norm(run.model - plain.ridge_solution()) <= 1e-6 * np.linalg.norm(run.model)
    begun = Problem.build(wanted(scheme, training__start=first))
    solution = begun.whole(begun.ridge_solution())
    assert np.linalg.norm(solution - plain.ridge_solution()) <= 1e-10 * np.linalg.norm(solution)


def test_nesterov_from_a_start_is_nesterov_on_the_shifted_loss(first: str, tmp_path: Path) -> None:
    """It keeps no momentum of the first run, but converges to the same solution."""
    changes = {"training__solver": "nesterov", "training__epochs": 400, "training__start": first}
    run = runs.execute(wanted("conventional", **changes), tmp_path / "run")
    solution = Problem.build(wanted("conventional")).ridge_solution()
    assert np.linalg.norm(run.model - solution) <= 1e-6 * np.linalg.norm(solution)


@pytest.mark.parametrize("scheme", ["code-based", "sealed"])
def test_an_interrupted_run_ends_with_the_same_bits(
    scheme: str, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = wanted(scheme, training__epochs=12, training__start=first)
    whole = results(runs.execute(chosen, tmp_path / "whole").path)
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
    with pytest.raises(Stopped):
        runs.execute(chosen, tmp_path / "run", progress=stop_at(5))
    assert results(runs.execute(chosen, tmp_path / "run").path) == whole


def test_the_download_of_the_first_epoch_is_charged_where_it_is_not_offline(first: str, tmp_path: Path) -> None:
    changes = {"training__epochs": 2, "training__start": first}
    bits = [
        runs.execute(wanted("conventional", **changes, training__first_epoch_offline=offline), tmp_path / str(offline))
        .epochs["down_bits"]
        .tolist()
        for offline in (True, False)
    ]
    assert bits == [[0, 5 * D * 10 * 64], [5 * D * 10 * 64] * 2]


def test_bounds_on_targets_follow_from_public_numbers(first: str) -> None:
    """|y - x theta| <= 1 + sqrt(2/d) ||theta||_1, whatever the rows are."""
    begun = Problem.build(wanted("sealed", training__start=first))
    public = schemes.create(wanted("sealed", training__start=first), begun).public
    norm = np.abs(np.load(first)["theta"]).sum(axis=0).max()
    assert public.largest_target == pytest.approx(1 + np.sqrt(2 / D) * norm, rel=1e-5)
    assert max(np.abs(shard.y).max() for shard in begun.shards) <= public.largest_target
    assert schemes.create(wanted("sealed"), Problem.build(wanted("sealed"))).public.largest_target == 1


def test_the_id_counts_the_contents_of_the_file(first: str, tmp_path: Path) -> None:
    copy, other = tmp_path / "copy.npz", tmp_path / "other.npz"
    copy.write_bytes(Path(first).read_bytes())
    np.savez(other, theta=np.ones((D, 10)))
    ids = [wanted("sealed", training__start=path).id() for path in (first, str(copy), str(other))]
    assert ids[0] == ids[1] != ids[2]
    assert wanted("sealed").id() not in ids
    (tmp_path / "own.toml").write_text('extends = "paper-quick"\n[training]\nstart = "other.npz"\n')
    assert load(tmp_path / "own.toml").training.start == str(other)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"theta": np.zeros((D, 3))}, "has shape (40, 3)"),
        ({"theta": np.full((D, 10), np.nan)}, "not finite"),
        ({"model": np.zeros((D, 10))}, "holds no array theta"),
        ({"theta": np.zeros((D, 10), complex)}, "holds no array theta of real numbers"),
        ({"theta": np.zeros((D, 10), "datetime64[D]")}, "holds no array theta of real numbers"),
        ({"theta": np.full((D, 10), "1.5")}, "holds no array theta of real numbers"),
    ],
    ids=["shape", "nan", "name", "complex", "dates", "words"],
)
def test_a_model_that_does_not_fit_is_refused(arrays: dict[str, Any], words: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(ScenarioError) as error:
        runs.execute(wanted("conventional", training__start=str(tmp_path / "wrong.npz")), tmp_path / "run")
    assert words in str(error.value) and is_one_sentence(str(error.value))
    assert not (tmp_path / "run").exists()


def test_other_files_none_and_sites_are_refused(first: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"training.start = 'model.txt' must be a .npz file"):
        wanted("conventional", training__start="model.txt")
    with pytest.raises(DataError, match=r"cannot read the model file .*gone.npz.*check the path in training.start"):
        runs.execute(wanted("conventional", training__start=str(tmp_path / "gone.npz")), tmp_path / "run")
    (tmp_path / "broken.npz").write_bytes(b"no archive")
    with pytest.raises(ScenarioError, match="holds no array theta"):
        runs.execute(wanted("conventional", training__start=str(tmp_path / "broken.npz")), tmp_path / "run")
    with pytest.raises(UsageError, match=r"training.start = .* is for virtual time alone"):
        deploy(
            wanted("conventional", training__start=first),
            create_autospec(Carrier, instance=True),
            ["a"] * 5,
            tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()


def test_a_file_with_any_byte_altered_is_read_as_it_was_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    np.savez_compressed(path, theta=np.arange(D * 10.0).reshape(D, 10))
    whole = path.read_bytes()
    wanted = scenario({"training.start": str(path)})
    refused = 0
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            found = load_start(wanted, (D, 10))
        except ScenarioError:
            refused += 1
        else:
            assert np.array_equal(found, np.arange(D * 10.0).reshape(D, 10))
    assert refused > 10
