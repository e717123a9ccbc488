"""Damaged files of a run: one sentence each, and nothing is changed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl import storage
from codedfl.errors import RunDirectoryError
from codedfl.runs import directory as runs
from rundirs import epochs, small_run, tree
from tiny import is_one_sentence

EPOCHS = 24


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def one_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def objects(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, model=np.array([{"a": 1}], dtype=object))


def other_arrays(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, unexpected=np.ones(3))


def bare_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.ones(3))


def other_model(path: Path) -> None:
    """A sound checkpoint of another problem."""
    with np.load(path) as arrays:
        kept = dict(arrays)
    for name in ("model", "plain_gradient"):
        kept[name] = kept[name][:-1]
    with path.open("wb") as file:
        np.savez(file, **kept)


def without_solver(path: Path) -> None:
    """A checkpoint that lacks what the solver remembers."""
    with np.load(path) as arrays:
        kept = {name: array for name, array in arrays.items() if not name.startswith("solver_")}
    with path.open("wb") as file:
        np.savez(file, **kept)


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("this is no such file"),
    "cut": cut,
}
CHECKPOINT_DAMAGES = DAMAGES | {
    "one bit": one_bit,
    "objects": objects,
    "other arrays": other_arrays,
    "bare array": bare_array,
    "other model": other_model,
    "no solver": without_solver,
}
RESULT_DAMAGES = [
    *(
        pytest.param(name, damage, id=f"{name} {word}")
        for name in ("summary.json", "epochs.parquet", "timings.npy")
        for word, damage in DAMAGES.items()
    ),
    *(pytest.param(name, Path.unlink, id=f"{name} missing") for name in ("epochs.parquet", "timings.npy")),
    pytest.param("summary.json", lambda path: path.write_text("[]"), id="summary.json a list"),
    pytest.param("summary.json", lambda path: path.write_text("{}"), id="summary.json without keys"),
    pytest.param("summary.json", lambda path: path.write_bytes(b'{"a": "\xff"}'), id="summary.json not UTF-8"),
]


@pytest.mark.parametrize("damage", CHECKPOINT_DAMAGES.values(), ids=CHECKPOINT_DAMAGES)
def test_a_damaged_checkpoint_gets_one_sentence(stopped: Path, damage: Any) -> None:
    damage(stopped / "checkpoint.npz")
    with pytest.raises(RunDirectoryError, match="checkpoint") as caught:
        small_run(stopped)
    assert is_one_sentence(str(caught.value))
    assert str(stopped) in str(caught.value)
    (stopped / "checkpoint.npz").unlink()  # as the sentence advises
    assert small_run(stopped).summary["epochs"] == EPOCHS


@pytest.mark.parametrize(("name", "damage"), RESULT_DAMAGES)
def test_a_damaged_result_gets_one_sentence(copy: Path, name: str, damage: Any) -> None:
    damage(copy / name)
    with pytest.raises(RunDirectoryError) as caught:
        small_run(copy)
    assert is_one_sentence(str(caught.value))
    assert str(copy) in str(caught.value)


MADE: list[str] = []


def note_it() -> None:
    MADE.append("an object")


class Trap:
    """Whoever reads it from a file runs a function of the file's choice."""

    def __reduce__(self) -> Any:
        return note_it, ()


TRAP = np.array([Trap()], dtype=object)


def test_no_object_is_made_from_the_files_of_a_finished_run(copy: Path) -> None:
    run = runs.load(copy)
    np.savez(copy / "model.npz", theta=TRAP)
    with pytest.raises(ValueError, match="allow_pickle"):
        _ = run.model
    np.save(copy / "timings.npy", TRAP)
    with pytest.raises(RunDirectoryError, match="is damaged"):
        runs.load(copy)
    assert MADE == []


