"""The only training loop: a scheme on an engine serves a solver, epoch after epoch.

Devices are sent what the solver asks for; what is scored and kept is the solver's model. Models are scored in blocks
of fixed epochs, so that an interrupted and resumed training scores the very same blocks and ends with the same bits.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped

from codedfl.engines import Answer, Engine
from codedfl.errors import LostDevicesError, TrainingError
from codedfl.network import RoundCosts, TransferCosts
from codedfl.scenario import Scenario, Training
from codedfl.schemes import (
    Message,
    PlacingServer,
    Round,
    Scheme,
    Server,
    SharingScheme,
    SharingServer,
    StandingServer,
    SummedServer,
    Transfer,
    Work,
)
from codedfl.solvers import SOLVERS, ClosedForm, Conditions, GradientDescent, Solver
from codedfl.task import learning_rate
from codedfl.task.objective import Objective

__all__ = ["BLOCK", "COLUMNS", "History", "State", "create_solver", "train"]

BLOCK = GradientDescent.block
"""Epochs of gradient descent that are scored together."""

COLUMNS = (
    "epoch",
    "time",
    "accuracy",
    "loss",
    "gradient_norm",
    "gradient_error",
    "learning_rate",
    "replies",
    "down_bits",
    "up_bits",
    "d2d_bits",
    "device_macs",
    "server_macs",
)
_DIVERGED = 1e3


@dataclass
class History:
    """One record an epoch, column by column, and the distinct costs of the rounds."""

    columns: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in COLUMNS})
    rounds: list[RoundCosts] = field(default_factory=list)
    round_of_epoch: list[int] = field(default_factory=list)
    """The round that each epoch's first question was."""
    further: list[tuple[int, int]] = field(default_factory=list)
    """Epochs and rounds of further questions, in their order."""
    transfers: list[tuple[int, int | None, TransferCosts]] = field(default_factory=list)
    """The epoch after which a hand-over happened, the support it used, and what it cost."""
    stages: list[tuple[int, list[TransferCosts]]] = field(default_factory=list)
    """Stages of the set-up (epoch 0) and of repairs: the epoch after which they happened, and what they cost."""
    _known: dict[Any, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.round_of_epoch)

    def add_round(self, costs: RoundCosts, *further: RoundCosts) -> None:
        """Note what the questions of the newest epoch cost; equal costs are kept once."""
        self.round_of_epoch.append(self._number(costs))
        self.further += [(len(self), self._number(more)) for more in further]

    def _number(self, costs: RoundCosts) -> int:
        number = self._known.setdefault(costs.key(), len(self.rounds))
        if number == len(self.rounds):
            self.rounds.append(costs)
        return number

    def questions(self) -> list[list[int]]:
        """Return the rounds of each epoch."""
        numbers = [[number] for number in self.round_of_epoch]
        for epoch, number in self.further:
            numbers[epoch - 1].append(number)
        return numbers

    def add_transfers(self, epoch: int, transfers: Sequence[Transfer], costs: Sequence[TransferCosts]) -> None:
        """Note hand-overs after the newest epoch; their bits and work count to that epoch."""
        for transfer, cost in zip(transfers, costs, strict=True):
            self.transfers.append((epoch, transfer.support, cost))
            for link, bits in cost.bits().items():
                self.columns[f"{link}_bits"][-1] += bits
            self.columns["device_macs"][-1] += cost.export_macs + cost.absorb_macs

    def stages_after(self, epoch: int) -> list[tuple[int, list[TransferCosts]]]:
        """Return the numbers and the costs of the stages between an epoch and the next."""
        return [(number, costs) for number, (when, costs) in enumerate(self.stages) if when == epoch]

    @property
    def moved(self) -> list[tuple[int, int, int | None]]:
        """Sender, recipient and support of every hand-over so far."""
        return [(costs.sender, costs.recipient, support) for _, support, costs in self.transfers]

    def to_arrays(self) -> dict[str, Shaped[np.ndarray, "..."]]:
        """Return everything as plain arrays."""
        arrays: dict[str, Any] = {f"column_{name}": np.array(values) for name, values in self.columns.items()}
        arrays["round_of_epoch"] = np.array(self.round_of_epoch, dtype=np.int64)
        arrays["further"] = np.array(self.further, dtype=np.int64).reshape(len(self.further), 2)
        for number, costs in enumerate(self.rounds):
            arrays[f"round_{number}"], arrays[f"waiting_{number}"] = _packed(costs)
        rows = [
            (epoch, -1 if support is None else support, *dataclasses.astuple(costs))
            for epoch, support, costs in self.transfers
        ]
        width = 2 + len(dataclasses.fields(TransferCosts))
        arrays["transfers"] = np.array(rows, dtype=np.int64).reshape(len(rows), width)
        staged = [
            (epoch, number, *dataclasses.astuple(costs))
            for number, (epoch, listed) in enumerate(self.stages)
            for costs in listed
        ]
        arrays["stages"] = np.array(staged, dtype=np.int64).reshape(len(staged), width)
        arrays["stage_epochs"] = np.array([epoch for epoch, _ in self.stages], dtype=np.int64)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Any) -> "History":
        """Rebuild a history from :meth:`to_arrays`."""
        history = cls({name: arrays[f"column_{name}"].tolist() for name in COLUMNS})
        further = [(int(epoch), int(number)) for epoch, number in arrays["further"]]
        known = [*arrays["round_of_epoch"].tolist(), *(number for _, number in further)]
        rounds = [_unpacked(arrays[f"round_{n}"], arrays[f"waiting_{n}"]) for n in range(max(known, default=-1) + 1)]
        for costs in rounds:
            history._number(costs)
        history.round_of_epoch, history.further = arrays["round_of_epoch"].tolist(), further
        for epoch, support, *costs in arrays["transfers"].tolist():
            history.transfers.append((epoch, None if support < 0 else support, _transfer_costs(costs)))
        history.stages = [(epoch, []) for epoch in arrays["stage_epochs"].tolist()]
        for _, number, *costs in arrays["stages"].tolist():
            history.stages[number][1].append(_transfer_costs(costs))
        return history


