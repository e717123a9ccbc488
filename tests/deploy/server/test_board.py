"""The board: what it says of devices, and how often it is shown."""

from typing import Any

import numpy as np

from codedfl.deploy.server.board import Board
from codedfl.training import State


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def rows(board: Board) -> dict[str, dict[str, Any]]:
    return {row["site"]: row for row in board.as_table()["devices"]}


def test_a_board_begins_with_everybody_waiting_for_their_own_data() -> None:
    board = Board(["a", "b"])
    board.samples(1, 7)
    assert [(row["site"], row["state"], row["samples_held"]) for row in board.as_table()["devices"]] == [
        ("a", "waiting", 0),
        ("b", "waiting", 7),
    ]


def test_replies_and_parcels_are_counted_where_they_belong() -> None:
    board = Board(["a", "b"])
    board.asked([0, 1])
    board.replied(1, 4, 0.5, 0.2)
    board.sent(0, 1)
    board.sent(0, -1)
    found = rows(board)
    assert (found["a"]["state"], found["b"]["state"]) == ("working", "replied")
    assert [found["b"][name] for name in ("last_epoch", "last_seconds", "last_working_seconds")] == [4, 0.5, 0.2]
    assert [(row["parcels_sent"], row["parcels_taken"]) for row in found.values()] == [(2, 0), (0, 1)]


def test_data_follow_hand_overs_and_are_never_doubled() -> None:
    board = Board(["a", "b", "c"])
    for device, samples in enumerate((1, 10, 100)):
        board.samples(device, samples)
    board.handed_over(0, 1)
    board.handed_over(1, 2)
    found = rows(board)
    assert [found[site]["samples_held"] for site in "abc"] == [0, 0, 111]
    assert found["c"]["holds_data_of"] == ["a", "b", "c"]
    assert [found[site]["state"] for site in "abc"] == ["handed over", "handed over", "waiting"]


def test_who_is_lost_stays_lost_for_the_first_reason() -> None:
    board = Board(["a", "b"])
    board.lost({1: "it is gone"})
    board.lost({1: "another reason"})
    assert (rows(board)["b"]["state"], rows(board)["b"]["reason"]) == ("lost", "it is gone")


def test_it_is_shown_at_most_every_so_often_but_for_what_matters() -> None:
    shown: list[dict[str, Any]] = []
    clock = Clock()
    board = Board(["a", "b"], shown.append, every=1.0, clock=clock)
    board.asked([0])
    assert len(shown) == 1
    for _ in range(5):
        clock.now += 0.1
        board.replied(0, 1, 0.1, 0.1)
    assert len(shown) == 1
    clock.now += 0.6
    board.replied(0, 2, 0.1, 0.1)
    assert len(shown) == 2
    board.handed_over(0, 1)
    board.lost({0: "gone"})
    assert len(shown) == 4
    board.progress("training", 1, 3)
    board.progress("training", 2, 3)
    assert len(shown) == 5, "a new stage, but not every step of it"
    board.progress("training", 3, 3)
    assert (shown[-1]["stage"], shown[-1]["done"], shown[-1]["total"]) == ("training", 3, 3)
    board.finish()
    assert (shown[-1]["stage"], shown[-1]["done"], shown[-1]["total"]) == ("finished", 3, 3)


def test_epochs_and_scores_stand_beside_the_devices() -> None:
    shown: list[dict[str, Any]] = []
    board = Board(["a", "b"], shown.append)
    state = State(np.zeros((1, 1)), np.zeros((1, 1)))
    board.begin(state, "r2")
    assert (shown[-1]["metric"], shown[-1]["epoch"], shown[-1]["epochs"]) == ("r2", 0, [])
    state.history.columns |= {"accuracy": [0.25], "time": [2.0]}
    state.history.round_of_epoch.append(0)
    board.epoch_done(state)
    board.lost({1: "it is gone"})
    assert (shown[-1]["epoch"], shown[-1]["epochs"], shown[-1]["score"]) == (1, [[1, 2.0, 0.25]], 0.25)
    assert [row["lost_in_epoch"] for row in shown[-1]["devices"]] == [None, 2]
