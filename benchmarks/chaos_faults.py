"""The faults of the chaos campaign: what may happen to whom, at which moment of a training, and for how long."""

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.lab import Lab

__all__ = ["CLOCK", "FAULTS", "SETTING_UP", "START", "SUBMISSION", "Fault", "drawn"]

SUBMISSION, START, SETTING_UP = -1, 0, -2
"""Moments of a training: when it is submitted, when the server's process begins to work, and when the first parcels of
the set-up are sent; epochs count from 1."""
LATEST, SOON, LONGEST = 10.0, 1.0, 12.0
"""Seconds after such a moment, and after an epoch began, in which faults begin, and how long they last; a site is lost
after 8 s of silence."""
SET_UP_SECONDS = 3.0
"""Seconds in which faults of a set-up begin; that of `sealed-coded` takes 4."""

CLOCK = '''"""Sets the clock of a process by the seconds in a file, for trials."""
import os, time
_real, _file, _known = time.time, os.environ.get("CHAOS_CLOCK", ""), [0.0, 0.0]
def _set():
    if _file and time.monotonic() - _known[1] > 0.2:
        try:
            with open(_file) as file:
                _known[0] = float(file.read() or 0)
        except (OSError, ValueError):
            pass
        _known[1] = time.monotonic()
    return _real() + _known[0]
time.time = _set
'''


@dataclass(frozen=True)
class Fault:
    """What happens to whom, when, and for how long."""

    kind: str
    parties: tuple[str, ...]
    moment: int
    """From which moment its time counts: one of the three above, or the epoch that is being computed."""
    at: float
    seconds: float

    def words(self, stage: str) -> str:
        """Return it as text, with what the training was doing."""
        named = {SUBMISSION: "submission", START: "the start", SETTING_UP: "the set-up began"}
        after = named.get(self.moment, f"epoch {self.moment} began")
        times = f"{self.at:.1f} s after {after}, for {self.seconds:.1f} s"
        return f"{self.kind} ({', '.join(self.parties)}) {times}, in '{stage}'"


@contextlib.contextmanager
def signalled(lab: Lab, fault: Fault, which: dict[str, bool], number: signal.Signals) -> Iterator[None]:
    """Send a signal to processes."""
    lab.signal(number, fault.parties, **which)
    yield
    if number == signal.SIGSTOP:
        lab.signal(signal.SIGCONT, fault.parties, **which)


@contextlib.contextmanager
def cut(lab: Lab, _: Fault) -> Iterator[None]:
    """Cut the network of the last two devices."""
    lab.cut()
    yield
    lab.mend()


@contextlib.contextmanager
def slowed(lab: Lab, _: Fault) -> Iterator[None]:
    """Slow the network of the last two devices."""
    lab.slow_down(0.05)
    yield
    lab.slow_down(0.0)


@contextlib.contextmanager
def full(lab: Lab, fault: Fault) -> Iterator[None]:
    """Let no process of a party write anything."""
    pids = [pid for party in fault.parties for pid in lab.processes(party, parent=True)]
    for pid in pids:
        _limit(pid, 0)
    yield
    for pid in pids:
        _limit(pid, resource.RLIM_INFINITY)


def _limit(pid: int, size: int) -> None:
    with contextlib.suppress(OSError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]))


@contextlib.contextmanager
def jumped(lab: Lab, fault: Fault) -> Iterator[None]:
    """Let all clocks jump by an hour, forth or back."""
    clock = Path(os.environ["CHAOS_CLOCK"])
    clock.write_text("3600" if round(fault.at * 10) % 2 == 0 else "-3600")
    yield
    clock.write_text("0")


Strike = Callable[[Lab, Fault], contextlib.AbstractContextManager[None]]
WHOLE, WORK, ABOVE = {"parent": True}, {"parent": False}, {"jobs": False}
FAULTS: dict[str, Strike] = {
    "killed": lambda lab, fault: signalled(lab, fault, WHOLE, signal.SIGKILL),
    "job process killed": lambda lab, fault: signalled(lab, fault, WORK, signal.SIGKILL),
    "all but the job process killed": lambda lab, fault: signalled(lab, fault, ABOVE, signal.SIGKILL),
    "terminated": lambda lab, fault: signalled(lab, fault, WHOLE, signal.SIGTERM),
    "paused": lambda lab, fault: signalled(lab, fault, WHOLE, signal.SIGSTOP),
    "job process paused": lambda lab, fault: signalled(lab, fault, WORK, signal.SIGSTOP),
    "cut off": cut,
    "slow link": slowed,
    "disk full": full,
    "clock jumps": jumped,
}


def drawn(
    rng: np.random.Generator, sites: Sequence[str], inside: Sequence[str], last: int, *, set_up: bool = False
) -> list[Fault]:
    """Draw one to three faults of a training of ``last`` epochs; with ``set_up`` the first is within the set-up."""
    faults = []
    for _ in range(rng.integers(1, 4)):
        kind = list(FAULTS)[rng.integers(len(FAULTS))]
        many = 1 + int(rng.random() < 0.3)
        parties = [str(site) for site in rng.choice(sites, many, replace=False)]
        if rng.random() < 0.3:
            parties = ["server", *parties[1:]]
        parties = list(inside) if kind in ("cut off", "slow link") else parties
        where, epoch = rng.random(), int(rng.integers(1, last))
        moment = SUBMISSION if where < 0.2 else START if where < 0.5 else epoch
        within = LATEST if moment < 1 else SOON
        if set_up and (not faults or moment == START):
            moment, within = SETTING_UP, SET_UP_SECONDS
        at, seconds = rng.uniform(0, within), rng.uniform(0.5, LONGEST)
        faults.append(Fault(kind, tuple(parties), moment, round(at, 1), round(seconds, 1)))
    return faults