def _packed(costs: RoundCosts) -> tuple[Int[np.ndarray, "4 n"], Float[np.ndarray, "5"]]:
    waiting = (costs.quorum, costs.server_macs, costs.least, costs.deadline, costs.standing)
    return np.stack([costs.asked, costs.down_bits, costs.macs, costs.up_bits]), np.array(waiting, np.float64)


def _unpacked(rows: Int[np.ndarray, "4 n"], waiting: Float[np.ndarray, "5"]) -> RoundCosts:
    asked, down, macs, up = rows
    quorum, server_macs, least = (int(value) for value in waiting[:3])
    return RoundCosts(asked, down, macs, up, quorum, server_macs, least, float(waiting[3]), bool(waiting[4]))


def _transfer_costs(numbers: Sequence[int]) -> TransferCosts:
    sender, recipient, grant, export, parcel, absorb, relayed = numbers
    return TransferCosts(sender, recipient, grant, export, parcel, absorb, bool(relayed))


@dataclass
class State:
    """Where a training stands; everything it needs to go on."""

    model: Float[np.ndarray, "d c"]
    plain_gradient: Float[np.ndarray, "d c"]
    now: float = 0.0
    history: History = field(default_factory=History)
    memory: dict[str, Shaped[np.ndarray, "..."]] = field(default_factory=dict)
    solver: dict[str, Shaped[np.ndarray, "..."]] = field(default_factory=dict)
    waiting_models: list[Shaped[np.ndarray, "d c"]] = field(default_factory=list)
    waiting_queries: list[Shaped[np.ndarray, "d c"]] = field(default_factory=list)
    """What devices were sent, where that is not the model before."""
    waiting_gradients: list[Float[np.ndarray, "d c"]] = field(default_factory=list)

    @classmethod
    def fresh(cls, problem: Objective) -> "State":
        """Begin with the zero model."""
        return cls(np.zeros(problem.shape), problem.zero_gradient)

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return len(self.history)

    def to_arrays(self) -> dict[str, Shaped[np.ndarray, "..."]]:
        """Return everything as plain arrays."""
        return {
            "model": self.model,
            "plain_gradient": self.plain_gradient,
            "now": np.array(self.now),
            **{f"memory_{name}": value for name, value in self.memory.items()},
            **{f"solver_{name}": value for name, value in self.solver.items()},
            "waiting_models": np.array(self.waiting_models),
            "waiting_queries": np.array(self.waiting_queries),
            "waiting_gradients": np.array(self.waiting_gradients),
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
            memory=_prefixed(arrays, "memory_"),
            solver=_prefixed(arrays, "solver_"),
            waiting_models=list(arrays["waiting_models"]),
            waiting_queries=list(arrays["waiting_queries"]),
            waiting_gradients=list(arrays["waiting_gradients"]),
        )


