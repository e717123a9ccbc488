"""Many timing draws of a sharing scheme: by hand, and against the event-driven run."""

import dataclasses
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.engines import VirtualEngine
from codedfl.errors import ScenarioError
from codedfl.network import DelayModel, RoundCosts, TransferCosts
from codedfl.scenario import Fleet, Links, Scenario
from codedfl.schemes import Scheme
from codedfl.schemes.sharing.policy import Handover, SharingPolicy
from codedfl.task import Problem
from codedfl.training import State, train
from codedfl.training.costs import SharedCosts, measure
from codedfl.training.timing import Variant, epoch_ends
from tiny import gamma, moved, problem, scenario, trained

# Nothing is left to chance, and powers of two keep every number exact.
LINKS = Links(down_rate=64.0, up_rate=32.0, d2d_rate=16.0, overhead=0.5, loss=0.0)
FLEET = Fleet(
    devices=[{"count": 2, "mac_rate": 8.0, "setup_ratio": 0.0}, {"count": 2, "mac_rate": 1.0, "setup_ratio": 0.0}],
    server_mac_rate=1024.0,
)


def rounds(down: int, macs: int, up: int, server: int) -> RoundCosts:
    each = np.ones(4, dtype=np.int64)
    return RoundCosts(np.arange(4), down * each, macs * each, up * each, quorum=4, server_macs=server)


COSTS = SharedCosts(
    first=rounds(0, 0, 32, 512),
    other=rounds(64, 16, 64, 1024),
    granted=TransferCosts(0, 0, grant_bits=64, export_macs=4, parcel_bits=32, absorb_macs=8),
    forwarded=TransferCosts(0, 0, grant_bits=0, export_macs=0, parcel_bits=32, absorb_macs=8),
)


def by_hand(supports: int, *, delta: float = 1.0, parallel: bool = False) -> Variant:
    policy = partial(SharingPolicy, devices=4, supports=supports, delta=delta, supply="once")
    return Variant(COSTS, policy, parallel)


def test_four_epochs_by_hand() -> None:
    """Epoch 1: up 32 * 1.5/32 = 1.5, server 512/1024 = 0.5                                           -> 2.

    Epoch 2: down 64 * 1.5/64 = 1.5; 16 MAC take 2 s on devices 0 and 1, 16 s on 2 and 3; up 64 * 1.5/32 = 3:
    replies at 6.5 and 20.5; server 1                                                                 -> 23.5.
    Devices 2 and 3 straggle and send to 0: grant 64 * 1.5/64 = 1.5, encrypt 4/1 = 4, parcel 32 * 1.5/16 = 3 each,
    one after the other: 1.5 + 4 + 3 + 3 = 11.5; adding up 16/8 = 2: 13.5 (in parallel 10.5).
    Epochs 3 and 4 take 6.5 + 1 = 7.5 each; without supports, or within Delta = 14, 21.5 each as before.
    """
    delays = DelayModel.create(FLEET, LINKS)
    variants = [by_hand(2), by_hand(2, parallel=True), by_hand(0), by_hand(2, delta=14.0)]
    ends = epoch_ends(variants, delays, epochs=4, seed=0, draws=3)
    shared, parallel, starved, patient = (variant.tolist() for variant in ends)
    assert shared == [[2.0, 23.5, 23.5 + 13.5 + 7.5, 23.5 + 13.5 + 15.0]] * 3
    assert parallel == [[2.0, 23.5, 23.5 + 10.5 + 7.5, 23.5 + 10.5 + 15.0]] * 3
    assert starved == patient == [[2.0, 23.5, 45.0, 66.5]] * 3


def test_a_hand_over_after_the_last_epoch_is_not_waited_for() -> None:
    delays = DelayModel.create(FLEET, LINKS)
    assert epoch_ends([by_hand(2)], delays, epochs=2, seed=0, draws=2)[0].tolist() == [[2.0, 23.5]] * 2


def test_costs_of_a_hand_over() -> None:
    assert COSTS.of(Handover(3, 1, 0)) == TransferCosts(3, 1, 64, 4, 32, 8)
    assert COSTS.of(Handover(2, 0, None)) == TransferCosts(2, 0, 0, 0, 32, 8)


def test_progress_counts_epochs() -> None:
    seen: list[tuple[int, int]] = []
    delays = DelayModel.create(FLEET, LINKS)
    epoch_ends([by_hand(2)], delays, epochs=3, seed=0, draws=2, progress=lambda *at: seen.append(at))
    assert seen == [(1, 3), (2, 3), (3, 3)]


