"""The run directory: what was run, what came out, and how to go on after an interruption.

    scenario.toml    what was run
    epochs.parquet   one row an epoch
    summary.json     the results in short; there when the run is finished
    model.npz        the model
    timeline.parquet who did what when, in the run's own draw (of a simulation)
    devices.parquet  what every device was asked and how long it took (of a deployment)
    timings.npy      when each epoch ends (epochs) in each timing draw (rows), in seconds
    repeats/N/       further trainings of a scheme whose model follows the timing
    checkpoint.npz   only while the run is not finished
    .lock            held by the process that runs it

Each file is written whole or not at all. A run that was stopped, even by kill -9, goes on from its checkpoint and ends
with the same numbers to the last bit. A finished run is not run again.
"""

import fcntl
import html
import json
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from codedfl import schemes
from codedfl.errors import (
    CodedflError,
    EngineError,
    LostDevicesError,
    MissingExtraError,
    RunDirectoryError,
    TrainingError,
)
from codedfl.progress import Progress, silent
from codedfl.runs.backend import Parties, Simulation
from codedfl.runs.summary import Timed, summarise, tabulate, target_name, times_to_targets
from codedfl.scenario import Scenario
from codedfl.storage import (
    make_folder,
    remove_unfinished,
    write_arrays,
    write_json,
    write_parquet,
    write_text,
    write_whole,
)
from codedfl.task import Problem
from codedfl.task.objective import Objective
from codedfl.training import State, create_solver, train
from codedfl.training.timing import time_to

__all__ = [
    "Run",
    "default_directory",
    "execute",
    "finished",
    "load",
    "model_difference",
    "target_name",
    "times_to_targets",
]

_CHECKPOINT_SECONDS = 0.25
_MARK = "# scenario id "
_ON_SITES = "# on sites\n"
_KEPT = "kept_"


