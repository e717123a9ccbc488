"""What schemes cost: counted on a few epochs with hollow data, and replayed for as many as are wanted."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl import schemes
from codedfl.engines import VirtualEngine
from codedfl.engines.virtual import move
from codedfl.errors import ScenarioError
from codedfl.network import DelayModel, Draws, RandomBook, TransferTable
from codedfl.scenario import Scenario
from codedfl.schemes import Scheme
from codedfl.schemes.contract import CountedCosts, Device
from codedfl.schemes.messages import Message, Work
from codedfl.schemes.private import noiseless_shard
from codedfl.studies.plan.shapes import Shapes
from codedfl.task import Problem, Shard
from codedfl.task.objective import PublicObjective
from codedfl.training import History, State, train
from codedfl.training.costs import Spent, add_round, add_transfers, nothing, spent_in
from codedfl.training.records import StageRecord
from codedfl.training.timing import ReplayedEpoch, Variant, epoch_ends, replay

DRAWS = 200
"""Default number of timing draws behind a band: its limits are known to about a percent."""
_DRAWN_DEVICES = 50_000
"""Draws times devices up to which there are so many draws by default."""
_LEAST_DRAWS = 5
_PROBED = 12
"""Epochs that are run: the first, and enough of the others to see costs that repeat after up to five epochs."""
_STEADY = 3
"""Epochs that are run where all but the first cost the same: replies are about one sum that the set-up has fixed."""
_TWINS = 3
"""Devices that stand for a fleet in the set-up of schemes that hand over."""
_LARGEST_RUN = 2_000_000_000
"""Devices times the entries of a Gram matrix, or of a row for every device, up to which all devices are run."""
_STANDSTILL = 1e-12
"""A learning rate at which hollow data moves no model out of range."""


@dataclass(frozen=True, eq=False)
class Costs:
    """What a scheme's first epochs cost; of a scheme that shares, by kind, because who leaves when is random."""

    scheme: Scheme[Any]
    probed: History
    shared: Variant | None
    known: dict[int, History] = field(default_factory=dict, repr=False)
    """Courses that were asked for before, by their number of epochs."""

    def course(self, epochs: int) -> History | Variant:
        """Return what can be replayed for so many epochs."""
        if self.shared is not None:
            return self.shared
        if epochs not in self.known:
            self.known[epochs] = self.history(epochs)
        return self.known[epochs]

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


