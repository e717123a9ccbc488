"""The sealed schemes on the paper's experiment, under the same delays and links as the paper's scheme.

Conjugate gradients are trained for real for every feature seed. With gradient descent the sealed schemes learn the
model of the paper's scheme up to rounding, so their times are put on its accuracy curve; costs come from the arrays of
a real set-up and first epochs. ``python -m benchmarks sealed_schemes`` trains all of them for all seeds.
"""

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from codedfl import schemes
from codedfl.runs import Run
from codedfl.scenario import Scenario, load
from codedfl.studies.plan import Costs, predict, probe
from codedfl.studies.reproduce import claims
from codedfl.task import Problem
from codedfl.training.timing import Band, band, first_epoch

Times = Float[np.ndarray, "draws epochs"]


@dataclass(frozen=True)
class SealedCase:
    """One scheme and solver: the name of its claim, its name in figures, its scenario, and whether it is trained."""

    claim: str
    label: str
    scenario: Scenario
    trained: bool


def sealed_cases(small: Scenario | None = None) -> tuple[SealedCase, ...]:
    """Return what is measured: at the paper's size, or on a small scenario."""
    cg = {"training.solver": "conjugate-gradients"}
    if small is None:
        sealed, coded = load("sealed"), load("sealed-coded")
    else:
        sealed = small.with_settings({"scheme": "sealed", "schemes.sealed.delta": 0.025})
        coded = small.with_settings({"scheme": "sealed-coded"})
    return (
        SealedCase("speedup-sealed", "sealed", sealed, trained=False),
        SealedCase("speedup-sealed-coded", "sealed-coded", coded, trained=False),
        SealedCase("speedup-sealed-coded-cg", "sealed-coded, CG", coded.with_settings(cg), trained=True),
    )


KnownCosts = dict[tuple[str, Hashable], Costs]
"""By scheme, and what it chooses by the delays of the links."""


def sealed_times(
    cases: Sequence[SealedCase], problem: Problem, known: KnownCosts, *, epochs: int, draws: int, channel: str
) -> dict[str, Times]:
    """Return when epochs end, by scheme; solvers do not matter, as they differ only in the model they send."""
    links = {"links.d2d_channel": channel}
    chosen = {case.scenario.scheme: case.scenario.with_settings(links) for case in reversed(cases)}
    found = {}
    for name, scenario in chosen.items():
        key = name, schemes.create(scenario, problem).chosen_by_delays
        if key not in known:
            known[key] = probe(scenario, problem)
        found[name] = predict(known[key], scenario, epochs=epochs, draws=draws)
    return found


def sealed_claims(
    cases: Sequence[SealedCase],
    runs: Mapping[str, Sequence[Run]],
    times: Mapping[str, Times],
    curve: str,
    paper: Band | None,
    links: str,
) -> tuple[list[claims.Claim], dict[str, list[Run]]]:
    """Return the speed-ups on ``links``, and runs for the figure; ``curve`` labels the runs by gradient descent."""
    found = []
    for case in cases:
        own, ends = runs[case.label if case.trained else curve], times[case.scenario.scheme]
        how = "trained for every seed" if case.trained else "timed on the accuracy curve of the paper's scheme"
        found.append(claims.not_in_paper(case.claim, speedup(runs["minibatch"], own, ends), paper, how, links))
    return found, sealed_figure(cases, runs, times, curve)


def sealed_figure(
    cases: Sequence[SealedCase], runs: Mapping[str, Sequence[Run]], times: Mapping[str, Times], curve: str
) -> dict[str, list[Run]]:
    """Return runs for the figure, by label: trained ones and those of ``curve``, with the times of sealed schemes."""
    figure = {}
    for case in cases:
        own, ends = runs[case.label if case.trained else curve], times[case.scenario.scheme]
        figure[case.label] = [dataclasses.replace(run, timings=ends[:, : run.summary["epochs"]]) for run in own]
    return figure


def speedup(benchmark: Sequence[Run], own: Sequence[Run], times: Times) -> Band | None:
    """Return the ratio of mean times to the last target, and the range of the ratio in 95% of seeds and draws."""
    target = benchmark[0].scenario.training.targets[-1]
    ratios, base_times, own_times = [], [], []
    for base, run in zip(benchmark, own, strict=True):
        base_epoch, epoch = (first_epoch(entry.epochs["accuracy"], target) for entry in (base, run))
        if base_epoch is None or epoch is None:
            return None
        base_times.append(base.timings[: len(times), base_epoch - 1])
        own_times.append(times[:, epoch - 1])
        ratios.append(base_times[-1] / own_times[-1])
    spread = band(np.concatenate(ratios).astype(np.float64))
    mean = np.mean(base_times, dtype=np.float64) / np.mean(own_times, dtype=np.float64)
    return Band(float(mean), spread.low, spread.high)