def default_directory(scenario: Scenario) -> Path:
    """Return where a run goes unless told otherwise."""
    return Path("runs") / f"{scenario.name}-{scenario.scheme}-{scenario.id()}"


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run.

    Examples
    --------
    >>> import codedfl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = codedfl.run("paper-quick", folder + "/run", {"training.epochs": 3, "timing.draws": 10})
    >>> run  # doctest: +ELLIPSIS
    <Run of 'paper-quick' with minibatch: epochs 3, final accuracy 0.8...>
    """

    path: Path
    scenario: Scenario
    summary: dict[str, Any]
    epochs: dict[str, Shaped[np.ndarray, "epochs"]]
    timings: Float[np.ndarray, "draws epochs"]

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"<Run of '{self.scenario.name}' with {self.scenario.scheme}: {facts}>"

    def _repr_html_(self) -> str:
        rows = {"scenario": self.scenario.name, "scheme": self.scenario.scheme, **self._facts()}
        cells = (f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in rows.items())
        return f"<table>{''.join(cells)}</table>"

    def _facts(self) -> dict[str, str]:
        score, metric = self.summary["final_accuracy"], "accuracy" if self.summary["metric"] == "accuracy" else "R²"
        return {
            "epochs": f"{self.summary['epochs']:,}",
            f"final {metric}": "not known" if score is None else f"{score:.4f}",
        }

    @property
    def model(self) -> Float[np.ndarray, "features outputs"]:
        """The trained matrix."""
        with np.load(self.path / "model.npz", allow_pickle=False) as arrays:
            return np.asarray(arrays["theta"])

    def to_pandas(self) -> Any:
        """Return the epochs as a ``pandas.DataFrame``; pandas is not a dependency of codedfl."""
        try:
            import pandas
        except ModuleNotFoundError:
            raise MissingExtraError("to_pandas needs pandas; install it with: pip install pandas") from None
        return pandas.DataFrame(self.epochs)

    @property
    def repeats(self) -> list["Run"]:
        """This run and, for a scheme whose model follows the timing, its repetitions."""
        others = sorted((self.path / "repeats").glob("*"), key=lambda path: int(path.name))
        return [self, *(load(path) for path in others)]

    def seconds_to(self, target: float) -> Float[np.ndarray, "draws"] | None:
        """Return the time to a target in each draw (each repetition, where the model follows the timing)."""
        times = [time_to(run.epochs["accuracy"], run.timings, target) for run in self.repeats]
        reached = [seconds for seconds in times if seconds is not None]
        return np.concatenate(reached) if len(reached) == len(times) else None


def load(path: Path) -> Run:
    """Read a finished run."""
    import pyarrow.parquet

    for name in ("scenario.toml", "summary.json", "epochs.parquet", "timings.npy"):
        if not (path / name).is_file():
            raise RunDirectoryError(f"'{path}' is not a finished run: {name} is missing; run it (again)")
    scenario = _stored_scenario(path)
    try:
        summary = json.loads((path / "summary.json").read_text(encoding="utf-8"))
        table = pyarrow.parquet.read_table(path / "epochs.parquet")
        with (path / "timings.npy").open("rb") as file:
            timings = np.load(file, allow_pickle=False)
        epochs = {name: table[name].to_numpy() for name in table.column_names}
        consistent = timings.shape[1] == len(epochs["epoch"]) == summary["epochs"] and "scenario_id" in summary
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError, OSError, pyarrow.ArrowException):
        consistent = False
    if not consistent:
        raise RunDirectoryError(f"the run '{path}' is damaged; delete it and run again")
    return Run(path, scenario, summary, epochs, timings)


def model_difference(run: Run, reference: Run) -> float:
    """Return how far the model of a run is from that of another, beside the norm of the other; 0 if they are equal."""
    models = [np.load(found.path / "model.npz")["theta"].astype(np.float64) for found in (run, reference)]
    if np.array_equal(*models):
        return 0.0
    return float(np.linalg.norm(models[0] - models[1]) / np.linalg.norm(models[1]))


def execute(
    scenario: Scenario,
    path: Path,
    *,
    problem: Callable[[], Problem] | None = None,
    parties: Callable[[], Parties] | None = None,
    progress: Progress = silent,
) -> Run:
    """Run a scenario in a directory, or go on where it stopped, or load it if it is finished.

    ``problem`` may supply the prepared data, so that several runs share it; ``parties`` may supply who takes part,
    where that is not a simulation. Nothing is written before the data and the scheme have been found usable, and a
    training that cannot go on removes what it has written unless it resumed an earlier one.
    """
    schemes.check(scenario)
    identity, on_sites = scenario.id(), parties is not None
    begun = _belongs(path, identity, on_sites=on_sites)
    if begun and finished(scenario, path, on_sites=on_sites):
        _tidy(path)
        return load(path)
    given = problem or (lambda: Problem.build(scenario, progress))
    taking_part = parties() if parties else Simulation(scenario, given())
    try:
        there = set(path.iterdir()) if path.is_dir() else set()
        make_folder(path)
        with _locked(path):
            if not begun:
                marks = f"{_MARK}{identity}\n{_ON_SITES if on_sites else ''}"
                write_text(path / "scenario.toml", marks + scenario.to_toml())
            remove_unfinished(path)
            _finish(identity, taking_part, path, progress)
    except LostDevicesError:
        raise
    except TrainingError:
        if not begun:
            for made in set(path.iterdir()) - there:
                shutil.rmtree(made) if made.is_dir() else made.unlink()
            if not there:
                path.rmdir()
        raise
    except OSError as error:
        raise RunDirectoryError(
            f"cannot write to '{path}' ({error.strerror}); mend that and give the same command again"
        ) from None
    return load(path)


def finished(scenario: Scenario, path: Path, *, on_sites: bool = False) -> bool:
    """Tell whether a directory holds this run, finished; refuse one that holds anything else."""
    return _belongs(path, scenario.id(), on_sites=on_sites) and (path / "summary.json").exists()


def _belongs(path: Path, identity: str, *, on_sites: bool) -> bool:
    """Tell whether the directory holds this run; refuse one that holds anything else."""
    try:
        if (path / "scenario.toml").is_file():
            stored = _stored_id(path)
            if stored != identity:
                raise RunDirectoryError(
                    f"'{path}' holds the run of another scenario (id {stored}, not {identity}); choose another --out"
                )
            if _was_on_sites(path) != on_sites:
                there, here = ("virtual time", "on sites") if on_sites else ("a deployment on sites", "in virtual time")
                raise RunDirectoryError(
                    f"'{path}' holds a run of {there}, whose times say nothing of one {here}; choose another --out"
                )
            return True
        foreign = path.exists() and (not path.is_dir() or any(not p.name.startswith(".") for p in path.iterdir()))
    except OSError as error:
        raise RunDirectoryError(f"cannot use '{path}' ({error.strerror}); choose another --out") from None
    if foreign:
        raise RunDirectoryError(f"'{path}' exists and is not a run directory; choose another --out")
    return False


def _stored_scenario(path: Path) -> Scenario:
    try:
        return Scenario.from_toml((path / "scenario.toml").read_text(encoding="utf-8"))
    except (CodedflError, ValueError):
        raise RunDirectoryError(
            f"the scenario.toml of '{path}' is damaged; delete the directory and run again"
        ) from None


def _stored_id(path: Path) -> str:
    """Return the id under which the directory was made: the data it was computed from may have changed since."""
    first, *_ = _marks(path)
    if not first.startswith(_MARK):
        return _stored_scenario(path).id()
    return first.removeprefix(_MARK).strip()


def _was_on_sites(path: Path) -> bool:
    """Tell whether the directory was made by a deployment."""
    return _ON_SITES.strip() in _marks(path)[1:]


def _marks(path: Path) -> list[str]:
    """Return the comments that a directory's scenario begins with."""
    lines = (path / "scenario.toml").read_text(encoding="utf-8", errors="replace").splitlines()
    return (lines or [""])[:2]