def test_no_object_is_made_from_a_checkpoint(stopped: Path) -> None:
    with np.load(stopped / "checkpoint.npz") as arrays:
        kept = dict(arrays)
    for name in kept:
        np.savez(stopped / "checkpoint.npz", **(kept | {name: TRAP}))
        with pytest.raises(RunDirectoryError, match="is damaged"):
            small_run(stopped)
    assert MADE == []


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what a summary holds."""
    held = json.loads((path / "summary.json").read_text())
    change(held)
    (path / "summary.json").write_text(json.dumps(held))


TABLES = ("time_to_accuracy", "time_to_accuracy_band", "bits_sent", "bits_per_device", "macs_per_device", "leakage")
TEXTS = ("scenario_id", "scheme", "scenario", "metric", "verdict")


@pytest.mark.parametrize("name", TABLES + TEXTS)
def test_a_summary_that_lacks_one_entry_or_has_it_as_another_type_is_damaged(copy: Path, name: str) -> None:
    other: object = "" if name in TABLES else {}
    for change in (lambda held: held.pop(name), lambda held: held.update({name: other})):
        kept = (copy / "summary.json").read_bytes()
        changed(copy, change)
        with pytest.raises(RunDirectoryError, match="is damaged"):
            runs.load(copy)
        (copy / "summary.json").write_bytes(kept)
    assert runs.load(copy).summary["epochs"] == EPOCHS


@pytest.mark.parametrize("link", ["down", "up", "d2d"])
@pytest.mark.parametrize("word", ["mean", "largest"])
def test_a_summary_that_lacks_bits_of_a_link_is_damaged(copy: Path, link: str, word: str) -> None:
    changed(copy, lambda held: held["bits_per_device"][link].pop(word))
    with pytest.raises(RunDirectoryError, match="is damaged"):
        runs.load(copy)


@pytest.mark.parametrize("name", ["time_to_accuracy", "time_to_accuracy_band"])
def test_times_and_bands_are_of_the_same_targets(copy: Path, name: str) -> None:
    changed(copy, lambda held: held[name].pop("0.7"))
    with pytest.raises(RunDirectoryError, match="is damaged"):
        runs.load(copy)


@pytest.mark.parametrize("damaged", ["epochs in the summary", "epochs in the times", "a time", "an infinite time"])
def test_files_of_a_run_that_contradict_each_other_are_damaged(copy: Path, damaged: str) -> None:
    timings = np.load(copy / "timings.npy")
    if damaged == "epochs in the summary":
        changed(copy, lambda held: held.update(epochs=EPOCHS - 1))
    elif damaged == "epochs in the times":
        timings = timings[:, :-1]
    else:
        timings[-1, -1] = np.nan if damaged == "a time" else np.inf
    np.save(copy / "timings.npy", timings)
    with pytest.raises(RunDirectoryError, match="is damaged"):
        runs.load(copy)


def test_rows_that_are_missing_from_the_epochs_are_damage(copy: Path) -> None:
    storage.write_parquet(copy / "epochs.parquet", {name: values[1:] for name, values in epochs(copy).items()})
    with pytest.raises(RunDirectoryError, match="is damaged"):
        runs.load(copy)


@pytest.mark.parametrize("text", ["", "not = = toml", "name = 5"])
def test_a_damaged_scenario_is_refused(copy: Path, text: str) -> None:
    (copy / "scenario.toml").write_text(text)
    before = tree(copy)
    with pytest.raises(RunDirectoryError) as caught:
        small_run(copy)
    assert is_one_sentence(str(caught.value))
    assert tree(copy) == before


def test_a_run_of_an_unknown_scheme_asks_for_its_plugin(copy: Path) -> None:
    text = (copy / "scenario.toml").read_text()
    (copy / "scenario.toml").write_text(text.replace('scheme = "minibatch"', 'scheme = "mine"'))
    with pytest.raises(RunDirectoryError, match=r"scheme = 'mine' must be one of .* load the plug-in") as caught:
        runs.load(copy)
    assert is_one_sentence(str(caught.value))
