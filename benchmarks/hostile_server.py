"""A deviating server on real processes: it tries what a review found, on sites that are not changed for it.

    python -m benchmarks.hostile_server

A server and five devices run as processes of this machine, with mutual TLS. Their owners have agreed to the terms of
some scenarios. One job goes through all attacks of ``codedfl.testing.hostile_attacks``, then trains under these
scenarios with the same processes. For every attack the table says who refused it in which words, whether these words
are in the site's own log too, and what was learned: the relative error of the Gram matrix or gradient that the server
has recovered. Without FLARE nothing is done.

The same seed of a pad in two sessions is not among the attacks: only a colluding recipient could subtract two parcels,
and that takes a changed site. The tests of pads have that case.
"""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import possible
from codedfl.deploy.flare.jobs import Admin, Job, run_job
from codedfl.deploy.flare.kits import Kits, write_site
from codedfl.deploy.flare.names import need_flare
from codedfl.deploy.flare.processes import kits_of, running
from codedfl.deploy.flare.sites import read_site
from codedfl.deploy.protocol.terms import terms_of
from codedfl.deploy.server.fleet import make_fleet
from codedfl.runs import execute
from codedfl.scenario import Scenario
from codedfl.task import Problem
from codedfl.testing.hostile_attacks import ATTACKS, LEAKS, Deviation

ENTRY = "codedfl.testing.hostile:serve"
DEVICES, EPOCHS = 5, 6
OWN: dict[str, dict[str, Any]] = {
    "one-shot": {},
    "secagg": {},
    "secagg-all": {"scheme": "secagg", "schemes.secagg.threshold": DEVICES},
    "secagg-sealed": {"scheme": "secagg", "schemes.secagg.inner": "sealed", "task.precision": "float32"},
    "sealed-coded": {"schemes.sealed-coded.workers": 4, "schemes.sealed-coded.threshold": 3},
    "chosen-ridge": {
        "scheme": "secagg",
        "task.ridge": [0.01, 0.1],
        "training.solver": "conjugate-gradients",
    },
}
HONEST = ("one-shot", "secagg", "secagg-all", "secagg-sealed", "sealed-coded")


def chosen(name: str) -> Scenario:
    """One of the scenarios that the owners have agreed to."""
    table = {
        "scheme": "conventional",
        "data": {"source": "digits"},
        "features": {"kind": "none"},
        "task": {"precision": "float64"},
        "fleet": {"devices": [{"count": DEVICES, "mac_rate": 25e6}]},
        "training": {"epochs": EPOCHS, "learning_rate": 0.05},
    }
    return Scenario.from_table(table).with_settings({"scheme": name, **OWN[name]})


def main() -> dict[str, Any]:
    """Attack, print the table, and check that honest trainings go on."""
    if not possible(need_flare):
        return {}
    scenarios = {name: chosen(name) for name in OWN}
    given = Problem.build(scenarios["secagg"])
    inputs, outputs = given.shape
    like = {"features": inputs, "inputs": inputs, "outputs": outputs, "kind": given.kind}
    like |= {"classes": [str(number) for number in range(outputs)], "rows": min(each.samples for each in given.shards)}
    with tempfile.TemporaryDirectory(prefix="codedfl-hostile-") as folder:
        root = Path(folder)
        kits = make_fleet(root / "kits", scenarios["secagg"])
        _agree(kits, scenarios)
        arguments = {
            "scenarios": {name: each.to_toml() for name, each in scenarios.items()},
            "attacks": [attack.name for attack in (*ATTACKS, *LEAKS)],
            "honest": list(HONEST),
            "like": like,
            "runs": str(root / "runs"),
        }
        with running(kits_of(kits)), Admin(kits) as admin:
            while not admin.sites() >= set(kits.sites):
                time.sleep(0.1)
            began = time.monotonic()
            found = run_job(admin, Job("attack", ENTRY, kits.sites, arguments), tries=1)
            seconds = time.monotonic() - began
        rows = [_row(attack, found["results"][attack.name], _logs(kits), given) for attack in (*ATTACKS, *LEAKS)]
        exact = {name: _is_exact(Path(run), scenarios[name], root) for name, run in found["runs"].items()}
    _report(rows, exact, seconds)
    return {"attacks": rows, "honest": exact, "seconds": seconds}


