"""What each scheme would take on a fleet, before any training: time with 95% bands, bits, what leaks, and a choice.

Costs of an epoch follow from shapes alone: d, c, and how many data points each device has. So every scheme is run for
real for a few epochs, through the one training loop, on *hollow* data: shards of the right shapes without contents.
Its messages and products have their real sizes, so costs equal those of a training. How many epochs a target takes does
not follow from shapes: it is given, taken from finished runs, or assumed from what was measured on MNIST.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from codedfl import schemes
from codedfl.errors import ScenarioError, UsageError
from codedfl.network import DelayModel, Draws, RandomBook
from codedfl.progress import Progress, silent
from codedfl.runs.markup import seconds_and_band, seconds_text, table_html
from codedfl.runs.sums import leakage_table
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES, Scheme
from codedfl.schemes.private import privacy_entries
from codedfl.schemes.registry import refuse_unknown
from codedfl.schemes.secrecy import BROKEN, ENCRYPTED, SUMS
from codedfl.security.verdicts import condition, verdict_table
from codedfl.studies.epochs_to_target import ASSUMED, Epochs, EpochsToTarget
from codedfl.studies.plan.costs import CostCounter, Costs, add_epoch, default_draws, spent_by_device
from codedfl.studies.plan.shapes import Shapes
from codedfl.task import Problem
from codedfl.training import History
from codedfl.training.costs import LINKS, Spent, add_transfers, mean_and_largest, nothing
from codedfl.training.timing import Band, ReplayedEpoch, Variant, band, replay

PRIVACY = {
    "encrypted": ("whose parcels are proven to hide data", ENCRYPTED),
    "sums": ("whose server sees sums only", (SUMS,)),
    "any": ("that are not broken, in clear or not", None),
}
"""What may be recommended, in words, and the verdicts that it allows; None: all but broken ones."""


@dataclass(frozen=True)
class Prediction:
    """What a scheme takes with one solver."""

    solver: str
    epochs: Epochs
    time: Band
    bits: Mapping[str, Mapping[str, float]]
    """By link, the mean and the largest of all devices."""
    bits_per_device: float
    """What a device sends on average, to the server and to others."""

    def to_table(self) -> dict[str, Any]:
        """Return plain values."""
        time = {"seconds": self.time.mean, "low": self.time.low, "high": self.time.high}
        epochs = {"epochs": self.epochs.count, "epochs_from": self.epochs.source}
        bits = {"bits_per_device": self.bits_per_device, "bits": {link: dict(v) for link, v in self.bits.items()}}
        return {"solver": self.solver, **time, **epochs, **bits}


@dataclass(frozen=True)
class Offer:
    """What a scheme takes, by solver, and what it leaks; ``refused`` says why it cannot be used."""

    scheme: Scheme[Any]
    predictions: tuple[Prediction, ...] = ()
    survives_losses: int | None = None
    leakage: Mapping[str, str] | None = None
    refused: str | None = None

    @property
    def best(self) -> Prediction | None:
        """The quickest."""
        return min(self.predictions, key=lambda prediction: prediction.time.mean, default=None)

    def in_short(self) -> tuple[str, str]:
        """Return the quickest solver and its time with its band, or why there is none."""
        if self.best is None:
            return "-", f"refused: {self.refused}"
        time = self.best.time
        return self.best.solver, seconds_and_band(time.mean, [time.low, time.high])

    def to_table(self) -> dict[str, Any]:
        """Return plain values: those of the quickest solver, then all."""
        empty = dict.fromkeys(("solver", "seconds", "low", "high", "epochs", "epochs_from", "bits_per_device", "bits"))
        return {
            "scheme": self.scheme.name,
            **(empty if self.best is None else self.best.to_table()),
            "solvers": [prediction.to_table() for prediction in self.predictions],
            "verdict": self.scheme.verdict,
            "secrecy": [cell.to_table() for cell in verdict_table(self.scheme)],
            "survives_losses": self.survives_losses,
            "leakage": self.leakage,
            "refused": self.refused,
            **privacy_entries(self.scheme.public.release),
        }


@dataclass(frozen=True, repr=False)
class Plan:
    """All offers, quickest first, and the recommended one."""

    shapes: Shapes
    target: float | None
    draws: int
    privacy: str
    offers: tuple[Offer, ...]

    @property
    def recommended(self) -> Offer | None:
        """The quickest that gives the privacy asked for; never one whose cipher is broken."""
        usable = [offer for offer in self.offers if offer.predictions and offer.scheme.verdict != BROKEN]
        _, allowed = PRIVACY[self.privacy]
        return next((offer for offer in usable if allowed is None or offer.scheme.verdict in allowed), None)

    @property
    def reason(self) -> str:
        """Why, in one sentence."""
        asked, _ = PRIVACY[self.privacy]
        if self.recommended is None:
            return f"No scheme {asked} fits this fleet and data."
        scheme = self.recommended.scheme
        return f"It takes the least predicted time of the schemes {asked}; allow it if {condition(scheme)}."

    def __repr__(self) -> str:
        offer = self.recommended
        if offer is None or offer.best is None:
            return f"<Plan of {len(self.offers)} schemes: none is recommended>"
        quickest = f"{offer.scheme.name} with {offer.best.solver} takes {seconds_text(offer.best.time.mean)}"
        return f"<Plan of {len(self.offers)} schemes: {quickest}>"

    def _repr_html_(self) -> str:
        rows = [[offer.scheme.name, *offer.in_short(), offer.scheme.verdict] for offer in self.offers]
        return table_html(["scheme", "solver", "time", "secrecy"], rows)

    def to_table(self) -> dict[str, Any]:
        """Return plain values."""
        offer = self.recommended
        return {
            "recommended": None if offer is None else offer.scheme.name,
            "solver": None if offer is None or offer.best is None else offer.best.solver,
            "reason": self.reason,
            "privacy": self.privacy,
            "target": self.target,
            "draws": self.draws,
            "devices": len(self.shapes.samples),
            "samples": sum(self.shapes.samples),
            "features": self.shapes.features,
            "outputs": self.shapes.outputs,
            "schemes": [offer.to_table() for offer in self.offers],
        }


def plan(
    scenario: Scenario,
    shapes: Shapes,
    *,
    names: Sequence[str] = (),
    epochs: EpochsToTarget | None = None,
    draws: int | None = None,
    privacy: str = "encrypted",
    progress: Progress = silent,
    counter: CostCounter | None = None,
) -> Plan:
    """Predict the named schemes (default: all) on a scenario's fleet and links, and recommend one.

    ``counter`` may know costs from before. ``draws`` are 200 if not given, fewer for more than 250 devices.
    """
    draws = default_draws(scenario.fleet.size) if draws is None else draws
    refuse_unknown(names)
    if scenario.training.start is not None:
        raise UsageError(
            f"training.start = '{scenario.training.start}' changes how many epochs a target takes, which plan cannot "
            "know; leave it out"
        )
    if privacy not in PRIVACY:
        raise UsageError(f"--privacy '{privacy}' must be one of {', '.join(PRIVACY)}")
    wanted = list(dict.fromkeys(names or SCHEMES))
    counts, source = epochs or EpochsToTarget(), counter or CostCounter()
    problem = source.problem(scenario, shapes)
    found: list[_Candidate | Offer] = []
    for done, name in enumerate(wanted):
        progress("predicting", done, len(wanted))
        found.append(_candidate(scenario.with_settings({"scheme": name}), problem, counts, source))
    offers = [each for each in found if isinstance(each, Offer)]
    offers += _offers([each for each in found if isinstance(each, _Candidate)], draws, source.book)
    progress("predicting", len(wanted), len(wanted))
    # those of equal time in the order of their names in the registry
    offers.sort(key=lambda offer: (_time_of(offer), wanted.index(offer.scheme.name)))
    target = max(scenario.training.targets, default=None)
    return Plan(shapes, target, draws, privacy, tuple(offers))


def _time_of(offer: Offer) -> float:
    return math.inf if offer.best is None else offer.best.time.mean


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A scheme with its costs and how many epochs it is timed for, by solver."""

    scenario: Scenario
    costs: Costs
    epochs: Mapping[str, Epochs]

    @property
    def most(self) -> int:
        """The largest number of epochs."""
        return max(found.count for found in self.epochs.values())


