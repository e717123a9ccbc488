"""The run directory: scenario, results and checkpoint of one run.

    scenario.toml    the scenario
    epochs.parquet   one row per epoch
    summary.json     the results in short; exists when the run is finished
    model/           the model to predict with, see codedfl.task.model
    model.npz        its matrix
    deployment.json  the name of the run in the records of sites (deployments)
    site-records.json the signed records of all sites (deployments)
    costs.parquet    bits and multiplications of each device
    timeline.parquet steps of all parties in the run's own draw (simulations)
    devices.parquet  requests to all devices and their durations (deployments)
    timings.npy      end of each epoch (columns) in each timing draw (rows), in seconds
    repeats/N/       further runs of a scheme whose model follows the timing
    checkpoint.npz   only while the run is not finished
    session.npz      the same: the key of what workers keep, and the sum of pads (deployments; codedfl.deploy.protocol)
    .live            the address of the live page of an unfinished run (codedfl.report.live)
    .lock            held by the process that runs it

Files are written atomically. An interrupted run, even by kill -9, resumes from its checkpoint and ends with the same
numbers to the last bit. A finished run is loaded.
"""

import fcntl
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from codedfl import errors, schemes, storage
from codedfl.progress import Progress, silent
from codedfl.runs.backend import RunBackend, SimulationBackend
from codedfl.runs.facts import run_facts, score_facts
from codedfl.runs.markup import facts_html
from codedfl.runs.observing import Observer
from codedfl.runs.room import make_room
from codedfl.runs.summary import Timed, summarise, tabulate
from codedfl.scenario import Scenario
from codedfl.task import Problem, RawData, with_owners
from codedfl.task.model import Model, save_model
from codedfl.task.objective import Objective
from codedfl.task.shared import SharedProblem
from codedfl.training import State, create_solver, train
from codedfl.training.costs import LINKS, spent_in
from codedfl.training.timing import time_to

CHECKPOINT = "checkpoint.npz"
_CHECKPOINT_SECONDS = 1.0
_MARK = "# scenario id "
_ON_SITES = "# on sites\n"
_BACKEND = "kept_"
"""Prefix of the backend's arrays in a checkpoint."""


def default_directory(scenario: Scenario) -> Path:
    """Return the default directory of a run."""
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
        facts = ", ".join(f"{name} {value}" for name, value in score_facts(self.summary).items())
        return f"<Run of '{self.scenario.name}' with {self.scenario.scheme}: {facts}>"

    def _repr_html_(self) -> str:
        return facts_html(run_facts(self.summary))

    @property
    def model(self) -> Float[np.ndarray, "features outputs"]:
        """The trained matrix."""
        with np.load(self.path / "model.npz", allow_pickle=False) as arrays:
            return np.asarray(arrays["theta"])

    def load_model(self) -> Model:
        """Return the model to predict with."""
        return Model.load(self.path)

    def to_pandas(self) -> Any:
        """Return the epochs as a ``pandas.DataFrame``; pandas is not a dependency of codedfl."""
        try:
            import pandas
        except ModuleNotFoundError:
            raise errors.MissingExtraError("to_pandas needs pandas; install it with: pip install pandas") from None
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
            raise errors.RunDirectoryError(f"'{path}' is not a finished run: {name} is missing; run it (again)")
    scenario = _stored_scenario(path)
    try:
        summary = json.loads((path / "summary.json").read_text(encoding="utf-8"))
        table = pyarrow.parquet.read_table(path / "epochs.parquet")
        with (path / "timings.npy").open("rb") as file:
            timings = np.load(file, allow_pickle=False)
        epochs = {name: table[name].to_numpy() for name in table.column_names}
        consistent = timings.shape[1] == len(epochs["epoch"]) == summary["epochs"] and _complete(summary)
        consistent = consistent and bool(np.isfinite(timings).all())
    except (*storage.DAMAGED, pyarrow.ArrowException):
        consistent = False
    if not consistent:
        raise errors.RunDirectoryError(f"the run '{path}' is damaged; delete it and run again")
    return Run(path, scenario, summary, epochs, timings)


def _complete(summary: Mapping[str, Any]) -> bool:
    """Tell whether a summary has what everything that reads it needs."""
    tables = ("time_to_accuracy", "time_to_accuracy_band", "bits_sent", "bits_per_device", "macs_per_device", "leakage")
    texts = ("scenario_id", "scheme", "scenario", "metric", "verdict")
    return (
        all(isinstance(summary.get(name), dict) for name in tables)
        and all(isinstance(summary.get(name), str) for name in texts)
        and summary["time_to_accuracy"].keys() == summary["time_to_accuracy_band"].keys()
        and all({"mean", "largest"} <= summary["bits_per_device"][link].keys() for link in LINKS)
    )


