"""The only training loop: a scheme on an engine serves a solver, epoch after epoch.

Devices are sent what the solver asks for; what is scored and kept is the solver's model. Models are scored in blocks
of fixed epochs, so that an interrupted and resumed training scores the very same blocks and ends with the same bits.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from codedfl.engines import Answer, Engine
from codedfl.errors import CipherError, LostDevicesError, TrainingError
from codedfl.network import RoundCosts
from codedfl.scenario import Scenario
from codedfl.schemes.contract import SERVER, Restored, Round, Scheme, Server, Stage
from codedfl.schemes.messages import Message, Work
from codedfl.schemes.rounding import reference_rounding
from codedfl.solvers import GradientDescent, Solver
from codedfl.task.objective import Objective
from codedfl.training.checking import SpoiltEpoch, Watch
from codedfl.training.records import StageRecord, State, overlapping
from codedfl.training.solving import create_solver

BLOCK = GradientDescent.block
"""Epochs of gradient descent that are scored together."""

_DIVERGED = 1e3


def train(
    problem: Objective,
    scenario: Scenario,
    scheme: Scheme[Any],
    engine: Engine,
    state: State,
    after_epoch: Callable[[State], None] = lambda state: None,
) -> State:
    """Train from ``state`` to the end; ``after_epoch`` sees the state after every epoch (to save it, to show it).

    Epochs with wrong replies are computed again (``codedfl.training.checking``).
    """
    server = scheme.server()
    _set_up(server, engine, state, scheme.public.devices)
    watch = Watch(server, engine, state)

    def go_on() -> None:
        _go_on(problem, scenario, scheme, server, engine, state, watch, after_epoch)

    while (spoilt := _attempt(go_on, watch)) is not None:
        if liars := watch.recover(spoilt):
            state.lost |= set(liars)
            _after_epoch(state.epoch, scheme, server, engine, state, {}, liars)
            state.server = dict(server.state()) if state.epoch else {}
        state.now = engine.now
    state.server = dict(server.state()) if state.epoch else {}
    return state


def _attempt(go_on: Callable[[], None], watch: Watch) -> SpoiltEpoch | None:
    """Train to the end; return an epoch with wrong replies, if one is found."""
    try:
        try:
            go_on()
            watch.settle()
        except LostDevicesError:
            watch.collect(wait=True)  # what is saved should be checked
            raise
        except (CipherError, TrainingError):  # wrong replies may be the reason
            watch.settle()
            raise
    except SpoiltEpoch as spoilt:
        return spoilt
    return None


def _go_on(
    problem: Objective,
    scenario: Scenario,
    scheme: Scheme[Any],
    server: Server,
    engine: Engine,
    state: State,
    watch: Watch,
    after_epoch: Callable[[State], None],
) -> None:
    solver = create_solver(problem, scenario, state, scheme.public.release)
    epochs, dtype, pull, survives = scenario.training.epochs, problem.dtype, problem.pull, scheme.survives_losses
    epoch, finished = state.epoch, solver.finished or _reached(state, scenario)
    while epoch < epochs and not finished:
        epoch += 1
        watch.begin()
        with np.errstate(over="ignore", invalid="ignore"):  # divergence is caught below, in words
            query = solver.query()
            offline = epoch == 1 and scenario.training.first_epoch_offline
            gradient, replies, point = _ask(epoch, query, state, server, engine, watch, offline=offline)
            state.complete &= replies.complete
            if point is not None:
                solver.asked_at(point)
            solver.update(gradient if pull is None else gradient + pull)
            if solver.needs_sums:
                _solve(solver, server, problem.samples, pull)
            state.model, state.solver = solver.model, solver.to_arrays()
            state.waiting_models.append(state.model.astype(dtype))
            state.waiting_gradients.append(gradient)
            state.waiting_norms.append(np.abs(query if point is None else point).sum(axis=0))
            if point is not None or not solver.asks_at_model:
                state.waiting_queries.append((query if point is None else point).astype(dtype))
            state.history.columns["learning_rate"].append(solver.rate)
            finished = solver.finished
            if epoch % solver.block == 0 or epoch == epochs or finished:
                _score(state, problem, scheme)
                _check_divergence(state, solver, problem, scenario)
                finished = finished or _reached(state, scenario)
        state.server = dict(server.state())  # if a device is lost in what follows, the run can be resumed from here
        state.lost |= replies.lost
        lost = sorted(replies.lost) if epoch < epochs else []  # after the last epoch there is nothing to repair
        if _after_epoch(epoch, scheme, server, engine, state, replies.seconds, lost) or lost:
            state.server = dict(server.state())
        state.history.columns["losses_left"][-1] = server.losses_left(survives, state.lost)
        state.now = engine.now
        after_epoch(state)


def first_gradient(scheme: Scheme[Any], engine: Engine, state: State, *, offline: bool) -> Float[np.ndarray, "d c"]:
    """Carry out the set-up and the first epoch alone; return the gradient at the zero model, minus B/m."""
    server, public = scheme.server(), scheme.public
    _set_up(server, engine, state, scheme.public.devices)
    watch, model = Watch(server, engine, state), np.zeros((public.features, public.outputs))
    while True:
        try:
            watch.begin()
            gradient, _, _ = _ask(1, model, state, server, engine, watch, offline=offline)
            watch.settle()
        except SpoiltEpoch as spoilt:
            _after_epoch(0, scheme, server, engine, state, {}, watch.recover(spoilt))
        else:
            return gradient


def _resumed(server: Server, engine: Engine, state: State, devices: int) -> Restored | None:
    """Go on with what devices have kept, if it suffices; devices that have lied stay out."""
    own, found = engine.kept()
    liars = {lie.device for lie in state.lies}
    holders = [device for device in found if device not in liars]
    restored = server.resume(state.server, own, holders, set(range(devices)) - state.lost - liars) if own else None
    if restored is not None:
        engine.recall(holders)
    return restored


def _recipients(stages: Iterable[Stage], others: Iterable[int] = ()) -> list[int]:
    return sorted({*others, *(each.recipient for stage in stages for each in stage.transfers)} - {SERVER})


def _set_up(server: Server, engine: Engine, state: State, devices: int) -> None:
    """Carry out the set-up before the first epoch, or bring a resumed training to where it was."""
    if state.epoch == 0:
        for stages in overlapping(server.set_up()):
            if lost := _carry(server, stages, 0, engine, state):
                raise LostDevicesError(
                    f"{len(lost)} devices (the first is number {lost[0]}) were gone before the set-up was over; "
                    "begin again when they are back, or leave them out of the fleet"
                )
        engine.keep(server.keep(), range(devices), anew=True)
        return
    state.lost = state.lost if engine.lost is None else set(engine.lost)
    repeated: Sequence[Stage] = ()
    restored = _resumed(server, engine, state, devices)
    if repeats := restored is None:
        repeated, restored = server.set_up(), server.restore(state.server)
    first = 0
    for stages in (*overlapping(repeated), *([stage] for stage in restored.stages)):
        engine.replay_overlapping(stages, first, server.receive)
        first += len(stages)
    engine.keep(server.keep(), _recipients(restored.stages, range(devices) if repeats else ()), anew=repeats)
    ends = [0.0, *state.history.columns["time"]]
    for question in restored.rounds:
        engine.reopen(question, ends[question.epoch - 1])


def _after_epoch(
    epoch: int,
    scheme: Scheme[Any],
    server: Server,
    engine: Engine,
    state: State,
    reply_seconds: Mapping[int, float],
    lost: Sequence[int],
) -> bool:
    """Carry out what the server wants sent after an epoch, for as long as it wants anything; tell whether it did."""
    known = set(lost)
    stage = server.after_epoch(epoch, reply_seconds, lost)
    if stage is None:
        return False
    for _ in range(2 * scheme.public.devices):  # each device can be lost once and replace another once
        lost = _carry(server, [stage], epoch, engine, state)
        if lost and known.issuperset(lost):  # the server knew, so it would ask for the same stage for ever
            raise LostDevicesError(
                f"the repair after epoch {epoch} asks again for device {lost[0]}, which is lost; the run is saved up "
                "to there: let it go on when the device is back, or choose another scheme"
            )
        known |= set(lost)
        state.lost |= set(lost)
        stage = server.after_epoch(epoch, {}, lost)
        if stage is None:
            return True
    raise TrainingError(f"the server has stage after stage sent after epoch {epoch} without an end; correct the scheme")


def _carry(server: Server, stages: Sequence[Stage], epoch: int, engine: Engine, state: State) -> Sequence[int]:
    """Carry out a stage, or several that overlap, and record them; return who was missing."""
    first, *others = stages
    number = epoch if first.retires else sum(not record.retires for record in state.history.stages)
    carried = engine.carry_overlapping(stages, number, server.receive) if others else None
    for stage, outcome in zip(stages, carried or [engine.carry(first, number, server.receive)], strict=False):
        if outcome.lost:
            return outcome.lost
        state.history.add_stage(StageRecord(epoch, outcome.costs, stage.retires, stage.after))
        if epoch > 0:
            engine.keep(server.keep(), _recipients([stage]), anew=False)
    return ()


def _solve(solver: Solver, server: Server, samples: int, pull: Float[np.ndarray, "d c"] | None) -> None:
    """Give the solver the sums over all data, if the server has them."""
    totals = server.totals()
    if totals is not None:
        gram, moments = totals
        right = moments / samples
        solver.solve(gram / samples, right if pull is None else right - pull)


@dataclass
class EpochReplies:
    """What the rounds of one epoch brought."""

    costs: list[RoundCosts] = field(default_factory=list)
    seconds: dict[int, float] = field(default_factory=dict)
    """How long each device took for its replies, with what it computed beforehand."""
    lost: set[int] = field(default_factory=set)
    messages: dict[int, Message] = field(default_factory=dict)
    """The replies to the last round."""
    complete: bool = True
    """Whether every round got as many replies as it awaited."""

    def note(self, question: Round, answer: Answer) -> None:
        """Take in the answer to one more round; refuse one with too few replies."""
        if len(answer.replies) < question.least:
            raise LostDevicesError(
                f"epoch {question.epoch} got {len(answer.replies)} of the {question.least} replies that it needs; the "
                "run is saved up to there: let it go on when devices are back, or choose a scheme that survives more "
                "losses"
            )
        self.messages = {reply.device: reply.message for reply in answer.replies}
        for reply in answer.replies:
            took = reply.seconds + reply.offline_seconds
            self.seconds[reply.device] = self.seconds.get(reply.device, 0.0) + took
        self.lost |= set(answer.lost)
        self.complete &= len(answer.replies) >= question.quorum
        costs, quorum = answer.costs, len(answer.replies)
        if costs.standing:
            quorum = question.quorum
        elif math.isfinite(costs.deadline):  # who came in time is chance; who is awaited is not
            quorum = min(question.quorum, len(costs.asked))
        self.costs.append(dataclasses.replace(costs, quorum=quorum, least=min(question.least, quorum)))

    def charge(self, engine: Engine, work: Work) -> None:
        """Let what the server computes after the last round take its time."""
        engine.charge_server(work.macs)
        self.costs[-1] = dataclasses.replace(self.costs[-1], server_macs=work.macs)


def _ask(
    epoch: int,
    query: Float[np.ndarray, "d c"],
    state: State,
    server: Server,
    engine: Engine,
    watch: Watch,
    *,
    offline: bool,
) -> tuple[Float[np.ndarray, "d c"], EpochReplies, Float[np.ndarray, "d c"] | None]:
    """Go through the rounds of an epoch; return the gradient, the replies, and the point of the gradient if told."""
    replies, work = EpochReplies(), Work()
    first = server.ask(epoch, query)
    replies.note(first, engine.ask(watch.put(first), offline=offline))
    watch.answered(first, replies.messages)
    while (further := server.follow_up(epoch, replies.messages, work)) is not None:
        replies.charge(engine, work)
        replies.note(further, engine.ask(further, offline=offline))
        work = Work()
    gradient = server.combine(epoch, replies.messages, work)
    replies.charge(engine, work)
    state.now = now = engine.now
    norm = float(np.linalg.norm(gradient))
    values = {"epoch": epoch, "time": now, "gradient_norm": norm, "replies": len(replies.messages)}
    state.history.add_epoch(replies.costs, **values, losses_left=0)  # known when what was lost is replaced
    return gradient, replies, first.point


def _score(state: State, problem: Objective, scheme: Scheme[Any]) -> None:
    """Score the waiting models; where the scheme promises it, hold each gradient against the plaintext one."""
    count = len(state.waiting_models)
    queries = np.stack(state.waiting_queries) if state.waiting_queries else None
    scores = problem.score(np.stack(state.waiting_models), queries)
    before = np.concatenate([state.plain_gradient[None], scores.gradient[: count - 1]])
    plain = before if queries is None else scores.gradient[count:]
    columns = state.history.columns
    columns["accuracy"] += scores.accuracy.tolist()
    columns["loss"] += scores.loss.tolist()
    gradients = np.stack(state.waiting_gradients) - plain
    differences = np.linalg.norm(gradients, axis=(1, 2))
    first = columns["gradient_norm"][0] or math.nan  # of the first epoch: nothing is relative to zero
    comparable = scheme.exact and scheme.public.release is None  # noise is no error
    errors = differences / first if comparable else np.full(len(differences), np.nan)
    columns["gradient_error"] += errors.tolist()
    bounds = _hold(scheme, np.stack(state.waiting_norms), gradients, state) * math.sqrt(problem.shape[0])
    columns["gradient_bound"] += (np.linalg.norm(bounds, axis=1) / first).tolist()
    state.plain_gradient = scores.gradient[count - 1]
    state.waiting_models, state.waiting_queries, state.waiting_gradients, state.waiting_norms = [], [], [], []


def _hold(
    scheme: Scheme[Any], norms: Float[np.ndarray, "b c"], errors: Float[np.ndarray, "b d c"], state: State
) -> Float[np.ndarray, "b c"]:
    """Hold errors of gradients against the bounds that the scheme states; return these, NaN if it states none.

    Where replies were missing, a scheme that goes on without them has the gradient of the others.
    """
    rounding, public = scheme.rounding if scheme.exact else None, scheme.public
    if rounding is None or not state.complete or public.release is not None:
        return np.full_like(norms, np.nan)
    samples = sum(public.samples)
    bounds = rounding.entries(norms, samples) + reference_rounding(public, state.epoch).entries(norms, samples)
    largest = np.abs(errors).max(axis=1)
    largest[~np.isfinite(largest)] = 0.0  # numbers overflowed: the training diverges, which is said in words of its own
    if np.any(largest > bounds):
        which, output = np.unravel_index(np.argmax(largest / bounds), bounds.shape)
        raise TrainingError(
            f"scheme = '{scheme.name}' breaks its promise in epoch {state.epoch - len(norms) + int(which) + 1}: an "
            f"entry of the gradient is off by {largest[which, output]:.3g} where its number formats allow "
            f"{bounds[which, output]:.3g}; correct the scheme, or the bounds on the data"
        )
    return np.asarray(bounds)


def _reached(state: State, scenario: Scenario) -> bool:
    """Tell whether the last target has been met, for trainings that stop there (at the end of a scored block)."""
    targets, scores = scenario.training.targets, state.history.columns["accuracy"]
    wanted = scenario.training.stop_at_last_target and len(targets) > 0
    return wanted and not state.waiting_models and max(scores, default=-np.inf) >= targets[-1]


def _check_divergence(state: State, solver: Solver, problem: Objective, scenario: Scenario) -> None:
    columns = state.history.columns
    first = "zero" if problem.start is None else "first"
    what, whose, at_zero, values = "loss", f"that of the {first} model", problem.zero_loss, columns["loss"]
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
