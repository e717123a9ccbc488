"""Chaos on real processes: trainings on a fleet on NVIDIA FLARE, struck at random, and a soak of many epochs.

    python -m benchmarks chaos [--trainings 20] [--seed 0] [--first 0] [--minutes 60] [--soak EPOCHS] [--rejoin]

A server and five devices run as processes of this machine, with mutual TLS. Training number t of seed s draws its
scheme and one to three faults, each with a party, a moment and a duration, from the generator of (s, t): ``--seed s
--first t --trainings 1`` repeats it. What dies is started again, as a service manager would, and a lost job is
submitted again. A training that stops with a sentence is put right and must go on to the end. Each ends in one of:

    exact      with the model of virtual time, to the last bit
    partial    without devices that were lost, which the scheme allows (its epochs say how many replied)
    resumed    stopped in one sentence; the same command went on to the model of virtual time
    WRONG      anything else: another model, no end, no sentence, or nothing to go on from

With ``--rejoin`` a device is killed, its job's process alone, and the server, and what is measured is how long it takes
until the training goes on with it. Processes that outlive a training are counted. Clocks are set by a module that every
process imports first; full disks are a limit on the size of files (``RLIMIT_FSIZE``), so that every write fails.
Without FLARE nothing is done.
"""

import argparse
import collections
import contextlib
import os
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import codedfl
from benchmarks.lab import Lab, Training
from benchmarks.measure import possible
from benchmarks.networks import Forwarder
from codedfl.deploy.flare.names import need_flare
from codedfl.deploy.flare.processes import kits_of, status
from codedfl.errors import CodedflError
from codedfl.runs import load
from codedfl.scenario import Scenario

SCHEMES = ("sealed-coded", "sealed-coded", "sealed-coded", "conventional", "secagg", "sealed", "minibatch")
EPOCHS, SLOW = 16, 0.25
"""Epochs of a training, and seconds that every reply takes."""
LATEST, LONGEST = 10.0, 12.0
"""Seconds in which faults begin, and how long they last; a site is lost after 8 s of silence."""
LIMIT = 240.0
"""Seconds after which a training that has not ended is wrong."""
REST = 20.0
"""Seconds in which the processes of a job must have ended."""

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
    at: float
    seconds: float
    submitted: bool
    """Whether its time counts from the submission; else from the moment at which the server's process works."""

    def words(self, stage: str) -> str:
        """Return it as text, with what the training was doing."""
        after = "after submission" if self.submitted else "after the start"
        times = f"{self.at:.1f} s {after}, for {self.seconds:.1f} s"
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
    clock.write_text("3600" if fault.at * 10 % 2 < 1 else "-3600")
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


def drawn(rng: np.random.Generator, sites: Sequence[str], inside: Sequence[str]) -> tuple[str, list[Fault]]:
    """Draw a scheme and what happens."""
    scheme, faults = SCHEMES[rng.integers(len(SCHEMES))], []
    for _ in range(rng.integers(1, 4)):
        kind = list(FAULTS)[rng.integers(len(FAULTS))]
        many = 1 + int(rng.random() < 0.3)
        parties = [str(site) for site in rng.choice(sites, many, replace=False)]
        if rng.random() < 0.3:
            parties = ["server", *parties[1:]]
        parties = list(inside) if kind in ("cut off", "slow link") else parties
        at, seconds, submitted = rng.uniform(0, LATEST), rng.uniform(0.5, LONGEST), rng.random() < 0.25
        faults.append(Fault(kind, tuple(parties), round(at, 1), round(seconds, 1), bool(submitted)))
    return scheme, faults


def chosen(scheme: str, epochs: int = EPOCHS) -> Scenario:
    """The scenario of a training."""
    return Scenario.from_table(
        {
            "scheme": scheme,
            "data": {"source": "digits"},
            "features": {"kind": "none", "scale": "none", "intercept": False},
            "task": {"precision": "float64"},
            "fleet": {"devices": [{"count": 5, "mac_rate": 25e6}]},
            "training": {"epochs": epochs, "solver": "gradient-descent", "learning_rate": 1e-4},
            "schemes": {"sealed-coded": {"workers": 5, "threshold": 3}},
        }
    )


@dataclass
class Outcome:
    """What became of a training."""

    number: int
    scheme: str
    verdict: str
    faults: list[str]
    sentence: str
    jobs: int
    left: int
    seconds: float