def model_difference(run: Run, reference: Run) -> float:
    """Return the distance of two runs' models relative to the norm of the reference; 0 if they are equal."""
    model, other = run.model.astype(np.float64), reference.model.astype(np.float64)
    return 0.0 if np.array_equal(model, other) else float(np.linalg.norm(model - other) / np.linalg.norm(other))


def execute(
    scenario: Scenario,
    path: Path,
    *,
    problem: Callable[[], Problem | RawData] | None = None,
    shared: SharedProblem | None = None,
    backend: Callable[[], RunBackend] | None = None,
    progress: Progress = silent,
    observer: Observer | None = None,
    summed: bool = True,
) -> Run:
    """Run a scenario in a directory, resume it, or load it if it is finished.

    ``problem`` may supply the data; ``shared`` keeps them for other runs; ``backend`` may replace the simulation;
    ``observer`` sees the training, but not further runs of a scheme whose model follows the timing; without ``summed``
    every reply of the simulation is computed singly, so that it has the bits of a deployment.
    Nothing is written before data and scheme are known to be usable. A training error removes what this call has
    written, and nothing of a run that it resumes.
    """
    scenario = with_owners(scenario)
    schemes.check(scenario)
    begun = _belongs(path, scenario.id(), on_sites=backend is not None)
    if begun and (path / "summary.json").exists():
        with suppress(errors.RunDirectoryError), _locked(path):  # a process may have been killed at its very end
            (path / CHECKPOINT).unlink(missing_ok=True)
            storage.remove_unfinished(path)
        return load(path)
    storage.require_parquet()
    with storage.overflow_scope():
        room = partial(make_room, folder=path, progress=progress)
        build = partial(Problem.build, scenario, progress, room) if shared is None else shared.get(scenario, room)
        return _executed(scenario, path, problem or build, backend, progress, observer, begun=begun, summed=summed)


def _executed(
    scenario: Scenario,
    path: Path,
    problem: Callable[[], Problem | RawData],
    backend: Callable[[], RunBackend] | None,
    progress: Progress,
    observer: Observer | None,
    *,
    begun: bool,
    summed: bool,
) -> Run:
    """Run or resume a scenario; a directory that has ``begun`` holds it."""
    identity, on_sites = scenario.id(), backend is not None
    if backend is not None:
        chosen = backend()
    else:
        data = problem()
        make_room(scenario, data, path, progress)
        chosen = SimulationBackend(scenario, data, progress, summed=summed)
    try:
        there = set(path.iterdir()) if path.is_dir() else set()
        storage.make_folder(path)
        with _locked(path):
            if not begun:
                marks = f"{_MARK}{identity}\n{_ON_SITES if on_sites else ''}"
                storage.write_text(path / "scenario.toml", marks + scenario.to_toml())
            storage.remove_unfinished(path)
            _finish(identity, chosen, path, progress, observer)
    except errors.TrainingError as error:
        if not begun and not isinstance(error, errors.LostDevicesError):
            for made in set(path.iterdir()) - there:
                shutil.rmtree(made) if made.is_dir() else made.unlink()
            if not there:
                path.rmdir()
        raise
    except OSError as error:
        raise errors.RunDirectoryError(f"cannot write to '{path}' ({error.strerror}); fix it and run again") from None
    return load(path)


def finished(scenario: Scenario, path: Path, *, on_sites: bool = False) -> bool:
    """Return whether a directory holds this run, finished; refuse one that holds anything else."""
    return _belongs(path, scenario.id(), on_sites=on_sites) and (path / "summary.json").exists()


def _belongs(path: Path, identity: str, *, on_sites: bool) -> bool:
    """Return whether a directory holds this run; refuse one that holds anything else."""
    try:
        if (path / "scenario.toml").is_file():
            stored, was_on_sites = _stored_identity(path)
            if stored != identity:
                other = f"of another scenario (id {stored}, not {identity})"
                raise errors.RunDirectoryError(f"'{path}' holds the run {other}; choose another --out")
            if was_on_sites != on_sites:
                found = "virtual time" if on_sites else "a deployment on sites"
                raise errors.RunDirectoryError(f"'{path}' holds a run of {found}; choose another --out")
            return True
        foreign = path.exists() and (not path.is_dir() or any(not p.name.startswith(".") for p in path.iterdir()))
    except OSError as error:
        raise errors.RunDirectoryError(f"cannot use '{path}' ({error.strerror}); choose another --out") from None
    if foreign:
        raise errors.RunDirectoryError(f"'{path}' exists and is not a run directory; choose another --out")
    return False


def _stored_scenario(path: Path) -> Scenario:
    try:
        return Scenario.from_toml((path / "scenario.toml").read_text(encoding="utf-8"))
    except (errors.CodedflError, ValueError) as error:
        raise errors.RunDirectoryError(
            f"the scenario.toml of '{path}' cannot be used ({error}); load the plug-in of its scheme if it has one, "
            "or delete the run and run again"
        ) from None


