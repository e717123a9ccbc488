"""Faults on real processes: what a fleet on NVIDIA FLARE does when devices or the server are struck, row by row.

    python -m benchmarks.faults

A server and five devices run as processes of this machine, with mutual TLS. In each row something happens in the
middle of a training: where sites can be held back, all are, until it has happened. ``sealed-coded`` has five workers
of which any three are enough, so two are struck at once; of the others one is. Printed is what became of the run, and
whether its model is that of virtual time to the last bit, in the end; where devices add noise, whether every one has
released its sums once. Where a run stops, what was struck is put right and the same run goes on from its checkpoint.
The last rows are about who takes part (``benchmarks.cohorts``). Without FLARE nothing is done.
"""

import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cohorts import ROWS as COHORT_ROWS
from benchmarks.cohorts import Cohort
from benchmarks.lab import HELD, Lab, Training
from benchmarks.measure import possible
from codedfl.deploy.flare.names import need_flare
from codedfl.errors import LostDevicesError
from codedfl.runs import load
from codedfl.scenario import Scenario

PRIVATE = "sealed-coded, with noise"

EPOCHS, AT = 14, 5
"""How many epochs, and in which of them something happens."""

SHORT = 3.0
"""Seconds of a pause that is short."""

Strike = Callable[[Lab, Sequence[str], Training], None]


@dataclass(frozen=True)
class Fault:
    """What happens, to the devices that are struck or to the server."""

    name: str
    strike: Strike | None = None
    kind: str = ""
    """What sites do of their own accord, instead of being struck."""
    loses: bool = True
    """Whether the devices are lost by it, or refused."""
    server: bool = False
    inside: bool = False
    """Whether those with a network of their own are struck."""
    revive: bool = False
    """Whether what has died is started again meanwhile."""
    alone: bool = False
    """Whether a single device is struck, where it would be two."""


def killed(lab: Lab, sites: Sequence[str], _: Training) -> None:
    """Kill all processes."""
    lab.signal(signal.SIGKILL, sites, parent=True)


def killed_both(lab: Lab, sites: Sequence[str], training: Training) -> None:
    """Kill all processes of a device as well."""
    killed(lab, [*sites, "device-1"], training)


def killed_at_work(lab: Lab, sites: Sequence[str], _: Training) -> None:
    """Kill the processes that run for the job."""
    lab.signal(signal.SIGKILL, sites, parent=False)


def killed_above(lab: Lab, sites: Sequence[str], _: Training) -> None:
    """Kill the processes that do not run for the job."""
    lab.signal(signal.SIGKILL, sites, jobs=False)


def paused(lab: Lab, sites: Sequence[str], _: Training) -> None:
    """Stop all processes."""
    lab.signal(signal.SIGSTOP, sites, parent=True)


def paused_shortly(lab: Lab, sites: Sequence[str], _: Training) -> None:
    """Stop all processes, and let them go on."""
    lab.signal(signal.SIGSTOP, sites, parent=True)
    time.sleep(SHORT)
    lab.signal(signal.SIGCONT, sites, parent=True)


def cut_off(lab: Lab, sites: Sequence[str], _: Training) -> None:
    """Cut the network."""
    lab.cut()


FAULTS = (
    Fault("device killed", killed),
    Fault("job process of a device killed", killed_at_work),
    Fault("all but the job process of a device killed", killed_above, loses=False),
    Fault("device paused for good", paused),
    Fault(f"device paused for {SHORT:g} s", paused_shortly, loses=False),
    Fault("device cut off", cut_off, inside=True),
    Fault("device slow", kind="slow", loses=False),
    Fault("device replies garbage", kind="garbage"),
    Fault("device replies NaN", kind="nan"),
    Fault("device replies twice", kind="twice", loses=False),
    Fault("device replies to an old epoch", kind="old"),
    Fault("server killed", killed, server=True, loses=False),
    Fault("job process of the server killed", killed_at_work, server=True, loses=False),
    Fault("all but the job process of the server killed", killed_above, server=True, loses=False),
)

ROWS = [
    *((fault, scheme) for scheme in ("sealed-coded", "conventional") for fault in FAULTS),
    *((fault, "sealed") for fault in FAULTS if fault.name in ("device killed", "server killed")),
    (Fault("device killed, and started again", killed, revive=True), "conventional"),
    (Fault("device lies in every reply", kind="lie", alone=True), "sealed-coded"),
    (Fault("device killed", killed), PRIVATE),
    (Fault("server killed", killed, server=True, loses=False), PRIVATE),
    (Fault("server and device killed", killed_both, server=True, loses=False), PRIVATE),
]


