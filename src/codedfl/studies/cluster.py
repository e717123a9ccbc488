"""Tasks on other machines: a ``dask.distributed`` scheduler, or a cluster of processes on this machine.

Tasks, results and files travel as text and bytes (``codedfl.studies.archives``), never as pickled objects of codedfl.
Dask itself pickles the call, and runs whatever its scheduler is sent: a scheduler and its workers are trusted.
A task depends on its arguments only, so one whose worker is gone is carried out again by another, to the same bits.
"""

import hashlib
import importlib
import json
import logging
import os
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

from codedfl import errors, schemes
from codedfl.studies.archives import pack, unpack, unpack_files
from codedfl.studies.processes import one_thread
from codedfl.studies.tasks import Done, StudyPart

_NEWS = 5.0
"""Seconds after which progress is reported again."""
_PATIENCE = 10.0
"""Seconds in which a scheduler must reply."""
_OURS = "codedfl.studies."
"""Where functions of tasks come from."""


@lru_cache(maxsize=1)
def numerics() -> dict[str, str]:
    """Return what the last bits of results depend on: codedfl's source, libraries, and BLAS with its kernels."""
    import scipy.linalg  # noqa: F401 - brings a BLAS of its own
    from threadpoolctl import threadpool_info

    root = Path(errors.__file__).parent
    source = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        source.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    found = {name: version(name) for name in ("codedfl", "numpy", "scipy", "numba")}
    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    names = {
        " ".join(str(library.get(key)) for key in ("internal_api", "version", "architecture")) for library in libraries
    }
    return found | {"source": source.hexdigest()[:12], "BLAS": ", ".join(sorted(names))}


@contextmanager
def connected(scheduler: str | None = None, processes: int | None = None) -> Iterator["Cluster"]:
    """Connect to a scheduler, or start a cluster of so many processes on this machine, which ends with the block."""
    try:
        import distributed
    except ModuleNotFoundError:
        raise errors.MissingExtraError(
            "--scheduler and --cluster need Dask; install it with: pip install 'codedfl[cluster]'"
        ) from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters is raised, in words
    if scheduler is not None:
        client = _client(distributed, scheduler)
        with client:
            yield Cluster(client, f"the scheduler at {scheduler}")
        return
    try:
        local = distributed.LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=processes,
            threads_per_worker=1,
            memory_limit=0,  # a task may need more than its share for a while
            host="127.0.0.1",
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        )
    except (OSError, TimeoutError, RuntimeError) as error:
        raise errors.EngineError(f"a cluster of {processes} processes does not start ({error}); give fewer") from None
    with local, distributed.Client(local) as client:  # type: ignore[no-untyped-call]
        yield Cluster(client, "the local cluster")


def _client(distributed: Any, address: str) -> Any:
    if not address.startswith(("tcp://", "tls://")) or ":" not in address[6:]:
        raise errors.UsageError(f"--scheduler '{address}' must be tcp://HOST:PORT or tls://HOST:PORT")
    try:
        return distributed.Client(address, timeout=_PATIENCE)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise errors.EngineError(
            f"no Dask scheduler answers at '{address}' ({reason}); start one (dask scheduler) or correct --scheduler"
        ) from None