def _tidy(path: Path) -> None:
    """Remove what a process killed at its very end left behind, unless another one is at work."""
    with suppress(RunDirectoryError), _locked(path):
        (path / "checkpoint.npz").unlink(missing_ok=True)
        remove_unfinished(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with (path / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunDirectoryError(
                f"another process is running '{path}'; wait for it or choose another --out"
            ) from None
        yield


def _finish(identity: str, parties: Parties, path: Path, progress: Progress) -> None:
    began = time.perf_counter()
    scenario, scheme = parties.scenario, parties.scheme
    state, spent, kept = _resume(scenario, path, parties.objective)
    state = _train(parties, path, state, kept, lambda: spent + time.perf_counter() - began, progress)
    timings = parties.timings(state, progress)
    runs = [(np.array(state.history.columns["accuracy"]), timings)]
    if scheme.follows_timing and isinstance(parties, Simulation):
        runs += _repeat(scenario, path, parties.problem, progress)
    summary = summarise(scenario, scheme, state, runs) | parties.facts(state)
    metric = "accuracy" if parties.objective.kind == "classification" else "r2"
    summary |= {"scenario_id": identity, "metric": metric, "wall_seconds": spent + time.perf_counter() - began}
    write_whole(path / "timings.npy", lambda file: np.save(file, timings.astype(np.float32), allow_pickle=False))
    write_parquet(path / "epochs.parquet", tabulate(state, [seconds for _, seconds in runs]))
    write_arrays(path / "model.npz", {"theta": state.model})
    for name, table in parties.tables(state).items():
        write_parquet(path / name, table)
    write_json(path / "summary.json", summary)
    (path / "checkpoint.npz").unlink(missing_ok=True)


def _resume(scenario: Scenario, path: Path, problem: Objective) -> tuple[State, float, dict[str, Any]]:
    """Return where the run stands, the time spent on it, and what its parties had kept."""
    saved = path / "checkpoint.npz"
    if not saved.exists():
        return State.fresh(problem), 0.0, {}
    try:
        with saved.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            state, spent = State.from_arrays(arrays), float(arrays["wall_seconds"])
            kept = {name.removeprefix(_KEPT): arrays[name] for name in arrays if name.startswith(_KEPT)}
        create_solver(problem, scenario.training, state)  # the arrays of its solver are there, too
        fits = state.model.shape == problem.shape
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError, OSError, zipfile.BadZipFile):
        fits = False
    if not fits:
        raise RunDirectoryError(f"'{saved}' is damaged; delete it to start the run again")
    return state, spent, kept


def _train(
    parties: Parties,
    path: Path,
    state: State,
    kept: dict[str, Any],
    elapsed: Callable[[], float],
    progress: Progress,
) -> State:
    """Train, saving the state so often that an interruption costs a fraction of a second, or one epoch."""
    scenario, saved_at = parties.scenario, time.perf_counter()
    engine = parties.engine(state, kept)

    def save(current: State) -> None:
        beside = {f"{_KEPT}{name}": array for name, array in parties.to_keep().items()}
        arrays = {**current.to_arrays(), **beside, "wall_seconds": np.array(elapsed())}
        write_arrays(path / "checkpoint.npz", arrays, durable=False)

    def after_epoch(current: State) -> None:
        nonlocal saved_at
        progress(f"training {scenario.scheme}", current.epoch, scenario.training.epochs)
        if time.perf_counter() - saved_at > _CHECKPOINT_SECONDS:
            save(current)
            saved_at = time.perf_counter()

    try:
        state = train(parties.objective, scenario, parties.scheme, engine, state, after_epoch)
    except (LostDevicesError, EngineError):
        if state.epoch > 0:
            save(state)
        raise
    save(state)
    return state


def _repeat(scenario: Scenario, path: Path, problem: Problem, progress: Progress) -> list[Timed]:
    results = []
    for number in range(1, scenario.timing.repeats):
        changes = {"timing.draw": scenario.timing.draw + number, "timing.repeats": 1}
        place = path / "repeats" / str(number)
        run = execute(scenario.with_settings(changes), place, problem=lambda: problem, progress=progress)
        results.append((run.epochs["accuracy"], run.timings.astype(np.float64)))
    return results