def _prefixed(arrays: Any, prefix: str) -> dict[str, Shaped[np.ndarray, "..."]]:
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}


def create_solver(problem: Objective, training: Training, state: State) -> Solver:
    """Make the solver of a training and bring it to where the state stands; it is told nothing of the data."""
    conditions = Conditions(
        shape=problem.shape,
        ridge=problem.ridge,
        rate=lambda epoch: learning_rate(training, epoch),
        tolerance=training.tolerance,
        epsilon=float(np.finfo(problem.dtype).eps),
    )
    solver = SOLVERS[training.solver](conditions)
    if state.epoch > 0:
        solver.restore(state.solver)
    return solver


def train(
    problem: Objective,
    scenario: Scenario,
    scheme: Scheme[Any],
    engine: Engine,
    state: State,
    after_epoch: Callable[[State], None] = lambda state: None,
) -> State:
    """Train from ``state`` to the end; ``after_epoch`` sees the state after every epoch (to save it, to show it)."""
    server = scheme.server()
    solver = create_solver(problem, scenario.training, state)
    epochs = scenario.training.epochs
    _set_up(server, engine, state)
    while state.epoch < epochs and not solver.finished and not _reached(state, scenario):
        epoch = state.epoch + 1
        with np.errstate(over="ignore", invalid="ignore"):  # divergence is caught below, in words
            query = solver.query()
            gradient, heard, point = _round(epoch, query, state, server, engine, scenario)
            if point is not None:
                solver.asked_at(point)
            _improve(solver, gradient, server, problem)
            _note(state, solver, query if point is None else point, gradient, problem, moved=point is not None)
            if epoch % solver.block == 0 or epoch == epochs or solver.finished:
                _score(state, problem, exact=scheme.exact)
                _check_divergence(state, solver, problem, scenario)
        _remember(server, state)  # a state that devices' loss in what follows leaves behind can be resumed
        if isinstance(server, SharingServer) and isinstance(scheme, SharingScheme):
            # the first epoch is computed beforehand, so its reply times say nothing about speed
            transfers = server.after_epoch(heard.seconds) if epoch > 1 else ()
            costs = engine.hand_over(epoch, transfers, parallel=scheme.parallel_reception)
            state.history.add_transfers(epoch, transfers, costs)
        if isinstance(server, PlacingServer) and heard.lost and epoch < epochs:
            _repair(server, sorted(heard.lost), epoch, engine, state)
        state.now = engine.now
        _remember(server, state)
        after_epoch(state)
    return state


def _remember(server: Server, state: State) -> None:
    if isinstance(server, SharingServer | PlacingServer | StandingServer):
        state.memory = dict(server.memory())


def _set_up(server: Server, engine: Engine, state: State) -> None:
    """Place data before the first epoch, or bring the devices of a resumed training to where they had been."""
    if isinstance(server, PlacingServer):
        if state.epoch == 0:
            for stage in server.stages():
                if lost := _place(server, stage, 0, engine, state):
                    raise LostDevicesError(
                        f"{len(lost)} devices (the first is number {lost[0]}) were gone before the set-up was over; "
                        "begin again when they are back, or leave them out of the fleet"
                    )
        else:
            for stage in (*server.stages(), *server.recall(state.memory)):
                engine.replay(stage, server.receive)
    if isinstance(server, SharingServer):
        transfers = server.resume(state.history.moved, state.memory)
        epochs = [epoch for epoch, _, _ in state.history.transfers]
        for epoch in sorted(set(epochs)):
            stage = [transfer for transfer, when in zip(transfers, epochs, strict=True) if when == epoch]
            engine.replay(stage)
    if isinstance(server, StandingServer) and state.epoch > 0:
        ends = [0.0, *state.history.columns["time"]]
        for question in server.reopen(state.memory):
            engine.reopen(question, ends[question.epoch - 1])


