"""Chaos on real processes: trainings on a fleet on NVIDIA FLARE, struck at random, and a soak of many epochs.

    python -m benchmarks chaos [--trainings 20] [--seed 0] [--first 0] [--minutes 60] [--set-up] [--small]
                               [--soak EPOCHS] [--rejoin]

A server and five devices run as processes of this machine, with mutual TLS. Training number t of seed s draws its
scheme and one to three faults, each with a party, a moment (half of them in an epoch) and a duration, from the
generator of (s, t): ``--seed s --first t --trainings 1`` repeats it. What dies is started again, as a service manager
would, and a lost job is submitted again. A training that stops with a sentence is put right and must go on to the end.
With ``--set-up`` the schemes are those that have one, its parcels take a tenth of a second each, and the first fault of
every training happens meanwhile. Each ends in one of:

    exact      with the model of virtual time, to the last bit
    partial    without devices that were lost, which the scheme allows (its epochs say how many replied)
    resumed    stopped in one sentence; the same command went on to the model of virtual time
    WRONG      anything else: another model, no end, no sentence, or nothing to go on from

With ``--soak`` one training has so many epochs, and what is measured is the memory of every process, and by how much it
grows per 1,000 epochs after the first quarter of them; memory is flat where this is about 0.

With ``--rejoin`` a device is killed, its job's process alone, and the server, and what is measured is how long it takes
until the training goes on with it. Processes that outlive a training are counted. Clocks are set by a module that every
process imports first, which with ``--small`` also hides the libraries of studies from sites, so that they start in less
time; full disks are a limit on the size of files (``RLIMIT_FSIZE``), so that every write fails.
Without FLARE nothing is done.
"""

import argparse
import collections
import contextlib
import os
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import codedfl
from benchmarks.chaos_faults import CLOCK, FAULTS, SETTING_UP, START, SUBMISSION, Fault, drawn
from benchmarks.lab import Lab, Training
from benchmarks.measure import possible
from benchmarks.networks import Forwarder
from benchmarks.small_sites import BLOCKER
from codedfl.codes.modular import COMPILED
from codedfl.deploy.flare.names import need_flare
from codedfl.deploy.flare.processes import kits_of, status
from codedfl.errors import CodedflError
from codedfl.runs import load
from codedfl.scenario import Scenario

SCHEMES = ("sealed-coded", "sealed-coded", "sealed-coded", "conventional", "secagg", "sealed", "minibatch")
WITH_SET_UP = ("sealed-coded", "sealed-coded", "sealed-coded", "sealed-coded", "coded-padded")
EPOCHS, SLOW, SLOW_PARCEL = 16, 0.25, 0.1
"""Epochs of a training, and seconds that every reply takes, and every parcel of a set-up that faults are to hit."""
LIMIT = 400.0
"""Seconds after which a training that has not ended is wrong."""
REST = 20.0
"""Seconds in which the processes of a job must have ended."""

SMALL = f"import sys\nif any('.app.client.' in word for word in sys.orig_argv):\n{textwrap.indent(BLOCKER, '    ')}"
"""Makes processes of devices those of small sites."""

TABLE, ROWS, COLUMNS = "table.csv", 300, 24
"""The table that the devices share: small, so that the steps of the protocol take most of a training."""