def struck(lab: Lab, training: Training, faults: Sequence[Fault], over: threading.Event) -> list[str]:
    """Let the faults happen, each at its time; undo them in the end."""
    began, told = time.monotonic(), []
    with contextlib.ExitStack() as stack:
        ends: list[tuple[float, contextlib.ExitStack]] = []
        waiting, started = list(faults), None
        while (waiting or ends) and not over.is_set():
            now = time.monotonic() - began
            started = now if started is None and training.begun() else started
            since = {True: now, False: -1.0 if started is None else now - started}
            for fault in [each for each in waiting if each.at <= since[each.submitted]]:
                waiting.remove(fault)
                own = stack.enter_context(contextlib.ExitStack())
                told.append(fault.words(training.stage()))
                own.enter_context(FAULTS[fault.kind](lab, fault))
                ends.append((now + fault.seconds, own))
            for end, own in [one for one in ends if one[0] <= now]:
                own.close()
                ends.remove((end, own))
            time.sleep(0.05)
    return told + [fault.words("not any more") for fault in waiting]


def one(lab: Lab, seed: int, number: int) -> Outcome:
    """Do one training."""
    rng = np.random.default_rng([seed, number])
    scheme, faults = drawn(rng, lab.kits.sites, lab.inside)
    scenario, run, began = chosen(scheme), lab.new_run(), time.monotonic()
    lab.put_right()
    lab.tell({site: {"kind": "slow", "seconds": SLOW} for site in lab.kits.sites})
    training = lab.train(scenario, run, revive=True, tries=4, return_seconds=30.0)
    over, told = threading.Event(), []
    thread = threading.Thread(target=lambda: told.extend(struck(lab, training, faults, over)))
    thread.start()
    sentence = ""
    try:
        verdict, sentence = _ended(lab, scenario, run, training)
    finally:
        over.set()
        thread.join()
    jobs = training.jobs
    if verdict == "stopped":
        lab.put_right()
        again = lab.train(scenario, run, revive=True, tries=3, return_seconds=30.0)
        verdict, more = _ended(lab, scenario, run, again)
        sentence, jobs = f"{sentence} {more}".strip(), jobs + again.jobs
        verdict = "resumed" if verdict in ("exact", "partial") else "WRONG"
    return Outcome(number, scheme, verdict, told, sentence, jobs, _outliving(lab), time.monotonic() - began)


def _ended(lab: Lab, scenario: Scenario, run: Path, training: Training) -> tuple[str, str]:
    """Wait for the end of a training; return the verdict, and the sentence with which it stopped."""
    try:
        training.result(LIMIT)
    except CodedflError as error:
        return "stopped", str(error)
    except Exception as error:
        return "WRONG", f"{type(error).__name__}: {error}"
    if lab.is_exact(scenario, run):
        return "exact", ""
    replies = load(run).epochs["replies"].tolist()
    if scenario.scheme == "secagg" and min(replies) < len(lab.kits.sites):
        return "partial", f"{min(replies)} replies"
    return "WRONG", "another model than that of virtual time"


def _outliving(lab: Lab) -> int:
    """Return how many processes of jobs are left after a while."""
    until = time.monotonic() + REST
    while (left := sum(len(each.jobs) for each in status(kits_of(lab.kits)))) and time.monotonic() < until:
        time.sleep(0.5)
    return left


