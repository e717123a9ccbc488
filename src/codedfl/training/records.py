"""What a training records, and the state from which it can go on."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Int, Shaped

from codedfl.network import OverlappingStage, RoundCosts, TransferCosts, TransferTable
from codedfl.schemes.contract import Stage
from codedfl.task.objective import Objective

_COSTS = ("down_bits", "up_bits", "d2d_bits", "device_macs", "server_macs")
_SCORES = ("accuracy", "loss", "gradient_norm", "gradient_error")
COLUMNS = ("epoch", "time", *_SCORES, "learning_rate", "replies", "losses_left", *_COSTS)
"""The columns of ``epochs.parquet``."""
_ALL_COLUMNS = (*COLUMNS, "gradient_bound")


@dataclass(frozen=True)
class StageRecord:
    """A stage that was carried out after an epoch (0: before the first), and what it cost."""

    epoch: int
    costs: Sequence[TransferCosts]
    retires: bool = False
    """Whether the transfers were hand-overs."""
    after: tuple[int, ...] | None = None
    """As :attr:`Stage.after`."""


Overlapping = TypeVar("Overlapping", Stage, StageRecord)


def overlapping(stages: Iterable[Overlapping]) -> list[list[Overlapping]]:
    """Group stages that may overlap: a stage that comes after the end of all others begins a group."""
    groups: list[list[Overlapping]] = []
    for stage in stages:
        if stage.after is None or not groups:
            groups.append([])
        groups[-1].append(stage)
    return groups


@dataclass
class History:
    """One record an epoch, column by column, and the distinct costs of the rounds."""

    columns: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in _ALL_COLUMNS})
    rounds: list[RoundCosts] = field(default_factory=list)
    round_of_epoch: list[int] = field(default_factory=list)
    """The number of each epoch's first round."""
    further: list[tuple[int, int]] = field(default_factory=list)
    """Epochs and numbers of further rounds, in their order."""
    stages: list[StageRecord] = field(default_factory=list)
    """Stages of the set-up, of hand-overs and of repairs, in their order."""
    _known: dict[Any, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.round_of_epoch)

    def add_epoch(self, rounds: Sequence[RoundCosts], **values: float) -> None:
        """Record an epoch: values by column, and the costs of its rounds and of the stages since the epoch before."""
        totals = _stage_totals([costs for _, costs in self.stages_after(len(self.round_of_epoch))])
        for costs in rounds:
            totals["down_bits"] += int(costs.down_bits.sum())
            totals["up_bits"] += int(costs.up_bits.sum())
            totals["device_macs"] += int(costs.macs.sum())
            totals["server_macs"] += costs.server_macs
        for name, value in (values | totals).items():
            self.columns[name].append(value)
        self.add_round(*rounds)

    def add_round(self, costs: RoundCosts, *further: RoundCosts) -> None:
        """Record what the rounds of the newest epoch cost; equal costs are kept once."""
        self.round_of_epoch.append(self._number(costs))
        for more in further:
            self.further.append((len(self.round_of_epoch), self._number(more)))

    def _number(self, costs: RoundCosts) -> int:
        number = self._known.setdefault(costs.key(), len(self.rounds))
        if number == len(self.rounds):
            self.rounds.append(costs)
        return number

    def questions(self) -> list[list[int]]:
        """Return the numbers of the rounds of each epoch."""
        numbers = [[number] for number in self.round_of_epoch]
        for epoch, number in self.further:
            numbers[epoch - 1].append(number)
        return numbers

    def add_stage(self, stage: StageRecord) -> None:
        """Record a stage; bits and work of hand-overs count to the newest epoch, those of other stages to the next."""
        self.stages.append(stage)
        if stage.retires:
            for name, value in _stage_totals([stage.costs]).items():
                self.columns[name][-1] += value

    def cut(self, point: "Point") -> None:
        """Drop the records after a point. Stages that took place since then stay, as if they had followed it."""
        for name, values in self.columns.items():
            del values[point.lengths[name] :]
        del self.round_of_epoch[point.epoch :]
        self.further = [each for each in self.further if each[0] <= point.epoch]
        self.stages = [dataclasses.replace(each, epoch=min(each.epoch, point.epoch)) for each in self.stages]

    def stages_after(self, epoch: int) -> list[tuple[int, Sequence[TransferCosts]]]:
        """Return numbers and costs of the stages of set-up or repair between an epoch and the next."""
        found = enumerate(stage for stage in self.stages if not stage.retires)
        return [(number, stage.costs) for number, stage in found if stage.epoch == epoch]

    def overlapping_after(self, epoch: int) -> list[list[OverlappingStage]]:
        """Return the stages of set-up or repair between an epoch and the next, grouped as they were timed."""
        stages = [stage for stage in self.stages if not stage.retires]
        number, groups = sum(stage.epoch < epoch for stage in stages), []
        for group in overlapping(stage for stage in stages if stage.epoch == epoch):
            numbered = enumerate(group, start=number)
            groups.append([OverlappingStage(place, stage.costs, stage.after or ()) for place, stage in numbered])
            number += len(group)
        return groups

    def handovers_after(self, epoch: int) -> list[TransferCosts]:
        """Return the costs of the hand-overs after an epoch."""
        return [costs for when, costs in self.handovers if when == epoch]

    @property
    def handovers(self) -> list[tuple[int, TransferCosts]]:
        """Every hand-over: the epoch after which it happened, and what it cost."""
        return [(stage.epoch, costs) for stage in self.stages if stage.retires for costs in stage.costs]

    def to_arrays(self) -> dict[str, Shaped[np.ndarray, "..."]]:
        """Return everything as plain arrays."""
        arrays: dict[str, Any] = {f"column_{name}": np.array(values) for name, values in self.columns.items()}
        arrays["round_of_epoch"] = np.array(self.round_of_epoch, dtype=np.int64)
        arrays["further"] = np.array(self.further, dtype=np.int64).reshape(len(self.further), 2)
        for number, costs in enumerate(self.rounds):
            arrays[f"round_{number}"], arrays[f"waiting_{number}"] = _packed(costs)
        arrays["stages"] = np.array([(each.epoch, each.retires) for each in self.stages], dtype=np.int64).reshape(-1, 2)
        after = [(number, each.after) for number, each in enumerate(self.stages) if each.after is not None]
        pairs = [(number, -1) for number, _ in after] + [(number, each) for number, known in after for each in known]
        arrays["after"] = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        tables = [TransferTable.of(each.costs).rows.T for each in self.stages]
        numbers = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
        columns = len(dataclasses.fields(TransferCosts))
        arrays["transfers"] = np.column_stack([numbers, np.concatenate([np.empty((0, columns), np.int64), *tables])])
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Any) -> "History":
        """Rebuild a history from :meth:`to_arrays`."""
        history = cls({name: arrays[f"column_{name}"].tolist() for name in _ALL_COLUMNS})
        further = [(int(epoch), int(number)) for epoch, number in arrays["further"]]
        known = [*arrays["round_of_epoch"].tolist(), *(number for _, number in further)]
        for number in range(max(known, default=-1) + 1):
            history._number(_unpacked(arrays[f"round_{number}"], arrays[f"waiting_{number}"]))
        history.round_of_epoch, history.further = arrays["round_of_epoch"].tolist(), further
        after: dict[int, tuple[int, ...]] = {}
        for number, other in arrays["after"].tolist() if "after" in arrays else ():  # earlier checkpoints lack it
            after[number] = () if other < 0 else (*after[number], other)
        found = arrays["transfers"]
        rows = np.zeros((len(found), 1 + len(dataclasses.fields(TransferCosts))), np.int64)
        rows[:, : found.shape[1]] = found  # earlier checkpoints lack the last columns
        for number, (epoch, retires) in enumerate(arrays["stages"].tolist()):
            own = TransferTable(np.ascontiguousarray(rows[rows[:, 0] == number, 1:].T))
            history.stages.append(StageRecord(epoch, own, bool(retires), after.get(number)))
        return history


