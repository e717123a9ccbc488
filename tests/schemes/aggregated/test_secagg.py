"""Secure aggregation round other schemes: the same gradients, whoever vanishes when, and nothing of a single reply."""

from collections.abc import Mapping
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl import schemes
from codedfl.cipher.masks.pairwise import AGREEMENT_OPERATIONS
from codedfl.errors import CipherError, DataError, LostDevicesError, ScenarioError, TrainingError
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES, Public, Work
from codedfl.schemes.aggregated.noisy import kept_bits
from codedfl.schemes.aggregated.secagg import SecAgg
from codedfl.schemes.plain.conventional import Conventional, gradient_bound
from codedfl.task import Problem, Shard
from rundirs import Stopped, results, small_run, stop_at
from schemes.residues import fleet
from tiny import (
    conversed,
    is_one_sentence,
    known,
    plain_gradient,
    problem,
    promised_gradient,
    proper,
    scenario,
    spied,
    trained,
)

SIZES = (4, 7, 3, 5, 9, 3)
INNER = tuple(name for name in SCHEMES if known(name).reply_sum is not None)
PLAIN = tuple(name for name in INNER if known(name).averages)


@cache
def shared(dtype: str = "float64") -> Problem:
    return problem(SIZES, features=8, outputs=2, dtype=dtype)


def wanted(inner: str = "conventional", changes: Mapping[str, Any] | None = None) -> Scenario:
    """Six devices, the last two slow: five agreements take the last one 9 s. Mini-batches of two parts."""
    base = {
        "scheme": "secagg",
        "schemes.secagg": {"inner": inner},
        "schemes.minibatch": {"parts": 2},
        "schemes.sealed": {"delta": 1e-3},
        "schemes.deadline": {"seconds": 8.0},
        "fleet.devices": fleet(1e6, 1e6, 1e6, 1e6, 2e5, 1e5),
        "training.epochs": 4,
        "training.learning_rate": 0.1,
    }
    return scenario({**base, **(changes or {})})


def test_what_can_stand_inside() -> None:
    assert {*PLAIN, "sealed"} == {"conventional", "minibatch", "drop-slowest", "deadline", "sealed"} == set(INNER)
    assert all(known(name).adds_up for name in INNER)


@pytest.mark.parametrize("inner", ["code-based", "sealed-coded", "secagg", "one-shot", "nosuch"])
def test_what_cannot_is_refused(inner: str) -> None:
    with pytest.raises(ScenarioError, match=f"inner = '{inner}' must be a scheme") as error:
        schemes.check(wanted(inner))
    assert is_one_sentence(str(error.value))
    assert "conventional, minibatch, drop-slowest, deadline, sealed" in str(error.value)


