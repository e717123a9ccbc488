import numpy as np
import pytest

from codedfl.data import partition
from codedfl.errors import DataError, ScenarioError

LABELS = np.arange(1000) * 7 % 10


def test_iid_is_even_and_deterministic():
    parts = partition(None, 103, 10, kind="iid", seed=4)
    assert sorted(len(part) for part in parts) == [10] * 7 + [11] * 3
    again = partition(None, 103, 10, kind="iid", seed=4)
    other = partition(None, 103, 10, kind="iid", seed=5)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(parts, other, strict=True))


def test_one_shard_a_device_is_label_sorted():
    parts = partition(LABELS, 1000, 5, kind="shards")
    assert [sorted(set(LABELS[part])) for part in parts] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def test_two_shards_a_device_limit_the_classes_it_sees():
    parts = partition(LABELS, 1000, 10, kind="shards", shards_per_device=2, seed=1)
    seen = [len(set(LABELS[part])) for part in parts]
    assert max(seen) <= 2
    assert {len(part) for part in parts} == {100}


def test_shards_of_a_regression_follow_the_target():
    target = np.random.default_rng(0).normal(size=(60, 2))
    parts = partition(target, 60, 3, kind="shards")
    tops = [target[part, 0].max() for part in parts]
    bottoms = [target[part, 0].min() for part in parts]
    assert tops[0] < bottoms[1]
    assert tops[1] < bottoms[2]


def test_dirichlet_is_skewed_for_small_alpha_and_even_for_large():
    def skew(alpha):
        parts = partition(LABELS, 1000, 5, kind="dirichlet", alpha=alpha, seed=0)
        counts = np.stack([np.bincount(LABELS[part], minlength=10) for part in parts])
        return counts.std()

    assert skew(1e4) < 2 < 20 < skew(0.1)


def test_sizes_follow_the_weights():
    parts = partition(None, 80, 4, kind="sizes", sizes=[1, 1, 2, 4])
    assert [len(part) for part in parts] == [10, 10, 20, 40]


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"devices": 1001}, DataError, "1000 samples cannot be dealt to 1001"),
        ({"devices": 0}, ScenarioError, "number of devices is 0"),
        ({"kind": "random"}, ScenarioError, "no partition kind 'random'"),
        ({"seed": -1}, ScenarioError, "seed is -1"),
        ({"kind": "shards", "shards_per_device": 0}, ScenarioError, "shards_per_device is 0"),
        ({"kind": "shards", "shards_per_device": 500}, DataError, "1000 samples cannot fill 5000 shards"),
        ({"kind": "shards", "labels": None}, DataError, "none was given"),
        ({"kind": "dirichlet", "labels": None}, DataError, "needs classes"),
        ({"kind": "dirichlet", "labels": np.ones((1000, 1))}, DataError, "needs classes"),
        ({"kind": "dirichlet", "alpha": 0.0}, ScenarioError, "alpha .* is 0.0"),
        ({"kind": "dirichlet", "alpha": 1e-3, "devices": 30}, DataError, "alpha = 0.001 .* 30 devices"),
        ({"kind": "dirichlet", "alpha": 1e-300}, DataError, "alpha = 1e-300"),
        ({"kind": "sizes"}, ScenarioError, "10 devices, but none were given"),
        ({"kind": "sizes", "sizes": [1.0]}, ScenarioError, "but 1 were given"),
        ({"kind": "sizes", "sizes": [0.0] + [1.0] * 9}, ScenarioError, "must be positive"),
        ({"kind": "sizes", "sizes": [1e-9] + [1.0] * 9}, DataError, "device 0 would hold none"),
        ({"labels": LABELS[:5]}, DataError, "5 labels were given for 1000"),
    ],
)
def test_impossible_partitions_are_refused(arguments, error, sentence):
    arguments = {"labels": LABELS, "samples": 1000, "devices": 10} | arguments
    with pytest.raises(error, match=sentence):
        partition(arguments.pop("labels"), arguments.pop("samples"), arguments.pop("devices"), **arguments)
