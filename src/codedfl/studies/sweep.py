"""A grid of scenarios, on all cores: one process a core, one run directory a cell."""

import itertools
import os
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from codedfl import schemes
from codedfl.errors import TrainingError, UsageError
from codedfl.progress import Progress
from codedfl.runs import execute
from codedfl.scenario import Scenario
from codedfl.storage import refuse_file
from codedfl.studies.tables import write_rows
from codedfl.task.shared import SharedProblem


def sweep(
    scenario: Scenario,
    grid: Mapping[str, Sequence[Any]],
    out: Path,
    progress: Progress,
    workers: int | None = None,
) -> list[dict[str, Any]]:
    """Run every combination of the values; write ``sweep.json`` and ``sweep.csv``."""
    if any(len(values) == 0 for values in grid.values()):
        raise UsageError("--over needs at least one value for each key, for example --over links.loss=0,0.1")
    cells = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    wanted = [scenario.with_settings(cell) for cell in cells]  # a wrong value is refused before anything runs
    for entry in wanted:
        schemes.check(entry)
    refuse_file(out)
    summaries = _run_all(wanted, out, progress, workers)
    rows = [{"settings": cell, **summary} for cell, summary in zip(cells, summaries, strict=True)]
    write_rows(out, "sweep", rows)
    return rows


def _run_all(wanted: Sequence[Scenario], out: Path, progress: Progress, workers: int | None) -> list[dict[str, Any]]:
    """Run each experiment once, however many cells it fills; the first failure ends all."""
    places = [out / "runs" / f"{entry.scheme}-{entry.id()}" for entry in wanted]
    distinct = dict(zip(places, wanted, strict=True))
    context = get_context("spawn")  # a forked child would inherit the locks of BLAS threads
    count = min(workers or os.cpu_count() or 1, len(distinct))
    with ProcessPoolExecutor(count, context, _start, (schemes.plugin_files(),)) as pool:
        try:
            cells = {place: pool.submit(_run, entry.to_toml(), str(place)) for place, entry in distinct.items()}
            progress("sweep", 0, len(cells))
            for done, cell in enumerate(as_completed(cells.values()), start=1):
                cell.result()
                progress("sweep", done, len(cells))
            return [cells[place].result() for place in places]
        except BrokenProcessPool:
            raise TrainingError(
                "a process was ended from outside (perhaps for lack of memory); "
                "rerun the same command, with fewer processes if memory is short"
            ) from None
        except BaseException:
            for process in list(getattr(pool, "_processes", {}).values()):
                process.terminate()  # the checkpoints stay, so the same command resumes from them
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _start(plugins: Sequence[Path]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threadpool_limits(1)
    schemes.load_plugins(plugins)


_shared = SharedProblem()


def _run(scenario: str, place: str) -> dict[str, Any]:
    chosen = Scenario.from_toml(scenario)
    return execute(chosen, Path(place), problem=_shared.get(chosen)).summary