def chosen(scheme: str) -> Scenario:
    """The scenario of a row."""
    noise = {"privacy": {"epsilon": 2.0}} if scheme == PRIVATE else {}
    as_they_are = {"scale": "none", "intercept": False} if noise else {}
    return Scenario.from_table(
        {
            **noise,
            "scheme": scheme.partition(",")[0],
            "data": {"source": "digits"},
            "features": {"kind": "none", **as_they_are},
            "task": {"precision": "float64"},
            "fleet": {"devices": [{"count": 5, "mac_rate": 25e6}]},
            "training": {"epochs": EPOCHS, "learning_rate": 0.05},
            "schemes": {"sealed-coded": {"workers": 5, "threshold": 3}},
        }
    )


def main() -> dict[str, Any]:
    """Go through all rows on one fleet."""
    if not possible(need_flare):
        return {}
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="codedfl-faults-") as folder:
        lab = Lab(Path(folder) / "lab", chosen("conventional"))
        print(f"  5 devices; the network of two of them: {lab.kind_of_network}")
        with lab.running():
            for fault, scheme in ROWS:
                began = time.monotonic()
                happened, exact = row(lab, fault, chosen(scheme))
                results |= told(f"{scheme}: {fault.name}", happened, exact, time.monotonic() - began)
        results |= changes_of_cohort(Path(folder))
    right = sum(one["exact"] for one in results.values())
    print(f"  {right} of {len(results)} rows end with the model of virtual time, or with one release")
    return results


def told(label: str, happened: Sequence[str], exact: bool, seconds: float) -> dict[str, Any]:
    """Print a row, and return it."""
    print(f"  {label:<62} {'exact' if exact else 'NOT EXACT':<10} {seconds:5.0f} s", flush=True)
    for line in happened:
        print(f"      {line}", flush=True)
    return {label: {"happened": list(happened), "exact": exact, "seconds": seconds}}


def changes_of_cohort(folder: Path) -> dict[str, Any]:
    """Go through the rows about who takes part, on a fleet of their own."""
    few = {"schemes.sealed-coded.workers": 3, "schemes.sealed-coded.threshold": 2}
    cohort, results = Cohort(folder / "cohort", chosen("sealed-coded").with_devices(3).with_settings(few)), {}
    with cohort.running():
        for name, change in COHORT_ROWS.items():
            began, happened = time.monotonic(), change(cohort)
            run = cohort.train()
            happened += [f"then {', '.join(cohort.kits.sites)}: {_in_words(load(run).summary, 1)}"]
            results |= told(f"sealed-coded: {name}", happened, cohort.is_exact(run), time.monotonic() - began)
    return results


def row(lab: Lab, fault: Fault, scenario: Scenario) -> tuple[list[str], bool]:
    """Do one row; return what happened, and whether the model is the right one."""
    lab.put_right()
    coded = scenario.scheme == "sealed-coded"
    struck = list(lab.inside) if fault.inside else ["device-1", "device-2"]
    struck = ["server"] if fault.server else struck if coded and not fault.alone else struck[:1]
    survives = coded or not fault.loses
    run, happened = lab.new_run(), []
    if fault.kind:
        lab.tell({site: {"kind": fault.kind, "epoch": AT, "seconds": 0.5} for site in struck})
    else:
        lab.tell(dict.fromkeys(lab.kits.sites, HELD))
        lab.go(AT - 1)
    again = fault.server or fault.revive
    training = lab.train(scenario, run, revive=again, tries=3 if again else 1)
    if fault.strike is not None:
        training.until_epoch(AT - 1)
        fault.strike(lab, struck, training)
        if fault.loses and coded:
            training.until_lost(struck)
        lab.go()
    try:
        happened.append(_in_words(training.result(), training.jobs))
    except LostDevicesError as error:
        happened.append(f"stops: {error}")
        if survives:
            return happened, False
        lab.put_right()
        training = lab.train(scenario, run, revive=False, tries=1)
        happened.append("put right and begun again, it " + _in_words(training.result(), training.jobs))
    if fault.kind == "twice":
        happened.append(f"{lab.second_answers(struck)} second answers refused before they reached the run, none taken")
    if scenario.private:
        name = load(run).summary["deployment"]["run"]
        counts = [runs.count(name) for runs in lab.ledgers().values()]
        happened.append(f"entries of the run in the ledgers: {', '.join(map(str, counts))}")
        return happened, counts == [1] * len(counts)
    return happened, lab.is_exact(scenario, run)


def _in_words(summary: dict[str, Any], jobs: int) -> str:
    facts = summary["deployment"]
    lost = [f"{site} ({reason})" for site, reason in facts["lost"].items()]
    words = f"ends after epoch {summary['epochs']}"
    words += f" without {', '.join(lost)}" if lost else ", nobody lost"
    words += f", {facts['refused']} answers refused" if facts["refused"] else ""
    liars = [facts["sites"][one["device"]] for one in summary.get("liars") or ()]
    words += f", {' and '.join(liars)} named as liar, {summary['spoilt_epochs']} epochs computed again" if liars else ""
    return words + (f", in job {jobs}" if jobs > 1 else "")


if __name__ == "__main__":
    main()
