"""Full batch: the gradient of everybody's data, at the cost of the cheaper product."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl import schemes
from codedfl.privacy.descent import GradientRelease
from codedfl.privacy.release import Release
from codedfl.schemes import Public, Work
from codedfl.schemes.plain.conventional import AveragingServer, Conventional, GradientDevice, gradient_bound
from codedfl.schemes.rounding import relative_error
from codedfl.task.losses import SOFTMAX, SQUARED
from tiny import gamma, plain_gradient, problem, scenario, trained


@given(sizes=st.lists(st.integers(1, 15), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_each_sample_counts_once_whatever_the_sizes(sizes: list[int], seed: int) -> None:
    made = problem(sizes, seed=seed)
    chosen = scenario({"scheme": "conventional", "fleet.devices": [{"count": len(sizes), "mac_rate": 1.0}]})
    scheme = schemes.create(chosen, made)
    model = np.random.default_rng(seed).standard_normal(made.shape)
    requests = scheme.server().ask(1, model).requests
    replies = {i: scheme.device(i, made.shards[i]).reply(1, request, Work()) for i, request in requests.items()}
    expected, bound = plain_gradient(made.shards, model)
    assert np.all(abs(scheme.server().combine(1, replies, Work()) - expected) <= bound)


def test_multiplications_are_those_of_the_cheaper_product() -> None:
    """6 features, 3 outputs: 6*6*3 = 108 through the Gram matrix, 2*2*6*3 = 72 through two samples."""
    fleet = [{"count": 3, "mac_rate": 1e6}]
    history = trained(problem([10, 2, 3]), scenario({"scheme": "conventional", "fleet.devices": fleet})).history
    assert history.rounds[history.round_of_epoch[1]].macs.tolist() == [108, 72, 108]
    assert history.columns["device_macs"] == [0, 288, 288, 288, 288]


def test_the_order_of_arrival_does_not_change_a_bit() -> None:
    """In this order 1 is lost beside 1e16 and the sum is 0; in two other orders it would not be."""
    public = schemes.Public((1, 1, 2), 1, 1, np.dtype("float64"))
    server = AveragingServer(public)
    values = {0: 1.0, 1: 1e16, 2: -1e16}
    for order in itertools.permutations(values):
        replies = {device: {"gradient": np.array([[values[device]]])} for device in order}
        assert server.combine(1, replies, Work()).tolist() == [[0.0]]


def test_the_average_is_over_the_samples_of_those_who_replied() -> None:
    """(3 + 5) / (1 + 3) = 2, without device 1."""
    public = schemes.Public((1, 2, 3), 1, 1, np.dtype("float64"))
    server = AveragingServer(public, quorum=2)
    replies = {2: {"gradient": np.array([[5.0]])}, 0: {"gradient": np.array([[3.0]])}}
    assert server.ask(1, np.zeros((1, 1))).quorum == 2
    assert server.combine(1, replies, Work()).tolist() == [[2.0]]


def test_what_replies_must_look_like() -> None:
    """Real sites refuse any other: the layout of a model, or that of what is read."""
    public, model = Public((1, 2), 4, 3, np.dtype("float32")), {"gradient": (np.dtype("float32"), (4, 3))}
    other = {"sum": (np.dtype("uint64"), (4, 3))}
    for server, layout in (
        (AveragingServer(public), model),
        (AveragingServer(public, read=lambda reply: reply["sum"], reply=other), other),
    ):
        assert server.ask(1, np.zeros((4, 3))).expected == {0: layout, 1: layout}


def test_nobody_is_chosen_by_delays() -> None:
    fleet = [{"count": 1, "mac_rate": 1e6}]
    scheme = schemes.create(scenario({"scheme": "conventional", "fleet.devices": fleet}), problem([4]))
    assert (scheme.chosen_by_delays, scheme.parcels(0)) == ((), ())


@pytest.mark.parametrize("samples", [10, 2], ids=["through the Gram matrix", "through rows"])
def test_a_device_of_a_simulation_replies_and_counts_the_same(samples: int) -> None:
    """2 * 2 * 6 * 3 multiplications or 6 * 6 * 3; products may be added in another order."""
    made = problem([samples])
    model = np.random.default_rng(1).standard_normal(made.shape)
    works = Work(), Work()
    single, pooled = (
        GradientDevice(made.shards[0], pooled=pooled).reply(1, {"model": model}, work)["gradient"]
        for pooled, work in zip((False, True), works, strict=True)
    )
    assert [work.macs for work in works] == [{10: 108, 2: 72}[samples]] * 2
    _, bound = plain_gradient(made.shards, model)
    assert np.all(abs(pooled - single) <= 2 * samples * bound)


MODEL = np.array([[1.0, -2.0], [0.5, 2.0]])
"""Sums of magnitudes are 1.5 and 4."""
BOUNDED = Public((2, 4), 2, 2, np.dtype("float32"), largest_feature=3.0, largest_target=5.0)


@pytest.mark.parametrize(("loss", "exact"), [(SQUARED, 6 * 3 * (3 * 4 + 5)), (SOFTMAX, 6 * 3 * 1)])
def test_the_bound_on_a_sum_of_gradients(loss: str, exact: float) -> None:
    """6 rows of features up to 3, times residuals of up to 3 * 4 + 5, or up to 1; then some roundings."""
    assert exact < gradient_bound(replace(BOUNDED, loss=loss), MODEL) < exact * (1 + 1e-5)


@pytest.mark.parametrize(("rows", "features"), [(1, 1), (1, 50), (50, 1), (7, 5)])
def test_the_bound_on_gradients_holds_their_roundings(rows: int, features: int) -> None:
    """n + d + 1 of them; and it is no looser than by a few times that."""
    public, exact = replace(BOUNDED, samples=(rows,), features=features), 3.0 * rows * (3 * 2 + 5)
    found = gradient_bound(public, np.full((features, 1), 2 / features)) / exact
    assert 1 + gamma(rows + features + 1, "float32") < found < 1 + gamma(10 * (rows + features + 1), "float32")


def test_the_bound_on_gradients_holds_the_noise_in_sums() -> None:
    """By columns 4 times that in Gram matrices, and that in moments; the device with a third of the rows has it all."""
    plan = {"clip_features": 1.0, "clip_targets": 1.0, "features": 2, "outputs": 2, "devices": 2, "largest_rows": 4}
    release = Release.plan(epsilon=3.0, delta=1e-3, records=6, **plan)  # type: ignore[arg-type]
    more = gradient_bound(replace(BOUNDED, release=release), MODEL) - gradient_bound(BOUNDED, MODEL)
    noise = 3 * (4 * release.gram_reach() + release.moments_reach())
    assert noise < more < noise * (1 + 1e-5)


def test_the_roundings_of_a_gradient() -> None:
    """Seven products of the larger shard, five of the model, a subtraction; those of other gradients are unknown."""
    fleet = [{"count": 2, "mac_rate": 1e6}]
    chosen = scenario({"scheme": "conventional", "fleet.devices": fleet})
    scheme = schemes.create(chosen, problem([7, 3], features=5))
    found, public, share = scheme.rounding, scheme.public, relative_error(7 + 5 + 1, "float64")
    assert found is not None
    assert (found.gram, found.moments) == (share * public.gram_bound, share * public.moments_bound)
    plan = {"clip_features": 1.0, "clip_residuals": 1.0, "features": 5, "outputs": 3, "devices": 2, "largest_rows": 7}
    noise = GradientRelease.plan(epsilon=3.0, delta=1e-3, records=10, epochs=4, **plan)  # type: ignore[arg-type]
    for other in (replace(public, loss=SOFTMAX), replace(public, release=noise)):
        assert Conventional(other, scheme.options).rounding is None