def written(path: Path) -> None:
    """Write the table."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, COLUMNS))
    rows = [",".join([*(f"x{place}" for place in range(COLUMNS)), "y"])]
    rows += [",".join([*(f"{value:.6f}" for value in row), "ab"[int(row[:2].sum() > 0)]]) for row in x]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def _table(lab: Lab) -> Path:
    return lab.folder.parent / TABLE


def chosen(scheme: str, table: Path, epochs: int = EPOCHS) -> Scenario:
    """The scenario of a training."""
    return Scenario.from_table(
        {
            "scheme": scheme,
            "data": {"source": str(table), "target": "y", "kind": "classification"},
            "features": {"kind": "none", "scale": "none", "intercept": False},
            "task": {"precision": "float64"},
            "fleet": {"devices": [{"count": 5, "mac_rate": 25e6}]},
            "training": {"epochs": epochs, "solver": "gradient-descent", "learning_rate": 0.5},
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
    told, since = [], {SUBMISSION: time.monotonic()}  # when each moment was first seen
    with contextlib.ExitStack() as stack:
        ends: list[tuple[float, contextlib.ExitStack]] = []
        waiting = list(faults)
        while (waiting or ends) and not over.is_set():
            now, epoch = time.monotonic(), training.epoch() if training.begun() else SUBMISSION
            reached = {SETTING_UP} if training.set_up_begun() else set()
            reached |= {each.moment for each in waiting if START <= each.moment <= epoch}
            for moment in reached:
                since.setdefault(moment, now)
            for fault in [each for each in waiting if since.get(each.moment, now) + each.at < now]:
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


def one(lab: Lab, seed: int, number: int, *, set_up: bool = False) -> Outcome:
    """Do one training."""
    rng, schemes = np.random.default_rng([seed, number]), WITH_SET_UP if set_up else SCHEMES
    scheme = schemes[rng.integers(len(schemes))]
    faults = drawn(rng, lab.kits.sites, lab.inside, EPOCHS, set_up=set_up)
    scenario, run, began = chosen(scheme, _table(lab)), lab.new_run(), time.monotonic()
    lab.put_right()
    slow = {"kind": "slow", "seconds": SLOW} | ({"parcel_seconds": SLOW_PARCEL} if set_up else {})
    lab.tell(dict.fromkeys(lab.kits.sites, slow))
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
        found = one(lab, given.seed, number, set_up=given.set_up)
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
    scenario, run = chosen("sealed-coded", _table(lab), epochs), lab.new_run()
    lab.put_right()
    training, began = lab.train(scenario, run, revive=False, tries=1), time.monotonic()
    rows: list[dict[str, Any]] = []
    try:
        while not training.done():
            time.sleep(5.0)
            row = {"epoch": training.epoch(), "seconds": time.monotonic() - began, "megabytes": memory(lab)}
            rows.append(row)
            if len(rows) % 6 == 1:
                print(f"  epoch {row['epoch']:>6}, {row['seconds']:5.0f} s: {row['megabytes']}", flush=True)
    finally:  # also if it is ended before
        grown = growth(rows)
        for process, slope in grown.items():
            print(f"  {process:<13} {slope:+6.2f} MB per 1,000 epochs", flush=True)
    summary = training.result()
    exact = lab.is_exact(scenario, run)
    print(f"  {summary['epochs']} epochs, {'exact' if exact else 'NOT EXACT'}", flush=True)
    return {"soak": rows, "growth": grown, "epochs": summary["epochs"], "exact": exact}


def memory(lab: Lab) -> dict[str, float]:
    """Return the resident megabytes of every process."""
    import psutil

    held = {}
    for party in ("server", *lab.kits.sites):
        for place, pid in enumerate(lab.processes(party, parent=True)):
            with contextlib.suppress(psutil.Error):
                held[f"{party}{' job' if place else ''}"] = round(psutil.Process(pid).memory_info().rss / 1e6, 1)
    return held


def growth(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the megabytes that every process takes for 1,000 epochs more: a line through all but the first quarter."""
    last = max((row["epoch"] for row in rows), default=0)
    seen = [row for row in rows if 4 * row["epoch"] >= last > 0]
    slopes = {}
    for process in sorted({name for row in seen for name in row["megabytes"]}):
        known = [(row["epoch"] / 1000, row["megabytes"][process]) for row in seen if process in row["megabytes"]]
        if len({epoch for epoch, _ in known}) > 1:
            slopes[process] = float(np.polyfit(*zip(*known, strict=True), 1)[0])
    return slopes


REJOINS = (("killed", "device-1"), ("job process killed", "device-1"), ("killed", "server"))


def rejoin(lab: Lab) -> dict[str, Any]:
    """Measure how long it takes from a kill to the next epoch with everyone."""
    results: dict[str, Any] = {}
    for scheme in ("sealed-coded", "conventional"):
        for kind, party in REJOINS:
            scenario, run = chosen(scheme, _table(lab), 120), lab.new_run()
            lab.put_right()
            lab.tell({site: {"kind": "slow", "seconds": SLOW} for site in lab.kits.sites})
            training = lab.train(scenario, run, revive=True, return_seconds=60.0)
            training.until_epoch(5)
            began, fault = time.monotonic(), Fault(kind, (party,), START, 0.0, 0.0)
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
    ask.add_argument("--set-up", action="store_true")
    ask.add_argument("--small", action="store_true")
    ask.add_argument("--soak", type=int, default=0)
    ask.add_argument("--rejoin", action="store_true")
    given = ask.parse_args(list(arguments))
    if not possible(need_flare):
        return {}
    with tempfile.TemporaryDirectory(prefix="codedfl-chaos-") as folder:
        module = Path(folder) / "first"
        module.mkdir()
        (module / "sitecustomize.py").write_text(CLOCK + (SMALL if given.small else ""))
        source = str(Path(codedfl.__file__).parents[1])
        os.environ["PYTHONPATH"] = os.pathsep.join([str(module), source, os.environ.get("PYTHONPATH", "")])
        os.environ["CHAOS_CLOCK"] = str(module / "seconds")
        os.environ.setdefault(COMPILED, "0")  # compiling takes longer than these trainings
        table = Path(folder) / TABLE
        written(table)
        lab = Lab(Path(folder) / "lab", chosen("conventional", table), Forwarder())
        with lab.running():
            found = soak(lab, given.soak) if given.soak else rejoin(lab) if given.rejoin else campaign(lab, given)
        left = sum(1 for each in status(kits_of(lab.kits)) for _ in (*each.jobs, *([each.pid] if each.pid else [])))
        print(f"  {left} processes left when the fleet was stopped", flush=True)
        return found | {"left": left}


if __name__ == "__main__":
    main(sys.argv[1:])