OPTIONS = {"n": 24, "degree": 3, "t_tot": 8, "t": 4, "M": 4, "beta": 2, "delta": 1e-3, "supply": "reissued"}
EPOCHS = 12


@cache
def given() -> Problem:
    return problem([7] * 25, features=12, dtype="float32")


def wanted(changes: dict[str, Any] | None = None, **options: Any) -> Scenario:
    settings = {"scheme": "code-based", "training.epochs": EPOCHS, "schemes.code-based": {**OPTIONS, **options}}
    return scenario({**settings, **(changes or {})})


def sharing(chosen: Scenario) -> Scheme[Any]:
    return schemes.create(chosen, given())


def variant(chosen: Scenario) -> Variant:
    scheme = sharing(chosen)
    assert scheme.sharing is not None
    costs = measure(scheme, given(), first_offline=chosen.training.first_epoch_offline)
    return Variant(costs, scheme.sharing.policy, scheme.sharing.parallel)


def drawn(chosen: Scenario, draws: int, *more: Variant) -> np.ndarray:
    delays = DelayModel.create(chosen.fleet, chosen.links)
    return epoch_ends([variant(chosen), *more], delays, epochs=EPOCHS, seed=chosen.timing.seed, draws=draws)


CHOICES = {
    "once": {"supply": "once"},
    "reissued": {"supply": "reissued"},
    "parallel": {"parallel_reception": True},
    "odd": {"M": 3},
    "impatient": {"delta": 0.0, "M": 6},
    "patient": {"delta": 1e9},
}


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("draw", [0, 3])
def test_the_row_of_a_draw_is_the_event_driven_run_of_that_draw(name: str, draw: int) -> None:
    """Both add the same times in the order of events; an epoch adds a handful, each rounded once."""
    chosen = wanted({"timing.draw": draw}, **CHOICES[name])
    state = trained(given(), chosen)
    row = drawn(chosen, 5)[0, draw]
    assert np.all(abs(row - state.history.columns["time"]) <= gamma(8 * EPOCHS, "float64") * row)


def test_the_runs_above_share_and_forward() -> None:
    """Else they would say little."""
    found = [moved(trained(given(), wanted({"timing.draw": draw}, **CHOICES["reissued"]))) for draw in (0, 3)]
    supports = [support for moves in found for _, _, support in moves]
    assert None in supports
    assert supports.count(None) < len(supports)
    assert found[0] != found[1], "draws differ"


@pytest.mark.parametrize("offline", [True, False])
def test_measured_costs_are_those_of_the_run(offline: bool) -> None:
    chosen = wanted({"training.first_epoch_offline": offline})
    state: State = trained(given(), chosen)
    costs = measure(sharing(chosen), given(), first_offline=offline)
    for epoch, number in enumerate(state.history.round_of_epoch, start=1):
        noted, measured = state.history.rounds[number], costs.first if epoch == 1 else costs.other
        for name in ("down_bits", "macs", "up_bits"):
            assert np.array_equal(getattr(measured, name)[noted.asked], getattr(noted, name))
        assert measured.server_macs == noted.server_macs
        assert np.array_equal(measured.asked, np.arange(25))
    kinds = set()
    for (_, _, support), (_, noted) in zip(moved(state), state.history.handovers, strict=True):
        assert costs.of(Handover(noted.sender, noted.recipient, support)) == noted
        kinds.add(support is None)
    assert kinds == {True, False}


def test_several_variants_at_once_are_each_as_if_alone() -> None:
    """To the last bit: they meet the same random delays, and none disturbs another."""
    chosen = {name: wanted(**options) for name, options in CHOICES.items()}
    variants = [variant(one) for one in chosen.values()]
    delays = DelayModel.create(wanted().fleet, wanted().links)
    together = epoch_ends(variants, delays, epochs=EPOCHS, seed=0, draws=6)
    for number, one in enumerate(chosen.values()):
        assert np.array_equal(together[number], drawn(one, 6)[0])
    assert len({row.tobytes() for row in together}) == len(together), "variants differ"


def test_a_draw_does_not_depend_on_how_many_there_are() -> None:
    assert np.array_equal(drawn(wanted(), 9)[0, :4], drawn(wanted(), 4)[0])