def _stage_totals(stages: Sequence[Sequence[TransferCosts]]) -> dict[str, int]:
    """Return the bits and multiplications of stages, by column."""
    totals = dict.fromkeys(_COSTS, 0)
    for table in map(TransferTable.of, stages):
        for link, bits in table.bits().items():
            totals[f"{link}_bits"] += int(bits.sum())
        totals["device_macs"] += int(table.sender_macs.sum() + table.recipient_macs.sum())
    return totals


def _packed(costs: RoundCosts) -> tuple[Int[np.ndarray, "4 n"], Float[np.ndarray, "5"]]:
    waiting = (costs.quorum, costs.server_macs, costs.least, costs.deadline, costs.standing)
    return np.stack([costs.asked, costs.down_bits, costs.macs, costs.up_bits]), np.array(waiting, np.float64)


def _unpacked(rows: Int[np.ndarray, "4 n"], waiting: Float[np.ndarray, "5"]) -> RoundCosts:
    asked, down, macs, up = rows
    quorum, server_macs, least = (int(value) for value in waiting[:3])
    return RoundCosts(asked, down, macs, up, quorum, server_macs, least, float(waiting[3]), bool(waiting[4]))


@dataclass(frozen=True)
class Point:
    """What a training needs to go back to the end of an epoch; records are kept as their lengths."""

    epoch: int
    lengths: dict[str, int]
    fields: dict[str, Any]
    server: dict[str, Shaped[np.ndarray, "..."]]
    stages: int
    """How many stages had been carried out."""
    lost: frozenset[int] = frozenset()
    """Devices that were lost."""


@dataclass(frozen=True)
class Lie:
    """A device that was found to reply wrong numbers, in an epoch that was computed again."""

    device: int
    epoch: int
    contradicts_itself: bool
    """Whether it answered the same question in two ways; else its reply did not fit those of the others."""


_WAITING = ("waiting_models", "waiting_queries", "waiting_gradients", "waiting_norms")


