"""Plans from costs that were counted before: the same as plans from nothing, whatever moved."""

from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.errors import NotCountedError
from codedfl.network import RandomBook
from codedfl.scenario import Scenario, load
from codedfl.schemes import SCHEMES
from codedfl.studies.epochs_to_target import EpochsToTarget
from codedfl.studies.plan import Shapes, plan
from codedfl.studies.plan.what_if import KeptCosts, KeptRandomBook, changed_settings

EPOCHS = EpochsToTarget({"gradient-descent": 30, "conjugate-gradients": 4})
FLEET = [
    {"count": 3, "mac_rate": 25e6},
    {"count": 2, "mac_rate": 5e6},
    {"count": 1, "mac_rate": 2.5e6},
    {"count": 1, "mac_rate": 1.25e6},
]
"""So few that a plan is made in a second, so unequal that each scheme which chooses by delays chooses differently
after some of the moves below."""
SMALL = load("paper-quick").with_settings(
    {
        "features.dimension": 12,
        "fleet.devices": FLEET,
        "schemes.drop-slowest.wait_for": 5,
        "schemes.he.backend": "costs",  # those of real ciphertexts (tests/schemes/sharing/test_he.py), which take long
    }
)
DEVICES = 7
NAMES = [name for name in SCHEMES if name != "code-based"]
"""The cipher needs larger codes than these tests have."""
CHOOSING = ("deadline", "parity", "coded-padded", "sealed-coded")
"""Schemes that choose by the delays of the fleet."""


def shapes_of(scenario: Scenario) -> Shapes:
    return Shapes.told(scenario, samples=280, outputs=3)


@pytest.fixture(scope="module")
def kept() -> KeptCosts:
    """Costs of every scheme, counted once."""
    found = KeptCosts()
    learn(found, SMALL)
    return found


def learn(kept: KeptCosts, scenario: Scenario) -> list[str]:
    """Count what is not known; return which schemes these are."""
    problem = kept.problem(scenario, shapes_of(scenario))
    cases = [scenario.with_settings({"scheme": name}) for name in NAMES]
    missing = [case for case in cases if not kept.known(case, problem)]
    for case in missing:
        kept.learn(case, problem)
    return [case.scheme for case in missing]


def tables(scenario: Scenario, kept: KeptCosts, draws: int = 6) -> tuple[Any, Any]:
    """The plan from kept costs, and the one from nothing."""
    options: dict[str, Any] = {"names": NAMES, "draws": draws, "epochs": EPOCHS}
    again = plan(scenario, shapes_of(scenario), counter=kept, **options).to_table()
    return again, plan(scenario, shapes_of(scenario), **options).to_table()


MOVES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "loss": {"links.loss": 0.35},
    "rates": {"links.up_rate": 9e5, "links.d2d_rate": 8e7, "links.down_rate": 1e6},
    "one channel": {"links.d2d_channel": "shared"},
    "overhead": {"links.overhead": 0.5},
    "speeds": {"fleet.devices": [{"count": 2, "mac_rate": 1e6}, {"count": 5, "mac_rate": 3e7}]},
    "server": {"fleet.server_mac_rate": 1e6},
    "seed": {"timing.seed": 5},
    "another draw": {"timing.draw": 3},
    "offline": {"training.first_epoch_offline": False},
    "options": {"schemes.sealed.delta": 0.01, "schemes.drop-slowest.wait_for": 3},
    "precision": {"task.precision": "float64"},
    "noise": {"privacy.epsilon": 3.0},
    "wrapped": {"schemes.secagg.inner": "sealed"},
}


@pytest.mark.parametrize("name", MOVES)
def test_whatever_moves_the_plan_is_the_same(kept: KeptCosts, name: str) -> None:
    moved = SMALL.with_settings(MOVES[name])
    learn(kept, moved)
    again, fresh = tables(moved, kept)
    assert again == fresh


@pytest.mark.parametrize("name", ["nothing", "server", "seed", "another draw"])
def test_what_only_changes_times_is_not_counted_again(kept: KeptCosts, name: str) -> None:
    assert learn(kept, SMALL.with_settings(MOVES[name])) == []


def test_what_is_chosen_by_delays_is_chosen_anew(kept: KeptCosts) -> None:
    """Or the tests above would show nothing about these schemes."""

    def choices(moves: dict[str, Any]) -> dict[str, Any]:
        moved = SMALL.with_settings(moves)
        problem = kept.problem(moved, shapes_of(moved))
        made = {name: schemes.create(moved.with_settings({"scheme": name}), problem) for name in CHOOSING}
        return {name: scheme.chosen_by_delays for name, scheme in made.items()}

    before, after = choices({}), [choices(MOVES[name]) for name in ("loss", "rates", "overhead", "speeds")]
    assert all(any(found[name] != before[name] for found in after) for name in CHOOSING)


def test_links_are_counted_again_only_where_a_scheme_chooses_by_them(kept: KeptCosts) -> None:
    fresh = KeptCosts()
    learn(fresh, SMALL)
    again = learn(fresh, SMALL.with_settings({"links.loss": 0.31}))
    assert set(again) <= set(CHOOSING)


def test_unknown_costs_are_named() -> None:
    fresh = KeptCosts()
    problem = fresh.problem(SMALL, shapes_of(SMALL))
    with pytest.raises(NotCountedError, match="'minibatch' are not counted yet"):
        fresh.count(SMALL.with_settings({"scheme": "minibatch"}), problem)


def test_counting_can_be_kept_waiting() -> None:
    pauses: list[int] = []
    fresh = KeptCosts()
    problem = fresh.problem(SMALL, shapes_of(SMALL))
    fresh.learn(SMALL.with_settings({"scheme": "parity"}), problem, lambda: pauses.append(1))
    assert len(pauses) > DEVICES * (1 + 12), "each device is made once, uploads, and replies in each counted epoch"


class TestRandomBook:
    def test_kept_numbers_are_the_same(self) -> None:
        book = KeptRandomBook()
        for _ in range(2):
            found = book.logarithms(3, range(2, 6), 7, 1, 4, 5)
            assert np.array_equal(found, RandomBook().logarithms(3, range(2, 6), 7, 1, 4, 5))
        with pytest.raises(ValueError, match="read-only"):
            found[0] = 0

    def test_a_block_is_its_epochs(self) -> None:
        whole = RandomBook().logarithms(3, range(2, 6), 7, 1, 4, 5).reshape(4, 4, 5)
        for place, epoch in enumerate(range(2, 6)):
            assert np.array_equal(whole[place], RandomBook().logarithms(3, (epoch,), 7, 1, 4, 5))

    def test_it_forgets_before_it_grows_too_large(self) -> None:
        book = KeptRandomBook(most=3 * 8 * 4 * 5)
        for epoch in range(10):
            book.logarithms(0, (epoch,), 0, 0, 4, 5)
            assert book._held <= 3 * 8 * 4 * 5


def test_changed_settings_make_the_scenario_again() -> None:
    moved = SMALL.with_settings(MOVES["speeds"] | MOVES["loss"] | {"privacy.epsilon": 2.0})
    changes = changed_settings(moved, SMALL)
    assert SMALL.with_settings(changes) == moved
    assert changes.keys() == {"fleet.devices", "links.loss", "privacy.epsilon"}