def test_policies_are_not_used_up() -> None:
    one = variant(wanted(supply="once"))
    delays = DelayModel.create(wanted().fleet, wanted().links)
    first, second = (epoch_ends([one], delays, epochs=EPOCHS, seed=0, draws=3) for _ in range(2))
    assert np.array_equal(first, second)


def test_times_increase() -> None:
    assert np.all(np.diff(drawn(wanted(), 20)[0], axis=1) > 0)


def test_measuring_leaves_the_data_as_it_was() -> None:
    """Devices of its own reply and hand over; those of a run made afterwards hold what they would have held."""
    chosen = wanted()
    before = trained(given(), chosen)
    measure(sharing(chosen), given(), first_offline=True)
    assert np.array_equal(trained(given(), chosen).model, before.model)


def test_a_fleet_of_one_is_measured_too() -> None:
    alone = problem([20], features=12, dtype="float32")
    chosen = wanted({"fleet.devices": [{"count": 1, "mac_rate": 1e6}]})
    scheme = schemes.create(chosen, alone)
    costs = measure(scheme, alone, first_offline=True)
    assert costs.other.macs.tolist() == [3 * 12 * 24]


def test_detection_in_the_first_epoch_by_hand() -> None:
    """The first gradient takes 8 MAC: 1 s on devices 0 and 1, 8 s on 2 and 3, beforehand; uploads 1.5 s, server 0.5.

    Reported times 2.5 and 9.5: with Delta = 1, 2 and 3 hand over after epoch 1, which ends at 2; that takes 13.5 s as
    in the test above, and then epochs take 7.5 s. With Delta = 7 nobody straggles in epoch 1, but in epoch 2 (by 14 s).
    """
    opening = [(COSTS.first, rounds(0, 8, 0, 0))]
    costs = dataclasses.replace(COSTS, opening=opening)
    ends = []
    for delta in (1.0, 7.0):
        policy = partial(SharingPolicy, devices=4, supports=2, delta=delta, supply="once", detect_from=1)
        (found,) = epoch_ends([Variant(costs, policy)], DelayModel.create(FLEET, LINKS), epochs=3, seed=0, draws=2)
        ends.append(found.tolist())
    assert ends[0] == [[2.0, 2.0 + 13.5 + 7.5, 2.0 + 13.5 + 15.0]] * 2
    assert ends[1] == [[2.0, 23.5, 23.5 + 13.5 + 7.5]] * 2


READINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "code-based": ("code-based", {}),
    "two errors": ("code-based", {"odd_set": "two-errors"}),
    "sealed": ("sealed", {}),
    "he": ("he", {"backend": "costs"}),
    "masked": ("secagg", {"inner": "sealed"}),
}


@pytest.mark.parametrize("offline", [True, False])
@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("name", READINGS)
def test_draws_are_runs_with_either_first_epoch(name: str, first: int, offline: bool) -> None:
    """To the last bit: a run and its draw add the same numbers in the same order.

    The server is so fast that its work takes no time: in draws it takes pads away before there are any.
    """
    scheme, options = READINGS[name]
    inner = "sealed" if scheme == "secagg" else scheme
    tables = {"code-based": OPTIONS, "sealed": {"delta": 1e-4}, "he": {"delta": 1e-3}, "secagg": {}}
    tables[scheme] = {**tables[scheme], **options}
    tables[inner] = {**tables[inner], "detect_from": first}
    chosen = scenario(
        {
            "scheme": scheme,
            "training.epochs": EPOCHS,
            "training.first_epoch_offline": offline,
            "timing.draw": 2,
            "fleet.server_mac_rate": 1e300,
            **{f"schemes.{key}": table for key, table in tables.items()},
        }
    )
    few = problem([7, 5, 9, 7, 4] * 5, features=12, dtype="float32")
    history = trained(few, chosen).history
    one = Variant.create(schemes.create(chosen, few), few, history, first_offline=offline)
    assert one is not None
    delays = DelayModel.create(chosen.fleet, chosen.links)
    (ends,) = epoch_ends([one], delays, epochs=EPOCHS, seed=chosen.timing.seed, draws=4)
    assert ends[2].tolist() == history.columns["time"]
    assert min(epoch for epoch, _ in history.handovers) == first
    counted = history.rounds[
        history.questions()[0][-2 if scheme == "secagg" and len(history.questions()[0]) > 1 else 0]
    ]
    if offline:
        assert counted.macs.sum() == counted.down_bits.sum() == 0
    else:
        assert counted.asked.tolist() == list(range(25))
        assert np.all(counted.macs >= 12 * 12 * 3), "A_i Theta - B_i"
        assert np.all(counted.down_bits >= 12 * 3 * 32), "the model"


