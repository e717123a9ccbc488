"""Emulating sites whose server or peers deviate: a bounded number of parcels takes memory and threads."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from codedfl.deploy.protocol.wire import Frame
from codedfl.deploy.site.emulation import MOST_EMULATED, Emulation, TransferEvent
from codedfl.deploy.site.parcels import Parcel, Transit
from deploy.server.test_hostile import STAGE, Pair
from deploy.site.test_host import GIVEN, reason, sealed


def test_stages_are_counted_before_memory_is_taken_for_them() -> None:
    """On emulated links every parcel of a stage takes memory, those of other devices included."""
    pair = Pair()
    assert pair.host._run is not None
    pair.host._run.slow = Emulation.of_scenario(pair.asker.scenario, 0)
    most = {"epoch": None, "stage": 0, "parcels": MOST_EMULATED - 1}
    few = {**most, "parcels": 1}
    rows: list[list[Any]] = [[5, "device-2", 0]]
    for stages in (
        [{**STAGE, "occasion": most, "first": 10 * place, "export": []} for place in range(2)],
        [{**STAGE, "occasion": few, "first": 4, "export": rows}],
    ):
        own = {"stage": 1, "stages": stages}
        answer = pair.asker.ask("carry", sealed(pair.told, {}, own), **own)
        assert "does not say how many parcels it has" in reason(answer)


def test_parcels_that_wait_for_their_turn_are_bounded() -> None:
    """A peer whose parcels are for turns that never come keeps a few threads of an emulating site, and no more."""
    pair = Pair()
    run = pair.host._run
    assert run is not None
    run.slow = Emulation.of_scenario(pair.asker.scenario, 0)
    transit = Transit(TransferEvent(stage=0, parcels=1), 1000, False, 1.0, 1e6)
    moments = {"moments": np.zeros(GIVEN.shape, np.uint64)}
    answers: list[Frame] = []
    closed = [pair.peer.close("device-1", Parcel(1, n, moments, transit).to_bytes()) for n in range(9)]
    threads = [threading.Thread(target=lambda each=each: answers.append(pair.bring(each))) for each in closed]
    for thread in threads:
        thread.start()
        if thread is not threads[-1]:
            _until(lambda: sum(run.inbox._arriving.values()) + len(answers) > threads.index(thread))  # noqa: B023
    threads[-1].join()
    assert run.inbox._arriving["device-2"] == run.inbox._most_parcels < len(threads)
    assert {answer.kind for answer in answers} == {"refused"}
    assert all("are on their way; send no more" in answer.fields["reason"] for answer in answers)
    pair.host.close()
    for thread in threads:
        thread.join()
    assert run.inbox._arriving["device-2"] == 0


@pytest.mark.parametrize("kind", ["many", "repeated", "improper"])
def test_parcels_that_are_not_stored_take_no_turns_on_an_emulated_link(kind: str) -> None:
    """Relayed ones, for which no thread waits, each in a turn or a stage of its own."""
    pair = Pair()
    run = pair.host._run
    assert run is not None
    run.slow = Emulation.of_scenario(pair.asker.scenario, 0)
    moments = {"x" if kind == "improper" else "moments": np.zeros(GIVEN.shape, np.uint64)}
    for turn in range(50):
        transit = Transit(TransferEvent(stage=0, parcels=1 + turn), turn, True, 1.0, 1e6)
        parcel = Parcel(1 + turn % 7, turn, moments, transit) if kind == "many" else Parcel(1, 0, moments, transit)
        pair.bring(pair.peer.close("device-1", parcel.to_bytes()))
    links = run.reception._links.values()
    assert sum(len(link.waiting) + len(link.ends) for link in links) <= run.inbox._most_parcels
    assert len(links) <= run.inbox._most_parcels


def _until(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.001)