@pytest.mark.parametrize("inner", INNER)
def test_it_promises_what_the_inner_scheme_promises(inner: str) -> None:
    scheme: Any = schemes.create(wanted(inner), shared())
    assert isinstance(scheme, SecAgg)
    own = schemes.create(wanted(inner).with_settings({"scheme": inner}), shared())
    for found in (scheme, schemes.nominal(wanted(inner))):
        promises = [(each.exact, each.follows_timing, each.sums, each.uploads) for each in (found, own)]
        assert promises[0] == promises[1]
        assert (found.sharing is None) == (own.sharing is None)
        assert (found.name, found.inner.name) == ("secagg", inner)
    assert len(scheme.server().set_up()) == len(own.server().set_up())


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("inner", INNER)
def test_the_gradient_is_that_of_the_inner_scheme(inner: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the derived bound of the plaintext one; where it averages, over the data points of who is in the sum.

    Where replies are residues, sums and so models are those of the inner scheme to the last bit.
    """
    given_problem, chosen = shared(precision), wanted(inner, {"task.precision": precision})
    seen = spied(monkeypatch, chosen)
    scheme: Any = schemes.create(chosen, given_problem)
    model = trained(given_problem, chosen).model
    assert len(seen) == 4
    for number, epoch in enumerate(seen):
        if inner not in PLAIN:
            value, bound = promised_gradient(scheme, given_problem.shards, seen[: number + 1])
        else:
            inside = [int(d) for asked in epoch.questions[3][0].requests.values() for d in asked["survivors"]]
            shards = [given_problem.shards[device] for device in sorted(set(inside))]
            assert (
                len(shards) == 6 if inner not in ("drop-slowest", "deadline") else 4 <= len(shards) < 6 or number == 0
            )
            parts = [slice(s.samples * (number % 2) // 2, s.samples * (number % 2 + 1) // 2) for s in shards]
            value, bound = plain_gradient(shards, epoch.model, parts if inner == "minibatch" else None)
            points = sum(len(s.x[p]) if inner == "minibatch" else s.samples for s, p in zip(shards, parts, strict=True))
            (bits,) = {int(request["form"]) for request in proper(epoch.questions[2][0])}
            bound = bound + len(shards) / 2 * 2.0**-bits / points
        assert np.all(abs(epoch.gradient - value) <= bound)
    if inner not in PLAIN:
        monkeypatch.undo()
        alone = trained(given_problem, chosen.with_settings({"scheme": inner})).model
        assert np.array_equal(model, alone)


def test_steps_are_as_fine_as_the_sum_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """No entry of the sum exceeds S = m F (F ||theta_k||_1 + T), and S takes between 2^61 and 2^62 steps."""
    given_problem, chosen = shared("float32"), wanted()
    public = schemes.create(chosen, given_problem).public
    seen = spied(monkeypatch, chosen)
    trained(given_problem, chosen)
    for epoch in seen:
        norm = np.abs(epoch.model.astype(np.float32)).astype(float).sum(axis=0).max()
        bound = sum(SIZES) * public.largest_feature * (public.largest_feature * norm + public.largest_target)
        requests = proper(epoch.questions[2][0])
        assert len(requests) == 6
        (bits,) = {int(request["form"]) for request in requests}
        assert 2.0**61 * (1 - 1e-4) <= bound * 2.0**bits <= 2.0**62
        gradients = [s.x.T @ (s.x @ epoch.model.astype(np.float32) - s.y) for s in given_problem.shards]
        assert np.abs(gradients).sum(axis=0).max() <= bound


def test_noisy_sums_are_off_by_half_a_step_of_each_device() -> None:
    """Beside what the inner scheme rounds; Gram matrices and right-hand sides have steps of their own."""
    private = {"privacy.epsilon": 5.0, "privacy.clip_targets": 30.0}
    scheme = schemes.create(wanted("conventional", private), shared())
    gram_bits, moments_bits = kept_bits(scheme.public.release)
    assert gram_bits != moments_bits
    found, inner = scheme.rounding, scheme.inner.rounding
    assert (found.gram - inner.gram) * 2.0**gram_bits == pytest.approx(len(SIZES) / 2)
    assert (found.moments - inner.moments) * 2.0**moments_bits == pytest.approx(len(SIZES) / 2)


def test_what_it_promises_is_of_epochs_whose_models_are_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheme inside may state less for the first epoch, whose gradients are right-hand sides alone."""
    usual = schemes.create(wanted(), shared()).rounding
    assert usual is not None and usual.joint > 0

    def zero_at_first(self: Conventional) -> Any:
        return lambda epoch, request: gradient_bound(self.public, (epoch > 1) * request["model"])

    monkeypatch.setattr(Conventional, "reply_sum", property(zero_at_first))
    assert schemes.create(wanted(), shared()).rounding == usual


def averaged(inside: list[int], model: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    value, bound = plain_gradient([shared().shards[device] for device in inside], model)
    return value, bound + 3 * 2.0**-50


def test_every_set_of_losses_between_the_questions_is_averaged_over_the_others() -> None:
    """Six devices, threshold 4, two lost: at the same question, or one after its masked reply and one before."""
    scheme: Any = schemes.create(wanted(), shared())
    assert scheme.survives_losses == 2
    model = np.random.default_rng(0).standard_normal((8, 2))
    server, devices = scheme.server(), [scheme.device(k, shard) for k, shard in enumerate(shared().shards)]
    cases = product(combinations(range(6), 2), ((0, 1), (2, 2), (3, 2), (3, 3)))
    for epoch, (pair, questions) in enumerate(cases, start=2):
        gone = dict(zip(pair, questions, strict=True))
        found = conversed(server, devices, epoch, model, lambda d, q, gone=gone: gone.get(d, 4) > q)  # type: ignore[misc]
        value, bound = averaged([d for d in range(6) if gone.get(d, 4) > 2], model)
        assert found is not None
        assert np.all(abs(found - value) <= bound)


@given(st.dictionaries(st.integers(0, 5), st.integers(0, 3)), st.integers(4, 6))
@settings(max_examples=15)
def test_any_losses_are_averaged_or_noticed(gone: dict[int, int], threshold: int) -> None:
    scheme: Any = schemes.create(wanted(changes={"schemes.secagg.threshold": threshold}), shared())
    assert scheme.survives_losses == 6 - threshold
    model = np.random.default_rng(1).standard_normal((8, 2))
    devices = [scheme.device(k, shard) for k, shard in enumerate(shared().shards)]
    found = conversed(scheme.server(), devices, 2, model, lambda d, q: gone.get(d, 4) > q)
    if len(gone) > 6 - threshold:
        assert found is None
        return
    value, bound = averaged([d for d in range(6) if gone.get(d, 4) > 2], model)
    assert found is not None
    assert np.all(abs(found - value) <= bound)


def test_a_run_goes_on_without_the_lost_and_stops_at_one_too_many() -> None:
    """Lost for good after epochs 1 and 2; the third loss is one too many."""
    state = trained(shared(), wanted(), last_epochs={4: 1, 1: 2})
    assert state.epoch == 4
    assert state.history.columns["replies"] == [4, 4, 4, 4], "any t of those asked answer the last question"
    assert [len(state.history.rounds[numbers[0]].asked) for numbers in state.history.questions()] == [6, 5, 4, 4]
    with pytest.raises(LostDevicesError) as error:
        trained(shared(), wanted(), last_epochs={4: 1, 1: 2, 2: 3})
    assert "epoch 4 got 3 of the 4 replies" in str(error.value)
    assert is_one_sentence(str(error.value))


def test_where_replies_of_all_are_needed_no_loss_is_survived() -> None:
    chosen = wanted("sealed", {"schemes.sealed.delta": 1e9})
    scheme: Any = schemes.create(chosen, shared())
    assert scheme.survives_losses == 0
    with pytest.raises(LostDevicesError, match="epoch 3 got 5 of the 6 replies"):
        trained(shared(), chosen, last_epochs={3: 2})


def test_a_device_that_vanishes_after_its_masked_reply_counts_where_all_are_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = wanted("sealed", {"schemes.sealed.delta": 1e9})
    found = []
    for answers in (lambda d, q: True, lambda d, q: q < 3 or d not in (0, 5), lambda d, q: q < 2 or d != 5):
        scheme: Any = schemes.create(chosen, shared())
        server = scheme.server()
        devices = [scheme.device(k, shard) for k, shard in enumerate(shared().shards)]
        server.set_up()
        found.append(conversed(server, devices, 2, np.ones((8, 2)), answers))
    assert found[0] is not None
    assert np.array_equal(found[0], found[1])  # type: ignore[arg-type]
    assert found[2] is None


def test_devices_hand_over_and_the_last_one_is_asked_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but one hand over at once; the sum over the one that is left is its reply."""
    chosen = wanted("sealed", {"schemes.sealed.delta": 0.0})
    seen = spied(monkeypatch, chosen)
    state = trained(shared(), chosen)
    asked = [len(epoch.round.requests) for epoch in seen]
    assert asked[:2] == [1, 6]
    assert asked[-1] == 1
    assert [len(epoch.questions) for epoch in seen] == [1 if count == 1 else 4 for count in asked]
    assert len(state.history.handovers) == 6 - asked[-1]


def test_the_server_is_sent_no_reply_in_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    """What single devices send is no number, and nothing of it is what a device without masks would send."""
    chosen = wanted()
    seen = spied(monkeypatch, chosen)
    trained(shared(), chosen)
    for epoch in seen:
        for question, replies in epoch.questions:
            assert {array.dtype.kind for reply in replies.values() for array in reply.values()} <= {"u", "i"}
            assert len(question.requests) >= 4
        replies = epoch.questions[2][1]
        bits = int(proper(epoch.questions[2][0])[0]["form"])
        for device, reply in replies.items():
            shard = shared().shards[device]
            clear = np.ldexp(shard.x.T @ (shard.x @ epoch.model - shard.y), bits)
            masked = reply["gradient"].astype(np.int64).astype(float)
            assert np.abs(masked - clear).max() > 2.0**50


def test_work_of_the_third_question_is_the_inner_work_and_the_masks() -> None:
    """Eight features, two outputs: 16 words; five envelopes of 18 words, five agreements, six masks."""
    scheme: Any = schemes.create(wanted(), shared())
    state = trained(shared(), wanted())
    third = state.history.rounds[state.history.questions()[1][2]]
    protocol = 5 * 18 + 5 * AGREEMENT_OPERATIONS + 6 * 16
    inner = [64 * 2 if 2 * samples >= 8 else 2 * samples * 8 * 2 for samples in SIZES]
    assert third.macs.tolist() == [protocol + own for own in inner]
    assert third.up_bits.tolist() == [16 * 64] * 6
    assert scheme.threshold.of(6) == 4


def test_options_of_the_inner_scheme_are_those_of_its_table() -> None:
    """They count for the id as well; those of other schemes do not."""
    chosen = wanted("minibatch")
    scheme: Any = schemes.create(chosen, shared())
    assert scheme.inner.options == chosen.options("minibatch")
    assert scheme.inner.options.parts == 2
    changed = {
        key: chosen.with_settings({key: value}).id() != chosen.id()
        for key, value in {
            "schemes.minibatch.parts": 3,
            "schemes.secagg.threshold": 5,
            "schemes.secagg.inner": "conventional",
            "schemes.sealed.delta": 7.0,
        }.items()
    }
    assert changed == {
        "schemes.minibatch.parts": True,
        "schemes.secagg.threshold": True,
        "schemes.secagg.inner": True,
        "schemes.sealed.delta": False,
    }


def test_what_the_inner_scheme_refuses_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"schemes\.drop-slowest\.wait_for = 7"):
        schemes.check(wanted("drop-slowest", {"schemes.drop-slowest.wait_for": 7}))
    with pytest.raises(ScenarioError, match=r"schemes\.minibatch\.parts = 4"):
        schemes.create(wanted("minibatch", {"schemes.minibatch.parts": 4}), shared())
    with pytest.raises(ScenarioError, match="needs the gradient of all data") as error:
        schemes.check(wanted("minibatch", {"training.solver": "conjugate-gradients"}))
    assert is_one_sentence(str(error.value))
    schemes.check(wanted("sealed", {"training.solver": "conjugate-gradients"}))


@pytest.mark.parametrize("threshold", [3, 7])
def test_thresholds_that_do_not_fit(threshold: int) -> None:
    with pytest.raises(ScenarioError, match=f"threshold = {threshold} must be between 4") as error:
        schemes.check(wanted(changes={"schemes.secagg.threshold": threshold}))
    assert is_one_sentence(str(error.value))


def test_one_device_has_nobody_to_hide_among() -> None:
    with pytest.raises(ScenarioError, match="at least 2 devices"):
        schemes.check(wanted(changes={"fleet.devices": fleet(1e6)}))


def test_numbers_that_cannot_be_summed_are_refused() -> None:
    """A model that is no longer finite, data beyond the agreed bound, a reply beyond a device's share of the sum."""
    scheme: Any = schemes.create(wanted(), shared())
    with pytest.raises(TrainingError, match="diverged") as diverged:
        scheme.server().ask(2, np.full((8, 2), np.inf))
    tight = scheme.with_public(Public((3, 3), 8, 2, np.dtype(np.float64), largest_feature=0.1))
    with pytest.raises(DataError, match="exceeds the bound") as beyond:
        tight.device(0, shared().shards[2])
    assert all(is_one_sentence(str(error.value)) for error in (diverged, beyond))
    devices = [scheme.device(k, shard) for k, shard in enumerate(shared().shards)]
    devices[0]._inner._shard = Shard(100 * shared().shards[0].x, shared().shards[0].y)
    with pytest.raises(CipherError, match="beyond the agreed bound"):
        conversed(scheme.server(), devices, 2, np.ones((8, 2)))


def test_the_zero_model_on_nothing_is_a_sum_of_zeros() -> None:
    nothing = Problem(
        tuple(Shard(np.zeros((3, 4)), np.zeros((3, 2))) for _ in range(6)),
        np.zeros((2, 4)),
        np.zeros(2, np.int64),
        "classification",
        0.1,
    )
    scheme: Any = schemes.create(wanted(), nothing)
    devices = [scheme.device(k, shard) for k, shard in enumerate(nothing.shards)]
    assert not np.asarray(conversed(scheme.server(), devices, 1, np.zeros((4, 2)))).any()


@pytest.mark.parametrize("inner", ["conventional", "sealed"])
def test_a_run_that_is_stopped_goes_on_with_the_same_bits(
    inner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys and masks are other ones, times and results are not."""
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
    changes = {"scheme": "secagg", "schemes.secagg.inner": inner, "schemes.sealed.delta": 1e-3, "training.epochs": 8}
    for report in (1, 4):
        with pytest.raises(Stopped):
            small_run(tmp_path / "parts", changes, progress=stop_at(report))
    small_run(tmp_path / "parts", changes)
    whole = small_run(tmp_path / "whole", changes)
    assert results(tmp_path / "parts") == results(whole.path)
    assert (whole.summary["handovers"] > 0) == (inner == "sealed")


def test_it_says_who_sees_what() -> None:
    plain, sealed = (schemes.create(wanted(inner), shared()).leakage() for inner in ("conventional", "sealed"))
    for words in (plain, sealed):
        assert "at least 4" in words.server
        assert "fewer than 4" in words.server
    assert "nothing from parcels" in sealed.devices
    assert "sums over devices" in plain.eavesdropper


def test_a_finished_run_says_what_it_was(tmp_path: Path) -> None:
    run = runs.execute(wanted("sealed"), tmp_path / "run", problem=lambda: shared("float32"))
    assert run.summary["verdict"] == "server sees sums"
    assert run.summary["survives_losses"] == 0
    assert run.timings.shape[1] == 4
    own = run.timings[run.scenario.timing.draw]
    np.testing.assert_allclose(own, run.epochs["time"], rtol=float(np.finfo(np.float32).eps))


def test_work_is_only_counted_once_for_each_question() -> None:
    """A second sum in the same epoch costs the same again: no key is kept."""
    scheme: Any = schemes.create(wanted(), shared())
    devices = [scheme.device(k, shard) for k, shard in enumerate(shared().shards)]
    counted = []
    for _ in range(2):
        server = scheme.server()
        first, keys = server.ask(2, np.ones((8, 2))), {}
        work = Work()
        keys = {d: devices[d].reply(2, asked, work) for d, asked in first.requests.items()}
        question = server.follow_up(2, keys, Work())
        for device, asked in question.requests.items():
            devices[device].reply(2, asked, work)
        counted.append(work.macs)
    assert counted[0] == counted[1]