@dataclass
class State:
    """Where a training stands; everything it needs to go on."""

    model: Float[np.ndarray, "d c"]
    """The newest model, less the first one."""
    plain_gradient: Float[np.ndarray, "d c"]
    now: float = 0.0
    history: History = field(default_factory=History)
    server: dict[str, Shaped[np.ndarray, "..."]] = field(default_factory=dict)
    """The state of the scheme's server."""
    solver: dict[str, Shaped[np.ndarray, "..."]] = field(default_factory=dict)
    waiting_models: list[Shaped[np.ndarray, "d c"]] = field(default_factory=list)
    waiting_queries: list[Shaped[np.ndarray, "d c"]] = field(default_factory=list)
    """What devices were sent, where that is not the model before."""
    waiting_gradients: list[Float[np.ndarray, "d c"]] = field(default_factory=list)
    waiting_norms: list[Float[np.ndarray, "c"]] = field(default_factory=list)
    """The sum of magnitudes, by output, of the points of these gradients."""
    complete: bool = True
    """Whether every round so far got as many replies as it awaited."""
    checked: set[int] = field(default_factory=set)
    """Epochs whose replies were confirmed by spare ones."""
    spoilt: int = 0
    """Epochs that were computed again, because replies were wrong."""
    lies: list[Lie] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    """Devices that are lost; on real sites it is found out anew when a training is resumed."""
    safe: Point | None = None
    """The end of the last epoch before those that late replies may still show to be wrong; None if there are none."""

    @classmethod
    def fresh(cls, problem: Objective) -> "State":
        """Begin with the first model."""
        return cls(np.zeros(problem.shape), problem.zero_gradient)

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return len(self.history.round_of_epoch)

    def point(self, server: Mapping[str, Shaped[np.ndarray, "..."]]) -> Point:
        """Return where the training stands, with the state of the server."""
        lengths = {name: len(values) for name, values in self.history.columns.items()}
        kept = ("model", "plain_gradient", "now", "complete", "solver")
        fields = {name: getattr(self, name) for name in kept}
        fields |= {name: [*getattr(self, name)] for name in _WAITING}
        return Point(self.epoch, lengths, fields, dict(server), len(self.history.stages), frozenset(self.lost))

    def go_back(self, point: Point) -> None:
        """Undo what was computed after a point; what is known of devices stays."""
        self.history.cut(point)
        for name, value in point.fields.items():
            setattr(self, name, [*value] if name in _WAITING else value)
        self.server = dict(point.server) if point.epoch else {}
        self.checked = {epoch for epoch in self.checked if epoch <= point.epoch}

    def _at(self, point: Point) -> "State":
        """Return the state as it was at a point, without the stages since then, which a resumed training repeats."""
        history = dataclasses.replace(
            self.history,
            stages=self.history.stages[: point.stages],
            columns={name: [*values] for name, values in self.history.columns.items()},
            round_of_epoch=[*self.history.round_of_epoch],
        )
        found = dataclasses.replace(self, history=history, safe=None, lost=set(point.lost))
        found.go_back(point)
        return found

    def to_arrays(self) -> dict[str, Shaped[np.ndarray, "..."]]:
        """Return everything as plain arrays, without epochs that may still turn out to be wrong."""
        if self.safe is not None:
            return self._at(self.safe).to_arrays()
        lies = [(each.device, each.epoch, each.contradicts_itself) for each in self.lies]
        return {
            "model": self.model,
            "plain_gradient": self.plain_gradient,
            "now": np.array(self.now),
            **{f"server_{name}": value for name, value in self.server.items()},
            **{f"solver_{name}": value for name, value in self.solver.items()},
            "waiting_models": np.array(self.waiting_models),
            "waiting_queries": np.array(self.waiting_queries),
            "waiting_gradients": np.array(self.waiting_gradients),
            "waiting_norms": np.array(self.waiting_norms),
            "complete": np.array(self.complete),
            "checked": np.array(sorted(self.checked), np.int64),
            "spoilt": np.array(self.spoilt),
            "lies": np.array(lies, np.int64).reshape(-1, 3),
            "lost": np.array(sorted(self.lost), np.int64),
            **self.history.to_arrays(),
        }

    @classmethod
    def from_arrays(cls, arrays: Any) -> "State":
        """Rebuild a state from :meth:`to_arrays`."""
        return cls(
            model=arrays["model"],
            plain_gradient=arrays["plain_gradient"],
            now=float(arrays["now"]),
            history=History.from_arrays(arrays),
            server=_prefixed(arrays, "server_"),
            solver=_prefixed(arrays, "solver_"),
            waiting_models=list(arrays["waiting_models"]),
            waiting_queries=list(arrays["waiting_queries"]),
            waiting_gradients=list(arrays["waiting_gradients"]),
            waiting_norms=list(arrays["waiting_norms"]),
            complete=bool(arrays["complete"]),
            checked=set(arrays["checked"].tolist()),
            spoilt=int(arrays["spoilt"]),
            lies=[Lie(device, epoch, bool(itself)) for device, epoch, itself in arrays["lies"].tolist()],
            lost=set(arrays["lost"].tolist()) if "lost" in arrays else set(),  # earlier checkpoints lack it
        )


def _prefixed(arrays: Any, prefix: str) -> dict[str, Shaped[np.ndarray, "..."]]:
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}
