"""What an engine does unless it says otherwise."""

from collections.abc import Sequence

import pytest

from codedfl.engines import Answer, Engine
from codedfl.engines.contract import Receive, StageOutcome
from codedfl.schemes import Round, Stage


class Noting(Engine):
    """Carries out nothing; stages without transfers lack device 7."""

    def __init__(self) -> None:
        self.carried: list[tuple[int, int]] = []
        self.replayed: list[int] = []
        self.stages: list[Stage] = []

    @property
    def now(self) -> float:
        return 0.0

    def ask(self, question: Round, *, offline: bool) -> Answer:
        raise AssertionError

    def reopen(self, question: Round, began: float) -> None:
        raise AssertionError

    def carry(self, stage: Stage, number: int, receive: Receive) -> StageOutcome:
        self.carried.append((self.stages.index(stage), number))
        return StageOutcome([], () if stage.retires else (7,))

    def replay(self, stage: Stage, receive: Receive) -> None:
        self.replayed.append(self.stages.index(stage))

    def charge_server(self, macs: int) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("whole", "carried"),
    [
        ((), []),
        ((True, True, True), [(0, 5), (1, 6), (2, 7)]),
        ((True, False, True), [(0, 5), (1, 6)]),
        ((False, True), [(0, 5)]),
    ],
)
def test_stages_that_may_overlap_are_carried_out_one_by_one_to_the_first_that_lacks_a_device(
    whole: Sequence[bool], carried: list[tuple[int, int]]
) -> None:
    engine = Noting()
    engine.stages = [Stage([], retires=each, after=(number,)) for number, each in enumerate(whole)]
    outcomes = engine.carry_overlapping(engine.stages, 5, lambda *_: None)
    assert engine.carried == carried
    assert [outcome.lost for outcome in outcomes] == [() if each else (7,) for each in whole[: len(carried)]]
    engine.replay_overlapping(engine.stages, 5, lambda *_: None)
    assert engine.replayed == list(range(len(whole)))


def test_by_default_nothing_is_late_lost_or_kept() -> None:
    engine = Noting()
    engine.drop(0, "gone")
    engine.keep({}, [0], anew=True)
    engine.recall([0])
    assert (list(engine.late()), list(engine.late(wait=True))) == ([], [])
    assert engine.lost is None
    message, devices = engine.kept()
    assert (dict(message), list(devices)) == ({}, [])