def _candidate(
    scenario: Scenario, problem: Problem, known: EpochsToTarget, counter: CostCounter
) -> "_Candidate | Offer":
    try:
        costs = counter.count(scenario, problem)
    except ScenarioError as error:
        return Offer(schemes.nominal(scenario), refused=str(error))
    served = [name for name in ASSUMED if schemes.serves(scenario, name)]
    epochs = {solver: known.of(costs.scheme, solver) for solver in served}
    if scenario.privacy.release == "each-epoch":
        epochs = dict.fromkeys(served, Epochs(scenario.training.epochs, "planned: the noise is sized for so many"))
    return _Candidate(scenario, costs, epochs)


def _offers(candidates: Sequence[_Candidate], draws: int, book: RandomBook | None) -> Iterator[Offer]:
    """Time all candidates on the same random delays, and say what each takes."""
    for most in sorted({candidate.most for candidate in candidates}):
        alike = [candidate for candidate in candidates if candidate.most == most]
        wanted = [{found.count for found in candidate.epochs.values()} for candidate in alike]
        courses = [(candidate.costs, candidate.costs.course(most)) for candidate in alike]
        timed = zip(alike, *_replayed(courses, alike[0].scenario, wanted, most, draws, book), strict=True)
        yield from (_offer(candidate, seconds, spent) for candidate, seconds, spent in timed)