def _repair(server: PlacingServer, lost: Sequence[int], epoch: int, engine: Engine, state: State) -> None:
    """Let the server make up for lost devices, one after the other, for as long as it can."""
    gone = set(lost)
    while transfers := server.repair(lost):
        lost = _place(server, transfers, epoch, engine, state)
        if lost and gone.issuperset(lost):  # the server knew, so it would ask for the same stage for ever
            raise LostDevicesError(
                f"the repair after epoch {epoch} asks again for device {lost[0]}, which is lost; the run is saved up "
                "to there: let it go on when the device is back, or choose another scheme"
            )
        gone |= set(lost)


def _place(
    server: PlacingServer, transfers: Sequence[Transfer], epoch: int, engine: Engine, state: State
) -> Sequence[int]:
    placed = engine.place(len(state.history.stages), transfers, server.receive)
    if not placed.lost:
        state.history.stages.append((epoch, placed.costs))
    return placed.lost


def _improve(solver: Solver, gradient: Float[np.ndarray, "d c"], server: Server, problem: Objective) -> None:
    solver.update(gradient)
    if isinstance(solver, ClosedForm) and isinstance(server, SummedServer):
        gram, moments = server.totals()
        solver.solve(gram / problem.samples, moments / problem.samples)


def _note(
    state: State,
    solver: Solver,
    query: Float[np.ndarray, "d c"],
    gradient: Float[np.ndarray, "d c"],
    problem: Objective,
    *,
    moved: bool,
) -> None:
    """Take the solver's model over, to be scored at the end of the block; ``moved``: the query is not the model."""
    state.model, state.solver = solver.model, solver.to_arrays()
    state.waiting_models.append(state.model.astype(problem.dtype))
    state.waiting_gradients.append(gradient)
    if moved or not solver.asks_at_model:
        state.waiting_queries.append(query.astype(problem.dtype))
    state.history.columns["learning_rate"].append(solver.rate)


@dataclass
class _Heard:
    """What the questions of one epoch brought."""

    costs: list[RoundCosts] = field(default_factory=list)
    seconds: dict[int, float] = field(default_factory=dict)
    """How long each device took for its replies."""
    lost: set[int] = field(default_factory=set)
    replies: dict[int, Message] = field(default_factory=dict)
    """Those to the last question."""

    def note(self, answer: Answer, server: Server) -> None:
        """Take in the answer to one more question."""
        self.replies = {reply.device: reply.message for reply in answer.replies}
        for reply in answer.replies:
            self.seconds[reply.device] = self.seconds.get(reply.device, 0.0) + reply.seconds
        self.lost |= set(answer.lost)
        costs, quorum = answer.costs, len(answer.replies)
        if costs.standing:
            quorum = server.quorum
        elif math.isfinite(costs.deadline):  # who came in time is chance; who is awaited is not
            quorum = min(server.quorum, len(costs.asked))
        self.costs.append(dataclasses.replace(costs, quorum=quorum, least=min(server.least, quorum)))

    def charge(self, engine: Engine, work: Work) -> None:
        """Let what the server computes after the last question take its time."""
        engine.charge_server(work.macs)
        self.costs[-1] = dataclasses.replace(self.costs[-1], server_macs=work.macs)


def _round(
    epoch: int,
    query: Float[np.ndarray, "d c"],
    state: State,
    server: Server,
    engine: Engine,
    scenario: Scenario,
) -> tuple[Float[np.ndarray, "d c"], _Heard, Float[np.ndarray, "d c"] | None]:
    offline = epoch == 1 and scenario.training.first_epoch_offline
    question, heard, work = server.broadcast(epoch, query), _Heard(), Work()
    heard.note(_asked(question, server, engine, offline=offline), server)
    while (further := server.follow_up(epoch, heard.replies, work)) is not None:
        heard.charge(engine, work)
        heard.note(_asked(further, server, engine, offline=offline), server)
        work = Work()
    gradient = server.combine(epoch, heard.replies, work)
    heard.charge(engine, work)
    state.now = engine.now
    _record(state.history, epoch, engine.now, heard, gradient)
    return gradient, heard, question.point