def _agree(kits: Kits, scenarios: Mapping[str, Scenario]) -> None:
    """Let all owners agree to these scenarios."""
    terms = [terms_of(each).digest for each in scenarios.values()]
    for site in kits.sites:
        table = read_site(kits.device(site))
        del table["folder"]
        write_site(kits.device(site), table | {"agreement": {"cohort": list(kits.sites), "terms": terms}})


def _logs(kits: Kits) -> dict[str, str]:
    """What each site has logged."""
    return {
        site: "\n".join(path.read_text() for path in sorted(kits.device(site).rglob("log.txt"))) for site in kits.sites
    }


def _row(attack: Deviation, result: Mapping[str, Any], logs: Mapping[str, str], given: Problem) -> dict[str, Any]:
    told = {site: reason.removesuffix("...") for site, reason in result["refused"].items()}
    logged = [_is_logged(site, reason, logs) for site, reason in told.items()]
    return {
        "attack": attack.name,
        "finding": attack.finding,
        "refused_by": sorted(told),
        "sentence": next(iter(told.values()), ""),
        "in_own_log": bool(logged) and all(logged),
        "learned": _learned(result["learned"], given),
        "refused": bool(told) and result["learned"] is None,
        "in_table": attack in LEAKS,
    }


def _is_logged(site: str, reason: str, logs: Mapping[str, str]) -> bool:
    """Whether the site itself has logged the sentence; a parcel is refused by its recipient, which logs it."""
    peer, parted, refusal = reason.removeprefix("it could not send to ").partition(": ")
    if reason.startswith("it could not send to ") and parted:
        site, reason = peer, refusal
    return reason in logs[site]


def _learned(learned: Mapping[str, Any] | None, given: Problem) -> str:
    """What was learned, with the relative error against the truth, which the server does not have."""
    if learned is None:
        return "nothing"
    what, shard = learned["what"], given.shards[learned["device"]]
    if learned["estimate"] is None:
        return str(what)
    estimate = np.array(learned["estimate"])
    truth = shard.x.sum(axis=0)[None] if what == "sums of columns" else shard.gram[:, : estimate.shape[1]]
    if learned["model"] is not None:
        truth = shard.gram @ np.array(learned["model"]) - shard.moments
    error = np.linalg.norm(estimate - truth) / np.linalg.norm(truth)
    return f"{what} of device {learned['device'] + 1} to {error:.1e}"


def _is_exact(run: Path, scenario: Scenario, root: Path) -> bool:
    """Whether an honest run has the model of virtual time, to the last bit."""
    virtual = execute(scenario, root / "virtual" / scenario.id()).path
    models = []
    for path in (run, virtual):
        with np.load(path / "model.npz") as arrays:
            models.append(arrays["theta"])
    return bool(np.array_equal(*models))


def _report(rows: list[dict[str, Any]], exact: Mapping[str, bool], seconds: float) -> None:
    for row in rows:
        who = f"{len(row['refused_by'])} of {DEVICES} sites" if row["refused"] else "NOBODY"
        logs = ", in both logs" if row["in_own_log"] else ", NOT IN ITS OWN LOG" if row["refused"] else ""
        table = "; the table says so" if row["in_table"] else ""
        print(f"  finding {row['finding']}: {row['attack']}")
        print(f"      refused by {who}{logs}; learned: {row['learned']}{table}")
        if row["sentence"]:
            print(f"      {row['sentence']}", flush=True)
    for name, right in exact.items():
        print(f"  honest training afterwards, {name}: {'model of virtual time' if right else 'ANOTHER MODEL'}")
    tried = [row for row in rows if not row["in_table"]]
    good = sum(row["refused"] and row["in_own_log"] for row in tried)
    leaked = "nothing learned" if good == len(tried) else "SOMETHING WAS LEARNED"
    print(f"  {seconds:.0f} s; {good} of {len(tried)} refused, {leaked} beyond the table")


if __name__ == "__main__":
    main()
