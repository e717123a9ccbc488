"""Watches a simulated training: an engine that notes on a board what devices do, and the observer of the run."""

import math
from collections.abc import Callable, Sequence
from typing import Any, final

from codedfl.deploy.flare.names import site_names
from codedfl.deploy.server.board import Board, metric_of
from codedfl.engines.contract import Answer, Engine, Receive, Reply, StageOutcome
from codedfl.runs.backend import RunBackend, SimulationBackend
from codedfl.runs.observing import Observer
from codedfl.schemes.contract import Round, Stage
from codedfl.training import State

_GONE = "it left the fleet after its last epoch"


@final
class BoardedEngine(Engine):
    """Passes everything on to an engine, and notes it on a board."""

    def __init__(self, inner: Engine, board: Board) -> None:
        self._inner = inner
        self._board = board

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return self._inner.now

    def ask(self, question: Round, *, offline: bool) -> Answer:
        """Ask, and note requests, replies and losses."""
        answer = self._inner.ask(question, offline=offline)
        over = {*answer.lost, *(reply.device for reply in answer.replies)}
        self._board.asked(device for device in question.requests if device not in over)  # they are not awaited
        for reply in answer.replies:
            self._board.replied(reply.device, question.epoch, reply.seconds, None)
        self._board.lost(dict.fromkeys(answer.lost, _GONE))
        return answer

    def late(self, *, wait: bool = False) -> Sequence[tuple[Round, Reply]]:
        """Return late replies, and note them."""
        found = self._inner.late(wait=wait)
        for question, reply in found:
            self._board.replied(reply.device, question.epoch, reply.seconds, None)
        return found

    def drop(self, device: int, reason: str) -> None:
        """Note that a device is asked nothing more."""
        self._inner.drop(device, reason)
        self._board.lost({device: reason})

    def reopen(self, question: Round, began: float) -> None:
        """Go on waiting for replies."""
        self._inner.reopen(question, began)
        self._board.asked(question.requests)

    def carry(self, stage: Stage, number: int, receive: Receive) -> StageOutcome:
        """Carry out a stage, and note its transfers."""
        outcome = self._inner.carry(stage, number, receive)
        self._carried(stage, outcome)
        return outcome

    def carry_overlapping(self, stages: Sequence[Stage], first: int, receive: Receive) -> Sequence[StageOutcome]:
        """Carry out stages that overlap, and note their transfers."""
        outcomes = self._inner.carry_overlapping(stages, first, receive)
        for stage, outcome in zip(stages, outcomes, strict=False):
            self._carried(stage, outcome)
        return outcomes

    def _carried(self, stage: Stage, outcome: StageOutcome) -> None:
        self._board.lost(dict.fromkeys(outcome.lost, _GONE))
        if not outcome.lost:
            self._note(stage)

    def replay(self, stage: Stage, receive: Receive) -> None:
        """Repeat a stage, and note its transfers."""
        self._inner.replay(stage, receive)
        self._note(stage)

    def charge_server(self, macs: int) -> None:
        """Let the server's own computing take its time."""
        self._inner.charge_server(macs)

    def _note(self, stage: Stage) -> None:
        note = self._board.handed_over if stage.retires else self._board.sent
        for transfer in stage.transfers:
            note(transfer.sender, transfer.recipient)


@final
class SimulationObserver(Observer):
    """Keeps the board of a simulated run, at any time readable by other threads; ``begun`` is called at its start."""

    def __init__(self, devices: int, begun: Callable[[], object] = lambda: None) -> None:
        self._begun = begun
        self._board = Board(site_names(devices), every=math.inf)
        self._board.progress("starting", 0, 0)

    def progress(self, stage: str, done: int, total: int) -> None:
        """Show the progress of the run."""
        self._board.progress(stage, done, total)

    def begin(self, backend: RunBackend, engine: Engine, state: State) -> Engine:
        """Show where the training starts; return the engine with a board."""
        board = Board(_names(backend), every=math.inf)
        for device, samples in enumerate(backend.scheme.public.samples):
            board.samples(device, samples)
        board.progress(f"training {backend.scenario.scheme}", state.epoch, backend.scenario.training.epochs)
        board.begin(state, metric_of(backend))
        self._board = board
        self._begun()
        return BoardedEngine(engine, board)

    def after_epoch(self, state: State) -> None:
        """Show an epoch."""
        self._board.epoch_done(state)

    def as_table(self) -> dict[str, Any]:
        """Return the state as it is now."""
        return self._board.as_table()


def _names(backend: RunBackend) -> Sequence[str]:
    """Return the owners of the data, or numbers of devices."""
    raw = backend.problem.raw if isinstance(backend, SimulationBackend) else None
    owners = () if raw is None else raw.owners
    return [str(name) for name in owners] or site_names(backend.scenario.fleet.size)