@final
class _PatientDevice(Device):
    """A device that waits for a signal before it works."""

    def __init__(self, pause: Callable[[], None], scheme: Scheme[Any], index: int, shard: Shard) -> None:
        pause()
        self._pause, self._device = pause, scheme.device(index, shard)

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Reply when it may."""
        self._pause()
        return self._device.reply(epoch, request, work)

    def export(self, grant: Message, work: Work) -> Message:
        """Export when it may."""
        self._pause()
        return self._device.export(grant, work)

    def absorb_from(self, sender: int, parcel: Message, work: Work, owners: Set[int] = frozenset()) -> None:
        """Absorb when it may."""
        self._pause()
        self._device.absorb_from(sender, parcel, work, owners)

    def owners(self, grant: Message) -> Set[int]:
        """Return what the device says."""
        return self._device.owners(grant)

    def covers(self, epoch: int) -> Set[int]:
        """Return what the device says."""
        return self._device.covers(epoch)

    def opens(self, request: Message) -> Sequence[int] | None:
        """Return what the device says."""
        return self._device.opens(request)


def short_scenario(scenario: Scenario) -> Scenario:
    """Return the scenario whose first epochs are run to count costs: on hollow data, no model may move."""
    scheme = schemes.nominal(scenario)
    epochs = 1 if scheme.sharing is not None else _STEADY if scheme.repeats_epochs else _PROBED
    still = {"training.learning_rate": _STANDSTILL, "training.tolerance": 0.0, "training.targets": []}
    plain = {"training.solver": "gradient-descent", "training.epochs": epochs}
    return scenario.with_settings(still | plain)


def probe(scenario: Scenario, problem: Problem, pause: Callable[[], None] = lambda: None) -> Costs:
    """Run the set-up and the first epochs of a scenario's scheme in virtual time, without losing a device.

    ``pause`` is called before each work of a device, and may keep it waiting.
    """
    short = short_scenario(scenario)
    scheme = schemes.create(short, problem)
    # shards of one object stay one object, so that devices alike are counted once
    known = {id(shard): noiseless_shard(shard, scheme.public.release) for shard in dict.fromkeys(problem.shards)}
    shards = [known[id(shard)] for shard in problem.shards]
    pause()
    counted = scheme.counted(shards, short.training.epochs)
    if counted is None and scheme.sharing is not None and len(shards) > _TWINS:
        counted = CountedCosts((), _star_stages(scheme, shards))
    if counted is not None:
        history = _recorded(counted, first_offline=scenario.training.first_epoch_offline)
    else:
        _refuse_large(scheme)
        history = _trained(scenario, short, scheme, problem, shards, pause)
    shared = Variant.create(scheme, problem, history, first_offline=scenario.training.first_epoch_offline)
    return Costs(scheme, history, shared)


def _trained(
    scenario: Scenario,
    short: Scenario,
    scheme: Scheme[Any],
    problem: Problem,
    shards: Sequence[Shard],
    pause: Callable[[], None],
) -> History:
    """Run all devices for real."""
    devices = [_PatientDevice(pause, scheme, index, shard) for index, shard in enumerate(shards)]
    delays = DelayModel.create(scenario.fleet, scenario.links)
    engine = VirtualEngine(devices, delays, seed=scenario.timing.seed, draw=scenario.timing.draw)
    # data that only have the right sizes give no gradient that could be held against
    objective = PublicObjective(
        samples=problem.samples, shape=problem.shape, dtype=problem.dtype, ridge=problem.ridge, kind=problem.kind
    )
    return train(objective, short, scheme, engine, State.fresh(objective)).history


def _recorded(counted: CountedCosts, *, first_offline: bool) -> History:
    """Return counted costs as a training would record them."""
    after = counted.after or [None] * len(counted.stages)
    stages = [StageRecord(0, stage, after=known) for stage, known in zip(counted.stages, after, strict=True)]
    history = History(stages=stages)
    for epoch, rounds in enumerate(counted.epochs):
        history.add_round(*(costs.uploads if first_offline and epoch == 0 else costs for costs in rounds))
    return history


def _star_stages(scheme: Scheme[Any], shards: Sequence[Shard]) -> list[TransferTable]:
    """Count the set-up of a scheme that hands over: all devices but the first two send and receive the same.

    A fleet of three devices carries it out; its third device stands for all others.
    """
    samples = scheme.public.samples  # all of them count for the bounds of number formats
    few = (*samples[: _TWINS - 1], sum(samples[_TWINS - 1 :]))
    twin = scheme.with_public(dataclasses.replace(scheme.public, samples=few))
    devices, server = [twin.device(index, shards[index]) for index in range(_TWINS)], twin.server()
    found = []
    for stage, whole in zip(server.set_up(), scheme.server().set_up(), strict=True):
        costs = {(each.sender, each.recipient): move(devices, each, server.receive) for each in stage.transfers}
        pairs = [(each.sender, each.recipient) for each in whole.transfers]
        places = np.array(pairs, np.int64).reshape(-1, 2).T
        alike = [costs[min(a, _TWINS - 1), min(b, _TWINS - 1)] for a, b in pairs]
        rows = TransferTable.of(alike).rows.copy()
        rows[:2] = places
        found.append(TransferTable(rows))
    return found


def _refuse_large(scheme: Scheme[Any]) -> None:
    """Refuse to run so many devices, each with a matrix of its own, that memory or patience would not suffice."""
    n, d = scheme.public.devices, scheme.public.features
    if n * max(n, d) * d > _LARGEST_RUN:
        raise ScenarioError(
            f"scheme = '{scheme.name}' is planned by running its set-up on all {n} devices with {d} features, which "
            "takes too much memory and time here; plan it for fewer devices or features"
        )


def default_draws(devices: int) -> int:
    """Return the number of draws unless one is given: fewer for large fleets, whose slowest device varies less.

    >>> default_draws(25), default_draws(1000), default_draws(10_000)
    (200, 50, 5)
    """
    return min(DRAWS, max(_LEAST_DRAWS, _DRAWN_DEVICES // devices))


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
        add_epoch(spent, epoch)
    return spent


class CostCounter:
    """Counts costs by running schemes on hollow data; may be replaced by one that remembers."""

    book: RandomBook | None = None
    """Where random delays come from; None: drawn anew."""

    def problem(self, scenario: Scenario, shapes: Shapes) -> Problem:
        """Return hollow data."""
        return shapes.hollow(scenario)

    def count(self, scenario: Scenario, problem: Problem) -> Costs:
        """Return the costs of a scenario's scheme; raise ScenarioError if it cannot be used."""
        return probe(scenario, problem)


def add_epoch(spent: Spent, epoch: ReplayedEpoch) -> None:
    """Add what devices spend in the first draw of an epoch."""
    for asked, who in epoch.rounds:
        add_round(spent, asked, slice(None) if who is None else np.flatnonzero(who[0]))
    add_transfers(spent, epoch.handovers)