def _asked(question: Round, server: Server, engine: Engine, *, offline: bool) -> Answer:
    answer = engine.ask(question, server.enough, offline=offline, least=server.least)
    if len(answer.replies) < server.least:
        raise LostDevicesError(
            f"epoch {question.epoch} got {len(answer.replies)} of the {server.least} replies that it needs; the run is "
            "saved up to there: let it go on when devices are back, or choose a scheme that survives more losses"
        )
    return answer


def _record(history: History, epoch: int, now: float, heard: _Heard, gradient: Float[np.ndarray, "d c"]) -> None:
    values: dict[str, float] = {
        "epoch": epoch,
        "time": now,
        "gradient_norm": float(np.linalg.norm(gradient)),
        "replies": len(heard.replies),
        "down_bits": sum(int(costs.down_bits.sum()) for costs in heard.costs),
        "up_bits": sum(int(costs.up_bits.sum()) for costs in heard.costs),
        "d2d_bits": 0,
        "device_macs": sum(int(costs.macs.sum()) for costs in heard.costs),
        "server_macs": sum(costs.server_macs for costs in heard.costs),
    }
    for _, stage in history.stages_after(epoch - 1):
        for entry in stage:
            for link, bits in entry.bits().items():
                values[f"{link}_bits"] += bits
            values["device_macs"] += entry.export_macs + entry.absorb_macs
    for name, value in values.items():
        history.columns[name].append(value)
    history.add_round(*heard.costs)


def _score(state: State, problem: Objective, *, exact: bool) -> None:
    """Score the waiting models; where the scheme promises it, hold each gradient against the plaintext one."""
    count = len(state.waiting_models)
    queries = np.stack(state.waiting_queries) if state.waiting_queries else None
    scores = problem.score(np.stack(state.waiting_models), queries)
    before = np.concatenate([state.plain_gradient[None], scores.gradient[: count - 1]])
    plain = before if queries is None else scores.gradient[count:]
    columns = state.history.columns
    columns["accuracy"] += scores.accuracy.tolist()
    columns["loss"] += scores.loss.tolist()
    differences = np.linalg.norm(np.stack(state.waiting_gradients) - plain, axis=(1, 2))
    first = columns["gradient_norm"][0]  # of the first epoch: the scale that errors are relative to
    errors = differences / first if exact and first > 0 else np.full(len(differences), np.nan)
    columns["gradient_error"] += errors.tolist()
    state.plain_gradient = scores.gradient[count - 1]
    state.waiting_models, state.waiting_queries, state.waiting_gradients = [], [], []


def _reached(state: State, scenario: Scenario) -> bool:
    """Tell whether the last target has been met, for trainings that stop there (at the end of a scored block)."""
    targets, scores = scenario.training.targets, state.history.columns["accuracy"]
    wanted = scenario.training.stop_at_last_target and len(targets) > 0
    return wanted and not state.waiting_models and max(scores, default=-np.inf) >= targets[-1]


def _check_divergence(state: State, solver: Solver, problem: Objective, scenario: Scenario) -> None:
    columns = state.history.columns
    what, whose, at_zero, values = "loss", "that of the zero model", problem.zero_loss, columns["loss"]
    if math.isnan(at_zero):  # nobody here has the data
        values = columns["gradient_norm"]
        what, whose, at_zero = "norm of the gradient", "that of the first epoch", values[0]
    worst = np.max(values[-solver.block :])
    if worst <= _DIVERGED * max(at_zero, np.finfo(float).tiny):
        return
    advice = 'raise task.ridge or set task.precision = "float64"'
    if solver.stable_share is not None:
        stable, rate = solver.stable_share * problem.largest_stable_rate(), scenario.training.learning_rate
        limit = "lower" if math.isnan(stable) else f"below {stable:.3g}"
        advice = f"set training.learning_rate (now {rate:g}) {limit}"
        if rate < stable:
            advice = (
                f"lower training.learning_rate (now {rate:g}), for gradients of part of the data or of an old model "
                f"need less than the {stable:.3g} that would do for all data"
            )
    raise TrainingError(
        f"training diverged by epoch {state.epoch}: the {what} is {worst:.3g}, {whose} {at_zero:.3g}; {advice}"
    )
