"""A whole fleet on FLARE to try faults on: a server and devices as processes of this machine, with mutual TLS.

Sites can be told to misbehave, to hold their answers back until they may go on, and are put right again. The last two
devices are in a network of their own, which can be cut.
"""

import contextlib
import gc
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, final

import numpy as np

from benchmarks.networks import Forwarder, Namespace, Network, network
from codedfl.deploy.flare.kits import write_site
from codedfl.deploy.flare.processes import kits_of, reviver, running, start, status, stop, threads_each
from codedfl.deploy.flare.sites import read_site
from codedfl.deploy.server.deployment import STATUS
from codedfl.deploy.server.fleet import make_fleet, submit
from codedfl.deploy.server.remote import SET_UP
from codedfl.deploy.site.privacy import LEDGER
from codedfl.runs import execute
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES
from codedfl.testing.misbehaving import GO

__all__ = ["HELD", "PATIENCE", "Lab", "Training"]

HELD = {"kind": "held"}
HOST = "codedfl.testing.misbehaving:make_host"
FOR_EVER = 10**9
PATIENCE = 8.0
"""Seconds without an answer after which a site is lost."""


@final
class Lab:
    """The fleet, what its sites are told, and how a run on it stands."""

    def __init__(self, folder: Path, scenario: Scenario, apart: Network | None = None) -> None:
        """``apart`` is the network of the last two devices."""
        self.folder = folder
        self._network = apart or network()
        self.kits = make_fleet(
            folder / "kits", scenario, host=self._network.host, schemes=tuple(SCHEMES), keep_authority=True
        )
        self.kind_of_network = "namespace" if isinstance(self._network, Namespace) else "forwarder"
        self.inside = self.kits.sites[-2:]
        for site in self.inside:
            self._network.join(self.kits.device(site), self.kits.port)
        self._proper = {site: read_site(self.kits.device(site)) for site in self.kits.sites}
        for table in self._proper.values():
            del table["folder"]
        self._references: dict[str, Any] = {}
        self._runs = 0
        self._starting, self._over = threading.Lock(), False

    def tell(self, misbehaviour: Mapping[str, Mapping[str, Any]]) -> None:
        """Let these sites misbehave so from the next job on, and all others not."""
        for site, proper in self._proper.items():
            own = {"host": HOST, "misbehaviour": dict(misbehaviour[site])} if site in misbehaviour else {}
            write_site(self.kits.device(site), proper | own)

    def go(self, epoch: int = FOR_EVER) -> None:
        """Let sites that are held answer up to this epoch."""
        for site in self.kits.sites:
            scratch = self.kits.device(site) / f".{GO}"
            scratch.write_text(str(epoch))
            scratch.replace(self.kits.device(site) / GO)

    def processes(self, site: str, *, parent: bool, jobs: bool = True) -> list[int]:
        """The processes of a site, or of the server."""
        (found,) = status([self.kits.server if site == "server" else self.kits.device(site)])
        return [*([found.pid] if parent and found.pid else []), *(found.jobs if jobs else ())]

    def signal(self, number: signal.Signals, sites: Sequence[str], *, parent: bool = True, jobs: bool = True) -> None:
        """Send a signal to all processes of sites, or to those only that run for jobs, or do not."""
        for pid in [pid for site in sites for pid in self.processes(site, parent=parent, jobs=jobs)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def cut(self) -> None:
        """Cut the network of the last two devices."""
        self._network.cut()

    def mend(self) -> None:
        """Mend that network."""
        self._network.mend()

    def slow_down(self, seconds: float) -> None:
        """Let whatever passes through that network take longer, if it can."""
        if isinstance(self._network, Forwarder):
            self._network.delay = seconds

    def put_right(self) -> None:
        """Let everything run again that does not, or not as it should."""
        self._network.mend()
        self.tell({})
        ill = [one.kit for one in status(kits_of(self.kits)) if one.pid is None or _is_stopped(one.pid)]
        stop(ill, grace=1.0)
        for kit in ill:
            self._start(kit)

    def _start(self, kit: Path) -> None:
        prefix = self._network.prefix if kit.name in self.inside else ()
        start(kit, threads_each(kits_of(self.kits)), prefix=prefix)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start everything, and end it whatever happens."""
        inside = [self.kits.device(site) for site in self.inside]
        outside = [kit for kit in kits_of(self.kits) if kit not in inside]
        try:
            with running(outside):
                try:
                    for kit in inside:
                        self._start(kit)
                    yield
                finally:
                    with self._starting:  # a training that was given up starts nothing any more
                        self._over = True
                    self._network.mend()
                    stop(inside)
        finally:
            self._network.close()
            gc.collect()  # FLARE's sessions leave sockets to the garbage collector

    def revived(self) -> Callable[[], None]:
        """Return a function that starts dead processes again until the fleet is ended."""
        revive = reviver(kits_of(self.kits))

        def again() -> None:
            with self._starting:
                if not self._over:
                    revive()

        return again

    def second_answers(self, sites: Sequence[str]) -> int:
        """How many second answers of these sites were refused so far; none may have been taken."""
        logs = [path.read_text() for site in sites for path in self.kits.device(site).glob("*/log.txt")]
        if any("took a second answer" in log for log in logs):
            raise RuntimeError("a second answer was taken")
        return sum(log.count("a second answer was refused") for log in logs)

    def reference(self, scenario: Scenario) -> Any:
        """The model of virtual time."""
        name = scenario.id()
        if name not in self._references:
            self._references[name] = _model(execute(scenario, self.folder / "virtual" / name).path)
        return self._references[name]

    def is_exact(self, scenario: Scenario, run: Path) -> bool:
        """Whether a run has ended with the model of virtual time, to the last bit."""
        return bool(np.array_equal(_model(run), self.reference(scenario)))

    def ledgers(self) -> dict[str, list[str]]:
        """The run of each release that every site has entered in its ledger."""
        found = {}
        for site in self.kits.sites:
            path = self.kits.device(site) / LEDGER
            rows = json.loads(path.read_text(encoding="utf-8"))["releases"] if path.exists() else []
            found[site] = [row["run"] for row in rows]
        return found

    def new_run(self) -> Path:
        """A place for a run."""
        self._runs += 1
        return self.folder / "runs" / str(self._runs)

    def train(
        self, scenario: Scenario, run: Path, *, revive: bool, tries: int = 3, return_seconds: float = 0.0
    ) -> "Training":
        """Begin to train; a training that cannot go on waits so long for lost sites to come back."""
        (self.kits.server / STATUS).unlink(missing_ok=True)
        return Training(self, scenario, run, revive=revive, tries=tries, return_seconds=return_seconds)


@final
class Training:
    """A job that is being run, job after job until it succeeds or fails."""

    def __init__(
        self, owner: Lab, scenario: Scenario, run: Path, *, revive: bool, tries: int, return_seconds: float
    ) -> None:
        self._status = owner.kits.server / STATUS
        self.jobs = 0
        again = owner.revived() if revive else lambda: None
        self._pool = ThreadPoolExecutor(1)
        self._future: Future[dict[str, Any]] = self._pool.submit(
            submit,
            owner.kits,
            scenario,
            run=run.resolve(),
            patience=PATIENCE,
            tries=tries,
            return_seconds=return_seconds,
            revive=again,
            report=lambda text: self._note(text),
        )

    def _note(self, text: str) -> None:
        self.jobs += text.startswith("submitted as")

    def until(self, reached: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until the board shows it; the training must not end before."""
        while not reached(self._board()):
            if self._future.done():
                raise RuntimeError(f"the training ended early: {self._future.exception() or self._future.result()}")
            time.sleep(0.1)

    def until_epoch(self, epoch: int) -> None:
        """Wait until an epoch is over."""
        self.until(lambda board: board.get("done", 0) >= epoch)

    def until_lost(self, sites: Sequence[str]) -> None:
        """Wait until the board shows that these sites are lost."""
        self.until(lambda board: set(sites) <= _lost(board))

    def lost(self) -> set[str]:
        """Who is lost, as the board shows it now."""
        return _lost(self._board())

    def begun(self) -> bool:
        """Whether the server's process works on it."""
        return self._status.exists()

    def set_up_begun(self) -> bool:
        """Whether parcels of its set-up are on their way, as the board shows it now, or were."""
        board = self._board()
        return board.get("stage") == SET_UP or int(board.get("epoch", 0)) > 0

    def done(self) -> bool:
        """Whether it has ended."""
        return self._future.done()

    def epoch(self) -> int:
        """Epochs done, as the board shows it now."""
        return int(self._board().get("epoch", 0))

    def stage(self) -> str:
        """What the board shows that it does."""
        board = self._board()
        return f"{board.get('stage', 'submitted')}, epoch {board.get('epoch', 0)}"

    def result(self, seconds: float | None = None) -> dict[str, Any]:
        """Wait for the end, at most so long, and return the summary, or raise what stopped the training."""
        try:
            summary: dict[str, Any] = self._future.result(seconds)["summary"]
            return summary
        finally:
            self._pool.shutdown(wait=self._future.done())

    def _board(self) -> dict[str, Any]:
        try:
            board: dict[str, Any] = json.loads(self._status.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return board


def _lost(board: Mapping[str, Any]) -> set[str]:
    return {row["site"] for row in board.get("devices", ()) if row["state"] == "lost"}


def _model(run: Path) -> Any:
    with np.load(run / "model.npz") as arrays:
        return arrays["theta"]


def _is_stopped(pid: int) -> bool:
    import psutil

    with contextlib.suppress(psutil.Error):
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return True