def test_the_first_gradient_costs_what_conventional_is_charged() -> None:
    offline = {"training.first_epoch_offline": False}
    found = []
    for name in ("code-based", "conventional"):
        history = trained(given(), wanted({"scheme": name, **offline})).history
        found.append(history.rounds[history.round_of_epoch[0]])
    ours, theirs = found
    assert given().shards[0].compact
    for name in ("asked", "down_bits", "macs", "up_bits"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name


def test_two_supports_cost_twice_the_grant_and_the_errors() -> None:
    """A grant has the support's number and its t = 4 positions, 32 bits each; an error d t (beta + 1) operations."""
    costs = measure(sharing(wanted(odd_set="two-errors")), given(), first_offline=True)
    assert costs.granted.grant_bits == 5 * 32
    assert costs.granted.export_macs == 12 * 4 * 3
    double = costs.of(Handover(3, 1, 0, 1))
    assert (double.grant_bits, double.export_macs) == (2 * 5 * 32, 2 * 12 * 4 * 3)
    assert (double.parcel_bits, double.absorb_macs) == (costs.granted.parcel_bits, costs.granted.absorb_macs)
    with pytest.raises(ValueError, match="two supports"):
        COSTS.of(Handover(3, 1, 0, 1))


@pytest.mark.parametrize("options", [{"supply": "once", "M": 12, "t": 3}, {"supply": "reissued"}])
def test_a_run_with_two_errors_is_its_draw_and_doubles(options: dict[str, Any]) -> None:
    """The model is that of the other choice up to rounding: decoding is exact under both."""
    chosen, plain = (wanted(odd_set=each, **options) for each in ("two-errors", "partner"))
    state = trained(given(), chosen)
    rows = state.server["moved"]
    senders, counts = np.unique(rows[:, 1], return_counts=True)
    assert counts.max() == 2
    assert len(senders) == len(state.history.handovers)
    assert drawn(chosen, 1)[0, 0].tolist() == state.history.columns["time"]
    assert max(state.history.columns["gradient_error"]) < 1e-4
    np.testing.assert_allclose(state.model, trained(given(), plain).model, atol=1e-4 * np.abs(state.model).max())


@pytest.mark.parametrize("stop", [1, 2, 7])
@pytest.mark.parametrize("name", ["code-based", "sealed"])
def test_a_resumed_run_with_detection_in_the_first_epoch_ends_alike(name: str, stop: int) -> None:
    """Also with two errors on some parcels: hand-overs are repeated from their record."""
    table = {"code-based": {**OPTIONS, "delta": 1e-4, "odd_set": "two-errors"}, "sealed": {"delta": 1e-4}}[name]
    changes = {"scheme": name, "training.epochs": EPOCHS, f"schemes.{name}": {**table, "detect_from": 1}}
    chosen = scenario(changes)
    whole = trained(given(), chosen)
    assert whole.history.handovers_after(1)
    begun = trained(given(), chosen.with_settings({"training.epochs": stop}))
    scheme = sharing(chosen)
    devices = [scheme.device(index, shard) for index, shard in enumerate(given().shards)]
    delays = DelayModel.create(chosen.fleet, chosen.links)
    engine = VirtualEngine(devices, delays, seed=chosen.timing.seed, draw=chosen.timing.draw, now=begun.now)
    resumed = train(given(), chosen, scheme, engine, State.from_arrays(begun.to_arrays()))
    assert np.array_equal(resumed.model, whole.model)
    assert resumed.history.columns["time"] == whole.history.columns["time"]
    assert np.array_equal(resumed.server["moved"], whole.server["moved"])


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("code-based.detect_from", 0, "at least 1"),
        ("sealed.detect_from", 3, "at most 2"),
        ("he.detect_from", "first", "a whole number"),
        ("code-based.odd_set", "three-errors", "partner, two-errors"),
        ("sealed.odd_set", "partner", "unknown key"),
    ],
)
def test_wrong_settings_are_refused_in_a_sentence(key: str, value: Any, allowed: str) -> None:
    with pytest.raises(ScenarioError, match=allowed) as error:
        scenario({f"schemes.{key}": value})
    assert f"schemes.{key}" in str(error.value)
