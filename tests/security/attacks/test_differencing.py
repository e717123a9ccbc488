"""Single gradients from sums over cohorts: exact where cohorts and models allow it, nothing where they do not."""

import numpy as np
import pytest

from codedfl.security.attacks.differencing import Differencing
from codedfl.security.attacks.null import Null
from codedfl.security.views.kinds import CohortsView
from security.ciphertexts import gram_matrix

D, C, DEVICES, EPOCHS = 8, 2, 5, 12
RNG = np.random.default_rng(4)
GRAMS = [gram_matrix(D, 20, RNG) for _ in range(DEVICES)]
MOMENTS = [RNG.standard_normal((D, C)) for _ in range(DEVICES)]
POINTS = np.full(DEVICES, 20)


def view(cohorts: np.ndarray, models: np.ndarray, grams: list[np.ndarray] = GRAMS) -> CohortsView:
    gradients = np.stack([[a @ model - b for a, b in zip(grams, MOMENTS, strict=True)] for model in models])
    return CohortsView(models, np.einsum("en,endc->edc", cohorts.astype(float), gradients), cohorts, POINTS)


def errors(seen: CohortsView, attack: Differencing | Null, grams: list[np.ndarray] = GRAMS) -> np.ndarray:
    found = attack.run(seen, np.random.default_rng(0)).gradients
    assert found is not None
    true = np.stack([a @ seen.models[-1] - b for a, b in zip(grams, MOMENTS, strict=True)])
    return np.linalg.norm(found - true, axis=(1, 2)) / np.linalg.norm(true, axis=(1, 2))


def leaving_one_out() -> np.ndarray:
    return np.array([np.arange(DEVICES) != epoch % DEVICES for epoch in range(EPOCHS)])


def test_one_model_and_cohorts_that_leave_one_out_tell_every_gradient(rng: np.random.Generator) -> None:
    models = np.repeat(rng.standard_normal((1, D, C)), EPOCHS, axis=0)
    assert errors(view(leaving_one_out(), models), Differencing()).max() < 1e-10


def test_a_guess_that_is_true_of_every_device_removes_the_drift_of_models(rng: np.random.Generator) -> None:
    """Devices whose Gram matrices are their share of the guess: sums at all models are sums at the last one."""
    alike, guess = [GRAMS[0]] * DEVICES, GRAMS[0] / POINTS[0]
    seen = view(leaving_one_out(), np.cumsum(rng.standard_normal((EPOCHS, D, C)), axis=0), alike)
    assert errors(seen, Differencing(guess), alike).max() < 1e-9
    assert errors(seen, Differencing(), alike).min() > 1e-3


def test_a_sum_of_one_device_is_read_as_it_is(rng: np.random.Generator) -> None:
    seen = view(np.arange(DEVICES)[None] == 3, rng.standard_normal((1, D, C)))
    assert errors(seen, Differencing())[3] < 1e-10


def test_the_same_cohort_in_all_epochs_tells_the_mean_and_nobodys_gradient(rng: np.random.Generator) -> None:
    models = np.repeat(rng.standard_normal((1, D, C)), EPOCHS, axis=0)
    seen = view(np.ones((EPOCHS, DEVICES), bool), models)
    found = Differencing().run(seen, rng).gradients
    assert found is not None
    np.testing.assert_allclose(found, np.repeat(seen.sums[:1] / DEVICES, DEVICES, axis=0), atol=1e-9)
    assert errors(seen, Null()) == pytest.approx(np.ones(DEVICES))


def test_devices_that_are_always_in_get_their_share(rng: np.random.Generator) -> None:
    """Two of five never leave: their sum is known, and each is given half of it."""
    models = np.repeat(rng.standard_normal((1, D, C)), EPOCHS, axis=0)
    cohorts = leaving_one_out()
    cohorts[:, :2] = True
    found = Differencing().run(view(cohorts, models), np.random.default_rng(0)).gradients
    assert found is not None
    true = np.stack([a @ models[-1] - b for a, b in zip(GRAMS, MOMENTS, strict=True)])
    np.testing.assert_allclose(found[2:], true[2:], atol=1e-9)
    np.testing.assert_allclose(found[:2].sum(axis=0), true[:2].sum(axis=0), atol=1e-9)