@final
class Cluster:
    """A connection to a scheduler."""

    def __init__(self, client: Any, name: str) -> None:
        self._client, self._name = client, name
        self._check_workers()

    def _check_workers(self) -> None:
        """Refuse workers whose results would differ in their last bits; those that come later are refused by tasks."""
        from distributed.comm.core import CommClosedError

        try:
            found = self._client.run(_own_numerics, on_error="return")
        except (OSError, CommClosedError, TimeoutError) as error:
            raise errors.EngineError(f"{self._name} does not answer ({error}); start it again") from None
        for worker, other in found.items():
            if isinstance(other, str):
                _compare(numerics(), json.loads(other), worker)
            elif isinstance(other, ImportError | AttributeError):
                raise errors.EngineError(
                    f"the worker {worker} of {self._name} has no codedfl like this one ({other}); install "
                    f"codedfl {numerics()['codedfl']} there"
                )

    def process_numbers(self) -> list[int]:
        """Return the numbers of the workers' processes, each on its machine."""
        return list(self._client.run(os.getpid).values())

    def run(self, tasks: Sequence[StudyPart], done: Done) -> list[Any]:
        """Return what the tasks return, in their order; files are written as tasks end; the first failure ends all."""
        import distributed
        from distributed.comm.core import CommClosedError

        name, results, told = uuid.uuid4().hex[:12], [None] * len(tasks), False
        numbers: dict[Any, int] = {}
        try:
            for number, task in enumerate(tasks):
                order = json.dumps(_order(task))
                files = pack(None, task.folder, (*task.uses, *task.reads))
                future = self._client.submit(carry_out, order, files, key=f"codedfl-{name}-{number}", pure=False)
                numbers[future] = number
            left, finished = set(numbers), 0
            done(0, len(tasks))
            while left:
                with suppress(TimeoutError, distributed.TimeoutError):
                    distributed.wait(left, timeout=_NEWS, return_when="FIRST_COMPLETED")  # type: ignore[no-untyped-call]
                for future in [future for future in left if future.done()]:
                    left.discard(future)
                    results[numbers[future]] = self._take(tasks[numbers[future]], future)
                    finished += 1
                done(finished, len(tasks))  # also without news: a log shows that work goes on
                if left and not told and not self._client.scheduler_info().get("workers"):
                    logging.getLogger(__name__).warning("%s has no workers; waiting for one", self._name)
                    told = True
            return results
        except CancelledError:
            raise self._gone("its tasks were cancelled") from None
        except (CommClosedError, OSError) as error:
            raise self._gone(str(error)) from None
        finally:
            with suppress(Exception):
                self._client.cancel(list(numbers))

    def _take(self, task: StudyPart, future: Any) -> Any:
        """Return the result of a finished task, and write its files; raise what it raised."""
        from distributed.scheduler import KilledWorker

        if future.status != "finished":
            error = None if future.cancelled() else future.exception()
            if isinstance(error, KilledWorker):
                raise errors.TrainingError(
                    f"{error.allowed_failures + 1} workers of {self._name} ended during the same task (perhaps for "
                    "lack of memory); rerun the same command with workers that have more memory"
                )
            if error is None:
                raise self._gone("the task was cancelled")
            raise error
        value, data = unpack_result(future.result(), task.records)
        if task.folder is not None:
            unpack_files(data, task.folder, task.uses)
        future.release()
        return value

    def _gone(self, reason: str) -> errors.EngineError:
        return errors.EngineError(
            f"{self._name} is gone ({reason}); rerun the same command when it is back, finished parts are kept"
        )


def _order(task: StudyPart) -> dict[str, Any]:
    """Return a task as plain values; its function by name."""
    return {
        "function": f"{task.function.__module__}:{task.function.__qualname__}",
        "arguments": json.dumps(task.arguments),
        "folder": task.folder is not None,
        "uses": task.uses,
        "reads": task.reads,
        "numerics": numerics(),
        "plugins": [str(path) for path in schemes.plugin_files()],
    }


def _own_numerics() -> str:
    return json.dumps(numerics())


def carry_out(order: str, files: bytes) -> bytes:
    """Carry out a task on a worker: in a folder of its own, with one thread; an error of codedfl is a result."""
    told = json.loads(order)
    try:
        _compare(told["numerics"], numerics(), "")
        one_thread()
        schemes.load_plugins(map(Path, told["plugins"]))
        with tempfile.TemporaryDirectory(prefix="codedfl-") as folder:
            place = (folder,) if told["folder"] else ()
            unpack_files(files, Path(folder), [*told["uses"], *told["reads"]])
            value = _function(told["function"])(*place, *json.loads(told["arguments"]))
            return pack({"value": value}, Path(folder), told["uses"])
    except errors.CodedflError as error:
        return pack({"error": type(error).__name__, "sentence": str(error)})


def unpack_result(data: bytes, records: Sequence[type]) -> tuple[Any, bytes]:
    """Return the value that :func:`carry_out` packed, and the archive with its files; raise the error that it holds."""
    found = unpack(data, records)
    if "error" in found:
        kind = getattr(errors, str(found["error"]), errors.EngineError)
        raise (
            kind(found["sentence"]) if issubclass(kind, errors.CodedflError) else errors.EngineError(found["sentence"])
        )
    return found["value"], data


def _function(name: str) -> Any:
    module, _, attribute = name.partition(":")
    if not module.startswith(_OURS):
        raise errors.EngineError(f"the task '{name}' is no task of codedfl; check the scheduler")
    return getattr(importlib.import_module(module), attribute)


def _compare(client: dict[str, str], worker: dict[str, str], address: str) -> None:
    """Refuse a worker whose results would differ in their last bits."""
    for key, own in client.items():
        if worker.get(key) != own:
            raise errors.EngineError(
                f"the worker {address or 'that took a task'} has {key} {worker.get(key)}, this machine {own}, so "
                f"results would differ in their last bits; install the same {key} on both"
            )
