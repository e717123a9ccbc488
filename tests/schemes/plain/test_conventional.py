"""Full batch: the gradient of everybody's data, at the cost of the cheaper product."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from codedfl import schemes
from codedfl.schemes import Work
from codedfl.schemes.plain.conventional import AveragingServer
from tiny import plain_gradient, problem, scenario, trained


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
