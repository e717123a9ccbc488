"""The run directory: what was run, what came out, and how to go on after an interruption.

    scenario.toml    what was run
    epochs.parquet   one row an epoch
    summary.json     the results in short; there when the run is finished
    model.npz        the model
    timeline.parquet who did what when, in the run's own draw
    timings.npy      when each epoch ends (epochs) in each timing draw (rows), in seconds
    repeats/N/       further trainings of a scheme whose model follows the timing
    checkpoint.npz   only while the run is not finished
    .lock            held by the process that runs it

Each file is written whole or not at all. A run that was stopped, even by kill -9, goes on from its checkpoint and ends
with the same numbers to the last bit. A finished run is not run again.
"""

import fcntl
import json
import math
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from jaxtyping import Float, Shaped

from codedfl import schemes
from codedfl.delays import DelayModel
from codedfl.engines import VirtualEngine
from codedfl.errors import CodedflError, LostDevicesError, RunDirectoryError, TrainingError
from codedfl.files import (
    make_folder,
    remove_unfinished,
    write_arrays,
    write_json,
    write_parquet,
    write_text,
    write_whole,
)
from codedfl.progress import Progress, silent
from codedfl.scenario import Scenario
from codedfl.shared_timing import Variant, measure, shared_seconds
from codedfl.spent import LINKS, mean_and_largest, spent_in
from codedfl.task import Problem
from codedfl.timeline import timeline
from codedfl.timing import Band, band, cumulative_seconds, time_to
from codedfl.training import COLUMNS, State, create_solver, train

__all__ = ["Run", "default_directory", "execute", "load", "target_name", "times_to_targets"]

_CHECKPOINT_SECONDS = 0.25


def target_name(target: float) -> str:
    """Return the key of a target accuracy in summaries."""
    return repr(target)


