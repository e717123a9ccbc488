"""What each scheme would take on a fleet, before any training: time with 95% bands, bits, what leaks, and a choice.

Costs of an epoch follow from shapes alone: d, c, and how many data points each device has. So every scheme is run for
real for a few epochs, through the one training loop, on *hollow* data: shards of the right shapes without contents.
Its messages and products have their real sizes, so costs equal those of a training. How many epochs a target takes does
not follow from shapes: it is given, taken from finished runs, or assumed from what was measured on MNIST.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from codedfl import schemes
from codedfl.engines import VirtualEngine
from codedfl.errors import ScenarioError, UsageError
from codedfl.network import DelayModel, Draws
from codedfl.progress import Progress, silent
from codedfl.runs.leakage import leakage_table
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES, Scheme
from codedfl.schemes.private import noiseless_shard, privacy_entries
from codedfl.schemes.registry import refuse_unknown
from codedfl.schemes.secrecy import BROKEN, ENCRYPTED, SUMS
from codedfl.security.verdicts import condition, verdict_table
from codedfl.studies.epochs_to_target import ASSUMED, Epochs, EpochsToTarget
from codedfl.task import Problem, Shard, load_data, partition_rows
from codedfl.task.loading import divide_rows
from codedfl.task.objective import PublicObjective
from codedfl.training import History, State, train
from codedfl.training.costs import LINKS, Spent, add_round, add_transfers, mean_and_largest, nothing, spent_in
from codedfl.training.timing import Band, Variant, band, epoch_ends, replay

DRAWS = 200
"""Default number of timing draws behind a band: its limits are known to about a percent."""
PRIVACY = {
    "encrypted": ("whose parcels are proven to hide data", ENCRYPTED),
    "sums": ("whose server sees sums only", (SUMS,)),
    "any": ("that are not broken, in clear or not", None),
}
"""What may be recommended, in words, and the verdicts that it allows; None: all but broken ones."""
_PROBED = 12
"""Epochs that are run: the first, and enough of the others to see costs that repeat after up to five epochs."""
_STANDSTILL = 1e-12
"""A learning rate at which hollow data moves no model out of range."""


@dataclass(frozen=True)
class Shapes:
    """What costs depend on: data points of each device, d, c, and public bounds on features and targets."""

    samples: tuple[int, ...]
    features: int
    outputs: int
    largest_feature: float = 1.0
    largest_target: float = 1.0

    @classmethod
    def of(cls, scenario: Scenario, samples: int | None, outputs: int | None, progress: Progress = silent) -> "Shapes":
        """Take the shapes that are told, or look at the data if none are."""
        if samples is None and outputs is None:
            return cls.of_data(scenario, progress)
        if samples is None or outputs is None:
            raise UsageError("--samples and --outputs go together; give both, or neither to look at the data")
        return cls.told(scenario, samples=samples, outputs=outputs)

    @classmethod
    def of_data(cls, scenario: Scenario, progress: Progress = silent) -> "Shapes":
        """Load and partition the data of a scenario; no feature is computed."""
        loaded = load_data(scenario, progress)
        sizes = _training_sizes(scenario, partition_rows(scenario, loaded.y_train, loaded.samples, loaded.owners))
        target = 1.0 if loaded.kind == "classification" else float(np.max(np.abs(loaded.y_train)))
        constants = int(scenario.ranged and scenario.intercept)
        if (
            scenario.prepared or scenario.ranged
        ):  # columns and targets will be of size 1, and bounded by their squares summed
            target = 1.0
            if scenario.features.kind == "none":
                return cls(sizes, loaded.inputs + constants, loaded.outputs, 1.0, target)
        if scenario.features.kind == "none":
            return cls(sizes, loaded.inputs, loaded.outputs, float(np.max(np.abs(loaded.x_train))), target)
        d = scenario.features.dimension
        return cls(sizes, d + constants, loaded.outputs, math.sqrt(2 / d), target)

    @classmethod
    def told(cls, scenario: Scenario, *, samples: int, outputs: int) -> "Shapes":
        """Return the shapes of absent data; where labels decide who holds what, classes are of one size."""
        if scenario.features.kind == "none":
            raise UsageError(
                "--samples and --outputs do not say how many features there are; add --set features.kind=rbf "
                "--set features.dimension=D"
            )
        sizes = _training_sizes(scenario, partition_rows(scenario, np.arange(samples) % outputs, samples))
        d = scenario.features.dimension
        return cls(sizes, d, outputs, math.sqrt(2 / d))

    def hollow(self, scenario: Scenario) -> Problem:
        """Return a problem of these shapes whose Gram matrices are zero; shards of one size are one object."""
        dtype = np.dtype(scenario.precision)
        d, c = self.features, self.outputs
        x = np.full((max(self.samples), d), self.largest_feature, dtype)
        y = np.full((max(self.samples), c), self.largest_target, dtype)
        known = {"gram": np.zeros((d, d), dtype), "moments": np.zeros((d, c), dtype)}
        shards = {}
        for samples in set(self.samples):
            shards[samples] = Shard(x[:samples], y[:samples])
            vars(shards[samples]).update(known)  # cached as if computed before: costs do not depend on values
        test = np.zeros((1, d), dtype), np.zeros(1, np.int64)
        return Problem(tuple(shards[n] for n in self.samples), *test, "classification", scenario.ridge)


def _training_sizes(scenario: Scenario, parts: Sequence[Int[np.ndarray, "_"]]) -> tuple[int, ...]:
    """Return how many rows each device trains on."""
    return tuple(map(len, divide_rows(scenario, parts)[0]))


@dataclass(frozen=True, eq=False)
class Costs:
    """What a scheme's first epochs cost; of a scheme that shares, by kind, because who leaves when is random."""

    scheme: Scheme[Any]
    probed: History
    shared: Variant | None

    def course(self, epochs: int) -> History | Variant:
        """Return what can be replayed for so many epochs."""
        return self.shared or self.history(epochs)

    def history(self, epochs: int) -> History:
        """Return the costs of so many epochs: those after the probed ones repeat them."""
        rounds = [[self.probed.rounds[number] for number in numbers] for numbers in self.probed.questions()]
        period = _period([[costs.key() for costs in epoch] for epoch in rounds[1:]])
        history = History(stages=self.probed.stages)
        for epoch in range(epochs):
            history.add_round(*rounds[epoch if epoch < len(rounds) else 1 + (epoch - 1) % period])
        return history


