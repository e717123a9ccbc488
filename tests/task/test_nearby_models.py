"""Accuracies of many models where outputs tie up to rounding: they are those of float64, whatever was known before."""

import numpy as np
import pytest

from codedfl.task.metrics import NearbyModels
from codedfl.task.objective import side_by_side

UNIT = 2.0**-24
"""The largest relative error of one rounding to single precision."""


def expected(x: np.ndarray, labels: np.ndarray, models: np.ndarray) -> list[float]:
    outputs = np.einsum("qd,bdc->bqc", x.astype(np.float64), models.astype(np.float64))
    return [float(each) for each in (outputs.argmax(axis=2) == labels).mean(axis=1)]


def tied(x: np.ndarray, model: np.ndarray, dtype: type[np.floating] = np.float32) -> np.ndarray:
    """Return rows for which both outputs of a model are equal up to their rounding."""
    way = (model[:, 0] - model[:, 1]).astype(np.float64)
    return (x - np.outer(x @ way, way) / (way @ way)).astype(dtype)


@pytest.mark.parametrize("size", [1.0, 1e4])
@pytest.mark.parametrize("features", [8, 32])
def test_ties_of_models_that_are_multiplied(features: int, size: float, rng: np.random.Generator) -> None:
    """Products of single precision get many of these rows wrong: they are told apart in double precision."""
    model = (size * rng.standard_normal((features, 2))).astype(np.float32)
    x, labels = tied(rng.standard_normal((400, features)), model), rng.integers(0, 2, 400)
    assert NearbyModels(x, labels).accuracies(model, 1).tolist() == expected(x, labels, model[None])
    assert np.mean((x @ model).argmax(axis=1) == labels) != expected(x, labels, model[None])[0]


@pytest.mark.parametrize("size", [1.0, 1e4])
@pytest.mark.parametrize("count", [2, 8])
def test_ties_of_models_that_are_known(count: int, size: float, rng: np.random.Generator) -> None:
    """Rows tie for one of the models each, or clearly belong to one class."""
    features = 2 * (count + 8)
    models = (size * rng.standard_normal((count, features, 2))).astype(np.float32)
    rows = [tied(rng.standard_normal((60, features)), model) for model in models]
    x = np.concatenate([*rows, rng.standard_normal((600, features)).astype(np.float32)])
    labels = rng.integers(0, 2, len(x))
    nearby = NearbyModels(x, labels)
    for _ in range(5):
        assert nearby.accuracies(side_by_side(models), count).tolist() == expected(x, labels, models)


def moved_models(
    step: float, noise: float, dtype: type[np.floating], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return models, others that leave their span by a step, and rows along it that tie for one of the others each."""
    features, count = 40, 8
    frame = np.linalg.qr(rng.standard_normal((features, count + 1)))[0].T
    known = np.stack([frame[:count], np.roll(frame[:count], 1, axis=0)], axis=2).astype(dtype)
    moved = (known + step * np.stack([frame[count], -frame[count]], axis=1)).astype(dtype)
    along = rng.choice([-1.0, 1.0], (count, 60, 1)) * frame[count]
    along = along + noise * rng.standard_normal((count, 60, features)) / np.sqrt(features)
    rows = [tied(each, model, dtype) for each, model in zip(along, moved, strict=True)]
    if dtype == np.float64:  # double precision tells these apart
        rows = [
            each + 1e-12 * np.outer(rng.choice([-1, 1], len(each)), model[:, 0] - model[:, 1])
            for each, model in zip(rows, moved, strict=True)
        ]
    return known, moved, np.concatenate([*rows, rng.standard_normal((600, features)).astype(dtype)])


@pytest.mark.parametrize(
    ("step", "noise", "dtype"),
    [*((share * UNIT, 0.2, np.float32) for share in (100, 300, 1000)), (1e-4, 1e-6, np.float64)],
)
def test_what_known_models_do_not_span_is_bounded(
    step: float, noise: float, dtype: type[np.floating], rng: np.random.Generator
) -> None:
    """What known models say of these rows is wrong by as much as the others leave their span."""
    known, moved, x = moved_models(step, noise, dtype, rng)
    labels = rng.integers(0, 2, len(x))
    nearby = NearbyModels(x, labels)
    for models in (known, moved, known, moved):
        assert nearby.accuracies(side_by_side(models), 8).tolist() == expected(x, labels, models)
    for model in moved:
        nearby = NearbyModels(x, labels)
        nearby.accuracies(side_by_side(known), 8)
        assert nearby.accuracies(model, 1).tolist() == expected(x, labels, model[None])


@pytest.mark.parametrize("share", [0.6, 0.9, 3.7, 7.4])
def test_long_sums_of_equal_products(share: float) -> None:
    """Single precision rounds 512 products 1 + e alike, and 1 and 1 + 2 e in turns otherwise: sums differ by 60 units.

    Their true difference is e / 1024, in favour of either class.
    """
    excess = np.float32(share * 2.0**-16)
    model = np.stack([np.full(512, 1 + excess), np.tile([1.0, 1 + 2 * excess], 256)], axis=1).astype(np.float32)
    x = np.ones((4, 512), np.float32)
    x[:, 0] += np.array([1, -1, 1, -1]) / 1024
    for labels in (np.zeros(4, int), np.ones(4, int)):
        assert NearbyModels(x, labels).accuracies(model, 1).tolist() == expected(x, labels, model[None])


def test_classes_of_which_nothing_is_known_have_outputs_of_zero(rng: np.random.Generator) -> None:
    """The model of the second class is zero, so that it is chosen where the output of the first is negative."""
    x = rng.standard_normal((100, 3)).astype(np.float32)
    model = np.zeros((3, 2), np.float32)
    model[:, 0] = [1, -2, 3]
    nearby, labels = NearbyModels(x, np.ones(100, int)), np.ones(100, int)
    for _ in range(2):
        found = nearby.accuracies(side_by_side(np.stack([model, model / 2])), 2)
        assert found.tolist() == expected(x, labels, np.stack([model, model / 2]))


@pytest.mark.parametrize("length", [0.001, 0.5, 1.0, 3000.0])
def test_rows_of_any_length(length: float, rng: np.random.Generator) -> None:
    models = rng.standard_normal((4, 6, 3)).astype(np.float32)
    x = rng.standard_normal((200, 6))
    x = (length * x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    x[::9] = 0
    labels = rng.integers(0, 3, 200)
    nearby = NearbyModels(x, labels)
    for _ in range(2):
        assert nearby.accuracies(side_by_side(models), 4).tolist() == expected(x, labels, models)


@pytest.mark.parametrize("classes", [2, 255, 256, 257, 300, 513])
def test_models_of_zeros_say_the_first_of_any_number_of_classes(classes: int) -> None:
    labels = np.array([0, 1, classes - 1, 1])
    nearby = NearbyModels(np.ones((4, 2), np.float32), labels)
    for _ in range(3):
        assert nearby.accuracies(np.zeros((2, 2 * classes), np.float32), 2).tolist() == [0.25, 0.25]


@pytest.mark.parametrize("count", [15, 16, 17, 32, 33])
def test_any_number_of_models_at_once(count: int, rng: np.random.Generator) -> None:
    x, labels = rng.standard_normal((50, 5)).astype(np.float32), rng.integers(0, 3, 50)
    nearby, models = NearbyModels(x, labels), rng.standard_normal((count, 5, 3)).astype(np.float32)
    for _ in range(2):
        assert nearby.accuracies(side_by_side(models), count).tolist() == expected(x, labels, models)
