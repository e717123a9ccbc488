import numpy as np
import pytest
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import RidgeClassifier

from codedfl.data import FeatureMap, load_named
from codedfl.data import features as module
from codedfl.errors import DataError, ScenarioError


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 5e-6), ("float64", 1e-13)])
@pytest.mark.parametrize("gamma", [0.02, 5.0])
def test_equals_scikit_learn(dtype, tolerance, gamma):
    x = np.random.default_rng(1).random((300, 64)).astype(dtype)
    ours = FeatureMap.create("rbf", inputs=64, dimension=130, gamma=gamma, seed=7, dtype=dtype)
    theirs = RBFSampler(gamma=gamma, n_components=130, random_state=7).fit(x)
    found = ours.transform(x)
    assert found.dtype == dtype
    assert found.flags.c_contiguous
    # entries lie within sqrt(2/130); the rounding of an angle grows with the angle, hence with sqrt(gamma)
    np.testing.assert_allclose(found, theirs.transform(x), rtol=0, atol=tolerance * max(1, gamma))


@pytest.mark.parametrize("gamma", [0.02, 5])
def test_weights_are_drawn_as_scikit_learn_draws_them(gamma):
    """To the last bit, in float64 as in turns of float32."""
    theirs = RBFSampler(gamma=gamma, n_components=130, random_state=7).fit(np.zeros((1, 64)))
    for dtype, unit in (("float64", 1.0), ("float32", 2 * np.pi)):
        ours = FeatureMap.create("rbf", inputs=64, dimension=130, gamma=gamma, seed=7, dtype=dtype)
        for own, other in ((ours.weights, theirs.random_weights_), (ours.offset, theirs.random_offset_)):
            assert np.array_equal(own, (other / unit).astype(dtype))


def test_cosine_is_exact_to_float32_rounding():
    from codedfl.data.kernels import cosine_of_turns

    turns = np.linspace(-3, 3, 200_001, dtype=np.float32)[None, :]
    block = turns.copy()
    cosine_of_turns(block, np.zeros(block.shape[1], np.float32), np.float32(1))
    np.testing.assert_allclose(block, np.cos(2 * np.pi * turns.astype(np.float64)), rtol=0, atol=3e-7)


def test_blocks_do_not_change_the_result(monkeypatch):
    x = np.random.default_rng(2).random((101, 9), dtype=np.float32)
    ours = FeatureMap.create("rbf", inputs=9, dimension=16, gamma=0.1, seed=0)
    whole = ours.transform(x)
    monkeypatch.setattr(module, "BLOCK_BYTES", 16 * 4 * 7)
    np.testing.assert_allclose(ours.transform(x), whole, rtol=0, atol=1e-6)


def test_same_seed_same_map_other_seed_other_map():
    x = np.ones((2, 5), np.float32)
    make = lambda seed: FeatureMap.create("rbf", inputs=5, dimension=8, gamma=1.0, seed=seed)  # noqa: E731
    np.testing.assert_array_equal(make(3).transform(x), make(3).transform(x))
    assert np.abs(make(3).transform(x) - make(4).transform(x)).max() > 1e-3


def test_accepts_other_precision_strides_and_no_rows():
    ours = FeatureMap.create("rbf", inputs=5, dimension=8, gamma=1.0, seed=0)
    x = np.random.default_rng(0).random((20, 5))
    expected = ours.transform(x.astype(np.float32))
    np.testing.assert_array_equal(ours.transform(x), expected)
    np.testing.assert_allclose(ours.transform(np.asfortranarray(x)), expected, atol=1e-6)
    assert ours.transform(x[:0]).shape == (0, 8)


def test_none_passes_through():
    x = np.asfortranarray(np.random.default_rng(0).random((6, 4)))
    ours = FeatureMap.create("none", inputs=4)
    assert ours.dimension == 4
    found = ours.transform(x)
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, x.astype(np.float32))


def test_a_linear_model_classifies_digits():
    data = load_named("digits")
    features = FeatureMap.create("rbf", inputs=64, dimension=400, gamma=0.1, seed=0)
    model = RidgeClassifier(alpha=1e-2).fit(features.transform(data.x_train), data.y_train)
    assert model.score(features.transform(data.x_test), data.y_test) > 0.93


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"gamma": 0.0}, "gamma of the RBF kernel is 0.0"),
        ({"gamma": float("nan")}, "is nan"),
        ({"dimension": 0}, "dimension is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"dtype": "float16"}, "float16"),
        ({"inputs": 0}, "at least one input"),
    ],
)
def test_wrong_parameters_are_refused(change, sentence):
    good = {"inputs": 3, "dimension": 4, "gamma": 1.0, "seed": 0, "dtype": "float32"}
    with pytest.raises(ScenarioError, match=sentence):
        FeatureMap.create("rbf", **(good | change))


def test_unknown_kind_is_refused():
    with pytest.raises(ScenarioError, match="no feature kind 'poly'; choose one of rbf, none"):
        FeatureMap.create("poly", inputs=3)


def test_wrong_number_of_columns_is_refused():
    with pytest.raises(DataError, match="expects 3 columns but got 2"):
        FeatureMap.create("none", inputs=3).transform(np.ones((1, 2)))