def _period(keys: Sequence[Any]) -> int:
    """Return the least period of the given epochs, or their number if none repeats."""
    for period in range(1, len(keys) // 2 + 1):
        if all(key == later for key, later in zip(keys, keys[period:], strict=False)):
            return period
    return len(keys)


def probe(scenario: Scenario, problem: Problem) -> Costs:
    """Run the set-up and the first epochs of a scenario's scheme in virtual time, without losing a device."""
    sharing = schemes.nominal(scenario).sharing is not None
    still = {"training.learning_rate": _STANDSTILL, "training.tolerance": 0.0, "training.targets": []}
    plain = {"training.solver": "gradient-descent", "training.epochs": 1 if sharing else _PROBED}
    short = scenario.with_settings(still | plain)
    scheme = schemes.create(short, problem)
    shards = [noiseless_shard(shard, scheme.public.release) for shard in problem.shards]
    devices = [scheme.device(index, shard) for index, shard in enumerate(shards)]
    delays = DelayModel.create(scenario.fleet, scenario.links)
    engine = VirtualEngine(devices, delays, seed=scenario.timing.seed, draw=scenario.timing.draw)
    # data that only have the right sizes give no gradient that could be held against
    objective = PublicObjective(
        samples=problem.samples, shape=problem.shape, dtype=problem.dtype, ridge=problem.ridge, kind=problem.kind
    )
    history = train(objective, short, scheme, engine, State.fresh(objective)).history
    shared = Variant.create(scheme, problem, history, first_offline=scenario.training.first_epoch_offline)
    return Costs(scheme, history, shared)


def predict(costs: Costs, scenario: Scenario, *, epochs: int, draws: int = DRAWS) -> Float[np.ndarray, "draws epochs"]:
    """Return when each epoch ends in each timing draw; a run of the scenario has the same draws."""
    delays, seed = DelayModel.create(scenario.fleet, scenario.links), scenario.timing.seed
    return np.asarray(epoch_ends([costs.course(epochs)], delays, epochs=epochs, seed=seed, draws=draws)[0])


def spent_by_device(costs: Costs, scenario: Scenario, epochs: int) -> Spent:
    """Return what each device receives, sends and multiplies.

    Where devices hand over or are asked by chance, it is what they spend in the scenario's own draw.
    """
    course, timing = costs.course(epochs), scenario.timing
    if isinstance(course, History) and not any(round_.standing for round_ in course.rounds):
        return spent_in(course, scenario.fleet.size)
    spent = nothing(scenario.fleet.size)
    for stage in costs.probed.stages:
        add_transfers(spent, stage.costs)
    own = Draws(DelayModel.create(scenario.fleet, scenario.links), seed=timing.seed, first=timing.draw)
    for epoch in itertools.islice(replay(course, own), epochs):
        for asked, who in epoch.rounds:
            add_round(spent, asked, slice(None) if who is None else np.flatnonzero(who[0]))
        add_transfers(spent, epoch.handovers)
    return spent


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


@dataclass(frozen=True)
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
    draws: int = DRAWS,
    privacy: str = "encrypted",
    progress: Progress = silent,
) -> Plan:
    """Predict the named schemes (default: all) on a scenario's fleet and links, and recommend one."""
    refuse_unknown(names)
    if scenario.training.start is not None:
        raise UsageError(
            f"training.start = '{scenario.training.start}' changes how many epochs a target takes, which plan cannot "
            "know; leave it out"
        )
    if privacy not in PRIVACY:
        raise UsageError(f"--privacy '{privacy}' must be one of {', '.join(PRIVACY)}")
    wanted = list(dict.fromkeys(names or SCHEMES))
    problem, counts = shapes.hollow(scenario), epochs or EpochsToTarget()
    offers = []
    for done, name in enumerate(wanted):
        progress("predicting", done, len(wanted))
        offers.append(_offer(scenario.with_settings({"scheme": name}), problem, counts, draws))
    progress("predicting", len(wanted), len(wanted))
    offers.sort(key=lambda offer: math.inf if offer.best is None else offer.best.time.mean)
    target = max(scenario.training.targets, default=None)
    return Plan(shapes, target, draws, privacy, tuple(offers))


def _offer(scenario: Scenario, problem: Problem, counts: EpochsToTarget, draws: int) -> Offer:
    try:
        costs = probe(scenario, problem)
    except ScenarioError as error:
        return Offer(schemes.nominal(scenario), refused=str(error))
    scheme = costs.scheme
    served = [name for name in ASSUMED if schemes.serves(scenario, name)]
    epochs = {solver: counts.of(scheme, solver) for solver in served}
    if scenario.privacy.release == "each-epoch":
        epochs = dict.fromkeys(served, Epochs(scenario.training.epochs, "planned: the noise is sized for so many"))
    seconds = predict(costs, scenario, epochs=max(found.count for found in epochs.values()), draws=draws)
    predictions = []
    for solver, found in epochs.items():
        spent = spent_by_device(costs, scenario, found.count)
        links = {link: mean_and_largest(spent[link]) for link in LINKS}
        sent = links["up"]["mean"] + links["d2d"]["mean"]
        predictions.append(Prediction(solver, found, band(seconds[:, found.count - 1]), links, sent))
    return Offer(scheme, tuple(predictions), scheme.survives_losses, leakage_table(scenario, scheme))