def campaign(lab: Lab, given: argparse.Namespace) -> dict[str, Any]:
    """Do trainings one after the other."""
    outcomes: list[Outcome] = []
    until = time.monotonic() + 60 * given.minutes
    for number in range(given.first, given.first + given.trainings):
        if time.monotonic() > until:
            break
        found = one(lab, given.seed, number)
        outcomes.append(found)
        shown = f"{found.verdict:<8} {found.jobs} jobs, {found.left} processes left, {found.seconds:4.0f} s"
        print(f"  {given.seed}/{number:<4} {found.scheme:<13} {shown}", flush=True)
        for line in [*found.faults, *([found.sentence] if found.sentence else [])]:
            print(f"           {line}", flush=True)
    verdicts = collections.Counter((each.scheme, each.verdict) for each in outcomes)
    kinds = collections.Counter(line.partition(" (")[0] for each in outcomes for line in each.faults)
    print(
        f"  {len(outcomes)} trainings, seed {given.seed}, {sum(each.left for each in outcomes)} processes left behind"
    )
    for (scheme, verdict), count in sorted(verdicts.items()):
        print(f"  {scheme:<14} {verdict:<8} {count}")
    print("  faults: " + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
    rows = {f"{given.seed}/{each.number}": vars(each) for each in outcomes}
    counts = {f"{scheme} {verdict}": count for (scheme, verdict), count in verdicts.items()}
    return {"trainings": rows, "verdicts": counts, "faults": dict(kinds)}


def soak(lab: Lab, epochs: int) -> dict[str, Any]:
    """Train for many epochs, and note the memory of every process."""
    import psutil

    scenario, run = chosen("sealed-coded", epochs), lab.new_run()
    lab.put_right()
    training, began = lab.train(scenario, run, revive=False, tries=1), time.monotonic()
    rows: list[dict[str, Any]] = []
    while not training.done():
        time.sleep(5.0)
        memory = {}
        for party in ("server", *lab.kits.sites):
            for place, pid in enumerate(lab.processes(party, parent=True)):
                with contextlib.suppress(psutil.Error):
                    memory[f"{party}{' job' if place else ''}"] = psutil.Process(pid).memory_info().rss >> 20
        rows.append({"seconds": time.monotonic() - began, "epoch": training.epoch(), "megabytes": memory})
        if len(rows) % 6 == 1:
            print(f"  epoch {rows[-1]['epoch']:>6}, {rows[-1]['seconds']:5.0f} s: {memory}", flush=True)
    summary = training.result()
    exact = lab.is_exact(scenario, run)
    print(f"  {summary['epochs']} epochs, {'exact' if exact else 'NOT EXACT'}", flush=True)
    return {"soak": rows, "epochs": summary["epochs"], "exact": exact}


REJOINS = (("killed", "device-1"), ("job process killed", "device-1"), ("killed", "server"))


def rejoin(lab: Lab) -> dict[str, Any]:
    """Measure how long it takes from a kill to the next epoch with everyone."""
    results: dict[str, Any] = {}
    for scheme in ("sealed-coded", "conventional"):
        for kind, party in REJOINS:
            scenario, run = chosen(scheme, 120), lab.new_run()
            lab.put_right()
            lab.tell({site: {"kind": "slow", "seconds": SLOW} for site in lab.kits.sites})
            training = lab.train(scenario, run, revive=True, return_seconds=60.0)
            training.until_epoch(5)
            began, fault = time.monotonic(), Fault(kind, (party,), 0.0, 0.0, submitted=False)
            with FAULTS[kind](lab, fault):
                pass
            if party == "server":
                training.until(lambda _, training=training: training.jobs == 2)
            else:
                training.until_lost([party])
            lost = time.monotonic() - began
            if party == "server":
                before = training.epoch()
                training.until(lambda board, before=before: board.get("epoch", 0) > before)
            else:
                training.until(lambda _, training=training: not training.lost())
                before = training.epoch()
                training.until(lambda board, before=before: board.get("epoch", 0) > before)
            back = time.monotonic() - began
            summary = training.result()
            exact, label = lab.is_exact(scenario, run), f"{scheme}: {party} {kind}"
            words = f"noticed after {lost:.1f} s, back in an epoch after {back:.1f} s, {training.jobs} jobs"
            print(f"  {label:<42} {words}, {'exact' if exact else 'NOT EXACT'}", flush=True)
            found = {"noticed": lost, "back": back, "jobs": training.jobs, "exact": exact}
            results[label] = found | {"lost": list(summary["deployment"]["lost"])}
    return results


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Do a campaign, or a soak."""
    ask = argparse.ArgumentParser(prog="python -m benchmarks chaos")
    ask.add_argument("--trainings", type=int, default=20)
    ask.add_argument("--seed", type=int, default=0)
    ask.add_argument("--first", type=int, default=0)
    ask.add_argument("--minutes", type=float, default=60.0)
    ask.add_argument("--soak", type=int, default=0)
    ask.add_argument("--rejoin", action="store_true")
    given = ask.parse_args(list(arguments))
    if not possible(need_flare):
        return {}
    with tempfile.TemporaryDirectory(prefix="codedfl-chaos-") as folder:
        module = Path(folder) / "first"
        module.mkdir()
        (module / "sitecustomize.py").write_text(CLOCK)
        source = str(Path(codedfl.__file__).parents[1])
        os.environ["PYTHONPATH"] = os.pathsep.join([str(module), source, os.environ.get("PYTHONPATH", "")])
        os.environ["CHAOS_CLOCK"] = str(module / "seconds")
        lab = Lab(Path(folder) / "lab", chosen("conventional"), Forwarder())
        with lab.running():
            found = soak(lab, given.soak) if given.soak else rejoin(lab) if given.rejoin else campaign(lab, given)
        left = sum(1 for each in status(kits_of(lab.kits)) for _ in (*each.jobs, *([each.pid] if each.pid else [])))
        print(f"  {left} processes left when the fleet was stopped", flush=True)
        return found | {"left": left}


if __name__ == "__main__":
    main(sys.argv[1:])