def default_directory(scenario: Scenario) -> Path:
    """Return where a run goes unless told otherwise."""
    return Path("runs") / f"{scenario.name}-{scenario.scheme}-{scenario.id()}"


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run."""

    path: Path
    scenario: Scenario
    summary: dict[str, Any]
    epochs: dict[str, Shaped[np.ndarray, "epochs"]]
    timings: Float[np.ndarray, "draws epochs"]

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
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError, OSError, pa.ArrowException):
        consistent = False
    if not consistent:
        raise RunDirectoryError(f"the run '{path}' is damaged; delete it and run again")
    return Run(path, scenario, summary, epochs, timings)


def execute(
    scenario: Scenario, path: Path, *, problem: Callable[[], Problem] | None = None, progress: Progress = silent
) -> Run:
    """Run a scenario in a directory, or go on where it stopped, or load it if it is finished.

    ``problem`` may supply the prepared data, so that several runs share it. Nothing is written before the data and the
    scheme have been found usable, and a training that cannot go on takes its directory with it if it made it.
    """
    schemes.check(scenario)
    identity = scenario.id()
    begun = _belongs(path, identity)
    if begun and (path / "summary.json").exists():
        _tidy(path)
        return load(path)
    prepared = (problem or (lambda: Problem.build(scenario, progress)))()
    scheme = schemes.create(scenario, prepared)
    try:
        make_folder(path)
        with _locked(path):
            if not begun:
                write_text(path / "scenario.toml", f"# scenario id {identity}\n{scenario.to_toml()}")
            remove_unfinished(path)
            _finish(scenario, identity, scheme, path, prepared, progress)
    except LostDevicesError:
        raise
    except TrainingError:
        if not begun:
            shutil.rmtree(path)
        raise
    except OSError as error:
        raise RunDirectoryError(
            f"cannot write to '{path}' ({error.strerror}); mend that and give the same command again"
        ) from None
    return load(path)


def _belongs(path: Path, identity: str) -> bool:
    """Tell whether the directory holds this run; refuse one that holds anything else."""
    try:
        if (path / "scenario.toml").is_file():
            stored = _stored_id(path)
            if stored != identity:
                raise RunDirectoryError(
                    f"'{path}' holds the run of another scenario (id {stored}, not {identity}); choose another --out"
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
    first, *_ = (path / "scenario.toml").read_text(encoding="utf-8", errors="replace").splitlines() or [""]
    if not first.startswith("# scenario id "):
        return _stored_scenario(path).id()
    return first.removeprefix("# scenario id ").strip()


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


def _finish(
    scenario: Scenario,
    identity: str,
    scheme: schemes.Scheme[Any],
    path: Path,
    problem: Problem,
    progress: Progress,
) -> None:
    began = time.perf_counter()
    state, spent = _resume(scenario, path, problem)
    state = _train(scenario, scheme, problem, path, state, lambda: spent + time.perf_counter() - began, progress)
    timings = _timings(scenario, scheme, problem, state, progress)
    runs = [(np.array(state.history.columns["accuracy"]), timings)]
    if scheme.follows_timing:
        runs += _repeat(scenario, path, problem, progress)
    summary = _summary(scenario, scheme, state, runs)
    summary |= {"scenario_id": identity, "metric": "accuracy" if problem.kind == "classification" else "r2"}
    summary["wall_seconds"] = spent + time.perf_counter() - began
    write_whole(path / "timings.npy", lambda file: np.save(file, timings.astype(np.float32), allow_pickle=False))
    write_parquet(path / "epochs.parquet", _table(state, [seconds for _, seconds in runs]))
    write_arrays(path / "model.npz", {"theta": state.model})
    write_parquet(path / "timeline.parquet", _timeline(scenario, scheme, state))
    write_json(path / "summary.json", summary)
    (path / "checkpoint.npz").unlink(missing_ok=True)


def _resume(scenario: Scenario, path: Path, problem: Problem) -> tuple[State, float]:
    saved = path / "checkpoint.npz"
    if not saved.exists():
        return State.fresh(problem), 0.0
    try:
        with saved.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            state, spent = State.from_arrays(arrays), float(arrays["wall_seconds"])
        create_solver(problem, scenario.training, state)  # the arrays of its solver are there, too
        fits = state.model.shape == problem.shape
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError, OSError, zipfile.BadZipFile):
        fits = False
    if not fits:
        raise RunDirectoryError(f"'{saved}' is damaged; delete it to start the run again")
    return state, spent


def _train(
    scenario: Scenario,
    scheme: schemes.Scheme[Any],
    problem: Problem,
    path: Path,
    state: State,
    elapsed: Callable[[], float],
    progress: Progress,
) -> State:
    """Train, saving the state so often that an interruption costs a fraction of a second, or one epoch."""
    devices = [scheme.device(index, shard) for index, shard in enumerate(problem.shards)]
    delays = DelayModel.create(scenario.fleet, scenario.links)
    timing = scenario.timing
    engine = VirtualEngine(
        devices,
        delays,
        seed=timing.seed,
        draw=timing.draw,
        now=state.now,
        last_epochs=scenario.fleet.last_epochs,
    )
    saved_at = time.perf_counter()

    def save(current: State) -> None:
        arrays = {**current.to_arrays(), "wall_seconds": np.array(elapsed())}
        write_arrays(path / "checkpoint.npz", arrays, durable=False)

    def after_epoch(current: State) -> None:
        nonlocal saved_at
        progress(f"training {scenario.scheme}", current.epoch, scenario.training.epochs)
        if time.perf_counter() - saved_at > _CHECKPOINT_SECONDS:
            save(current)
            saved_at = time.perf_counter()

    try:
        state = train(problem, scenario, scheme, engine, state, after_epoch)
    except LostDevicesError:
        if state.epoch > 0:
            save(state)
        raise
    save(state)
    return state


def _timings(
    scenario: Scenario, scheme: schemes.Scheme[Any], problem: Problem, state: State, progress: Progress
) -> Float[np.ndarray, "draws epochs"]:
    if scheme.follows_timing:
        return np.array([state.history.columns["time"]])
    delays = DelayModel.create(scenario.fleet, scenario.links)
    timing = scenario.timing

    def report(done: int, total: int) -> None:
        progress(f"timing {scenario.scheme}", done, total)

    if isinstance(scheme, schemes.SharingScheme):
        costs = measure(scheme, problem, first_offline=scenario.training.first_epoch_offline)
        set_up = [stage for _, stage in state.history.stages_after(0)]
        variant = Variant(costs, scheme.policy, scheme.parallel_reception, set_up)
        (seconds,) = shared_seconds(
            [variant], delays, epochs=state.epoch, seed=timing.seed, draws=timing.draws, progress=report
        )
        return np.asarray(seconds)
    return cumulative_seconds(state.history, delays, seed=timing.seed, draws=timing.draws, progress=report)


def _repeat(
    scenario: Scenario, path: Path, problem: Problem, progress: Progress
) -> list[tuple[Float[np.ndarray, "epochs"], Float[np.ndarray, "draws epochs"]]]:
    results = []
    for number in range(1, scenario.timing.repeats):
        changes = {"timing.draw": scenario.timing.draw + number, "timing.repeats": 1}
        place = path / "repeats" / str(number)
        run = execute(scenario.with_settings(changes), place, problem=lambda: problem, progress=progress)
        results.append((run.epochs["accuracy"], run.timings.astype(np.float64)))
    return results


def _timeline(scenario: Scenario, scheme: schemes.Scheme[Any], state: State) -> dict[str, list[Any]]:
    return timeline(
        state.history,
        DelayModel.create(scenario.fleet, scenario.links),
        seed=scenario.timing.seed,
        draw=scenario.timing.draw,
        parallel=isinstance(scheme, schemes.SharingScheme) and scheme.parallel_reception,
    )


def _table(state: State, timings: list[Float[np.ndarray, "draws epochs"]]) -> dict[str, Any]:
    columns: dict[str, Any] = {name: np.array(state.history.columns[name]) for name in COLUMNS}
    shortest = min(seconds.shape[1] for seconds in timings)
    together = np.concatenate([seconds[:, :shortest] for seconds in timings])
    bands = [band(together[:, epoch]) for epoch in range(shortest)]
    bands += [Band(math.nan, math.nan, math.nan)] * (len(columns["epoch"]) - shortest)
    columns["time_mean"] = [item.mean for item in bands]
    columns["time_low"] = [item.low for item in bands]
    columns["time_high"] = [item.high for item in bands]
    return columns


def times_to_targets(
    targets: Sequence[float], runs: Sequence[tuple[Float[np.ndarray, "epochs"], Float[np.ndarray, "draws epochs"]]]
) -> tuple[dict[str, float | None], dict[str, list[float | None] | None]]:
    """Return the mean time to each target and its 95% band, given accuracies and times of all runs; None is never."""
    means: dict[str, float | None] = {}
    bands: dict[str, list[float | None] | None] = {}
    for target in targets:
        times = [time_to(accuracy, seconds, target) for accuracy, seconds in runs]
        reached = [seconds for seconds in times if seconds is not None]
        found = band(np.concatenate(reached)) if len(reached) == len(times) else None
        means[target_name(target)] = found.mean if found else None
        bands[target_name(target)] = [_finite(found.low), _finite(found.high)] if found else None
    return means, bands


def _summary(
    scenario: Scenario,
    scheme: schemes.Scheme[Any],
    state: State,
    runs: list[tuple[Float[np.ndarray, "epochs"], Float[np.ndarray, "draws epochs"]]],
) -> dict[str, Any]:
    columns = state.history.columns
    means, bands = times_to_targets(scenario.training.targets, runs)
    spent = spent_in(state.history, scenario.fleet.size)
    errors = np.array(columns["gradient_error"])
    return {
        "scenario": scenario.name,
        "scheme": scenario.scheme,
        "epochs": state.epoch,
        "final_accuracy": columns["accuracy"][-1],
        "best_accuracy": max(columns["accuracy"]),
        "time_to_accuracy": means,
        "time_to_accuracy_band": bands,
        "timing_draws": sum(len(seconds) for _, seconds in runs),
        "seconds_per_epoch": float(np.mean([seconds[:, -1].mean() / seconds.shape[1] for _, seconds in runs])),
        "virtual_seconds": columns["time"][-1],
        "bits_sent": {kind: int(sum(columns[f"{kind}_bits"])) for kind in LINKS},
        "device_macs": int(sum(columns["device_macs"])),
        "bits_per_device": {link: mean_and_largest(spent[link]) for link in LINKS},
        "macs_per_device": mean_and_largest(spent["macs"]),
        "server_macs": int(sum(columns["server_macs"])),
        "decode_failures": 0,  # a key's erasure set is drawn again until its decoder restores it
        "gradient_error": None if np.isnan(errors).all() else float(np.nanmax(errors)),
        "handovers": len(state.history.transfers),
        "survives_losses": scheme.survives_losses,
        "verdict": scheme.verdict,
        "leakage": scheme.leakage().to_table(),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
