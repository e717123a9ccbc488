"""What differential privacy costs owners of few rows: R² of students' ratings, hidden by record and by owner.

    python -m benchmarks.private_owners

InstEval has 1 to 92 ratings a student, and its other columns name 1,128 lecturers or 14 departments as owners. Ranges
and categories are those of its documentation (R package lme4), not of the data. An owner counts as at most as many rows
as the median owner has, which is taken as public. R² is that of the test rows of the preset (a fifth), over five seeds
of the noise.

The sums of noisy data are computed here without seals and masks, which do not change them, and solved as the server of
``one-shot`` does, who holds them, and as that of ``sealed-coded`` does, who does not. The run of ``sealed-coded`` among
all students is done in full as well, and that of ``one-shot`` among departments: their models must be these. Among
thousands of owners, ``one-shot`` and ``secagg`` are not run: masks of all pairs of 2,972 devices are 4.4 million.
"""

import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from codedfl.runs import execute
from codedfl.scenario import Scenario, load
from codedfl.schemes.private import noise_key, noisy_shards, release_of
from codedfl.task import Problem, with_owners
from codedfl.training import State
from codedfl.training.solving import create_solver

RANGES = {"studage": (2, 8), "lectage": (1, 6), "service": (0, 1), "y": (1, 5)}
EPSILONS, SEEDS = (0.5, 1.0, 3.0, 10.0), range(5)
SCHEMES = ("one-shot", "sealed-coded")
EQUAL = 1e-6
"""Largest difference of predictions of full runs, in ratings."""


def private(owner: str, **more: Any) -> Scenario:
    """Return the preset with ranges and noise."""
    columns = [{"name": name, "low": low, "high": high} for name, (low, high) in RANGES.items()]
    return with_owners(load("insteval").with_settings({"partition.column": owner})).with_settings(
        {"privacy.columns": columns, "privacy.epsilon": 1.0, "training.targets": [], "timing.draws": 2, **more}
    )


def models(scenario: Scenario, problem: Problem) -> dict[str, Any]:
    """Return the model of each scheme for the noise of a scenario."""
    m, solved = problem.samples, {}
    release = release_of(scenario, [shard.samples for shard in problem.shards], *problem.shape)
    assert release is not None
    shards = noisy_shards(problem.shards, release, noise_key(scenario.privacy))
    gram, moments = (np.sum([getattr(shard, name) for shard in shards], axis=0) / m for name in ("gram", "moments"))
    for scheme in SCHEMES:
        wanted = scenario.with_settings({"scheme": scheme})
        solver = create_solver(problem, wanted, State.fresh(problem), release)
        if solver.needs_sums:
            solver.solve(gram, moments)
            solved[scheme] = solver.model
        else:
            solved[scheme] = np.linalg.solve(gram + solver._conditions.ridge * np.eye(len(gram)), moments)
    return solved


def r2(problem: Problem, model: Any) -> float:
    """Return the R² of a model on the test rows."""
    return float(problem.score(model[None]).accuracy[0])


def full_run(scenario: Scenario, problem: Problem) -> float:
    """Run a scheme in full; return how far its predictions are from those of the model computed here."""
    with tempfile.TemporaryDirectory() as folder:
        trained = execute(scenario, Path(folder) / "run", problem=lambda: problem).model
    expected = models(scenario, problem)[scenario.scheme]
    assert problem.prepared is not None
    unit = float(problem.prepared.preparation.target_unit[0])
    difference = float(np.abs(problem.x_test @ (trained - expected)).max()) * unit
    if not difference < EQUAL:
        raise AssertionError(f"a run of {scenario.scheme} differs by {difference:g} ratings")
    return difference


def _print_table(rows: list[dict[str, Any]]) -> None:
    for line in (list(rows[0]), ["---"] * len(rows[0]), *([str(value) for value in row.values()] for row in rows)):
        print(f"| {' | '.join(line)} |")


def main() -> dict[str, Any]:
    """Print the table."""
    rows: list[dict[str, Any]] = []
    runs: dict[str, float] = {}
    for owner, what in (("s", "students"), ("d", "lecturers"), ("dept", "departments")):
        plain = with_owners(load("insteval").with_settings({"partition.column": owner, "scheme": "conventional"}))
        clear = Problem.build(plain)
        problem = Problem.build(private(owner))
        sizes = [shard.samples for shard in problem.shards]
        usual = int(median(sizes))
        base = {"owners": f"{len(sizes):,} {what}", "rows of an owner": f"{min(sizes):,} to {max(sizes):,}"}
        for unit in ("record", "device"):
            rule = {} if unit == "record" else {"privacy.unit": "device", "privacy.most_rows": usual}
            hidden = f"an owner, as {usual:,} ratings" if rule else "one rating"
            found = {scheme: {"scheme": scheme, **base, "hidden": hidden} for scheme in SCHEMES}
            for epsilon in EPSILONS:
                drawn = [
                    models(private(owner, **rule, **{"privacy.epsilon": epsilon, "privacy.seed": seed}), problem)
                    for seed in SEEDS
                ]
                for scheme in SCHEMES:
                    scores = [r2(problem, each[scheme]) for each in drawn]
                    found[scheme][f"epsilon {epsilon:g}"] = f"{np.mean(scores):.4f} ± {np.std(scores, ddof=1):.4f}"
            score = f"{r2(clear, clear.ridge_solution()):.4f}"
            rows += [{**found[scheme], "clear": score} for scheme in SCHEMES]
        scheme = "sealed-coded" if owner == "s" else "one-shot" if owner == "dept" else ""
        if scheme:
            runs[f"{scheme}, {what}"] = full_run(private(owner, **{"scheme": scheme, "privacy.seed": 0}), problem)
    _print_table(rows)
    for name, difference in runs.items():
        print(f"full run of {name}: predictions differ by {difference:.1e} ratings")
    return {"rows": rows, "runs": runs}


if __name__ == "__main__":
    main()