def _stored_identity(path: Path) -> tuple[str, bool]:
    """Return the scenario id at the creation of a directory (data may change later), and whether it was on sites."""
    first, *more = (path / "scenario.toml").read_text(encoding="utf-8", errors="replace").splitlines()[:2] or [""]
    identity = first.removeprefix(_MARK).strip() if first.startswith(_MARK) else _stored_scenario(path).id()
    return identity, _ON_SITES.strip() in more


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with (path / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise errors.RunDirectoryError(
                f"another process runs '{path}'; wait for it or choose another --out"
            ) from None
        yield


def _finish(identity: str, backend: RunBackend, path: Path, progress: Progress, observer: Observer | None) -> None:
    scenario, scheme = backend.scenario, backend.scheme
    state, began = _train(backend, path, progress, observer)
    timings = backend.timings(state, progress)
    runs = [(np.array(state.history.columns["accuracy"]), timings)]
    if scheme.follows_timing and isinstance(backend, SimulationBackend):
        runs += _repeat(scenario, path, backend.problem, progress)
    objective, theta = backend.objective, backend.objective.whole(state.model)
    summary = summarise(backend, state, runs, backend.score(state))
    summary |= {"scenario_id": identity, "wall_seconds": time.perf_counter() - began}
    single = timings.astype(np.float32)
    storage.write_whole(path / "timings.npy", lambda file: np.save(file, single, allow_pickle=False))
    storage.write_parquet(path / "epochs.parquet", tabulate(state, [seconds for _, seconds in runs]))
    storage.write_arrays(path / "model.npz", {"theta": theta})
    save_model(path / "model", scenario, identity, objective, theta, summary["privacy"])
    spent = spent_in(state.history, scenario.fleet.size)
    devices = np.arange(scenario.fleet.size)
    for name, table in {"costs.parquet": {"device": devices, **spent}, **backend.tables(state)}.items():
        storage.write_parquet(path / name, table)
    storage.write_json(path / "summary.json", summary)
    (path / CHECKPOINT).unlink(missing_ok=True)


def _resume(scenario: Scenario, path: Path, problem: Objective) -> tuple[State, float, dict[str, Any]]:
    """Return the saved state, the time spent so far, and the saved arrays of the backend."""
    saved = path / CHECKPOINT
    if not saved.exists():
        return State.fresh(problem), 0.0, {}
    try:
        with saved.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            state, spent = State.from_arrays(arrays), float(arrays["wall_seconds"])
            restored = {name.removeprefix(_BACKEND): arrays[name] for name in arrays if name.startswith(_BACKEND)}
        create_solver(problem, scenario, state)  # checks the arrays of the solver
        fits = state.model.shape == problem.shape
    except storage.DAMAGED:
        fits = False
    if not fits:
        raise errors.RunDirectoryError(f"'{saved}' is damaged; delete it to restart the run")
    return state, spent, restored


def _train(backend: RunBackend, path: Path, progress: Progress, observer: Observer | None) -> tuple[State, float]:
    """Train or resume; return the state, and when the training would have begun without interruptions.

    The state is saved so often that an interruption loses about a second, or one epoch, and epochs that late replies
    may still show to be wrong.
    """
    scenario, saved_at = backend.scenario, time.perf_counter()
    state, spent, restored = _resume(scenario, path, backend.objective)
    began = saved_at - spent
    engine = backend.engine(state, restored)
    if observer is not None:
        engine = observer.begin(backend, engine, state)

    def save(current: State) -> None:
        own = {f"{_BACKEND}{name}": array for name, array in backend.checkpoint_arrays().items()}
        arrays = {**current.to_arrays(), **own, "wall_seconds": np.array(time.perf_counter() - began)}
        # the key of noise takes it off
        storage.write_arrays(path / CHECKPOINT, arrays, durable=False, private=scenario.private)

    def after_epoch(current: State) -> None:
        nonlocal saved_at
        if observer is not None:
            observer.after_epoch(current)
        progress(f"training {scenario.scheme}", current.epoch, scenario.training.epochs)
        if backend.saves_every_epoch or time.perf_counter() - saved_at > _CHECKPOINT_SECONDS:
            save(current)
            saved_at = time.perf_counter()

    try:
        state = train(backend.objective, scenario, backend.scheme, engine, state, after_epoch)
    except (errors.LostDevicesError, errors.EngineError):
        if state.epoch > 0:
            save(state)
        raise
    save(state)
    return state, began


def _repeat(scenario: Scenario, path: Path, problem: Problem, progress: Progress) -> list[Timed]:
    results = []
    for number in range(1, scenario.timing.repeats):
        changes = {"timing.draw": scenario.timing.draw + number, "timing.repeats": 1}
        place = path / "repeats" / str(number)
        run = execute(scenario.with_settings(changes), place, problem=lambda: problem, progress=progress)
        results.append((run.epochs["accuracy"], run.timings.astype(np.float64)))
    return results