def _offer(candidate: _Candidate, seconds: Float[np.ndarray, "draws epochs"], spent: Mapping[int, Spent]) -> Offer:
    predictions, scheme = [], candidate.costs.scheme
    for solver, found in candidate.epochs.items():
        own = spent.get(found.count) or spent_by_device(candidate.costs, candidate.scenario, found.count)
        links = {link: mean_and_largest(own[link]) for link in LINKS}
        sent = links["up"]["mean"] + links["d2d"]["mean"]
        predictions.append(Prediction(solver, found, band(seconds[:, found.count - 1]), links, sent))
    return Offer(scheme, tuple(predictions), scheme.survives_losses, leakage_table(candidate.scenario, scheme))


def _replayed(
    courses: Sequence[tuple[Costs, History | Variant]],
    scenario: Scenario,
    wanted: Sequence[Set[int]],
    epochs: int,
    draws: int,
    book: RandomBook | None,
) -> tuple[Float[np.ndarray, "courses draws epochs"], list[dict[int, Spent]]]:
    """Return when epochs end, and what devices of the scenario's own draw spend until the ``wanted`` ones.

    The own draw is the first one; where it is another, or where costs do not depend on chance, nothing is returned
    for what is spent.
    """
    delays = DelayModel.create(scenario.fleet, scenario.links, *([] if book is None else [book]))
    drawn = Draws(delays, seed=scenario.timing.seed, count=draws)
    ends = np.empty((len(courses), draws, epochs))
    tallies = [_Tally(costs, course, scenario) for costs, course in courses]
    side_by_side = zip(*(replay(course, drawn) for _, course in courses), strict=False)
    for epoch, played in enumerate(itertools.islice(side_by_side, epochs)):
        for place, each in enumerate(played):
            ends[place, :, epoch] = each.ends
            tallies[place].add(each, keep=epoch + 1 in wanted[place])
    return ends, [tally.kept for tally in tallies]


class _Tally:
    """What devices spend in the first draw, where that depends on chance."""

    def __init__(self, costs: Costs, course: History | Variant, scenario: Scenario) -> None:
        by_chance = isinstance(course, Variant) or any(costs.standing for costs in course.rounds)
        self._counts = by_chance and scenario.timing.draw == 0
        self._spent = nothing(scenario.fleet.size)
        self.kept: dict[int, Spent] = {}
        self._epochs = 0
        if self._counts:
            for stage in costs.probed.stages:
                add_transfers(self._spent, stage.costs)

    def add(self, epoch: ReplayedEpoch, *, keep: bool) -> None:
        """Add an epoch, and keep the state after it."""
        self._epochs += 1
        if self._counts:
            add_epoch(self._spent, epoch)
            if keep:
                self.kept[self._epochs] = {name: values.copy() for name, values in self._spent.items()}
