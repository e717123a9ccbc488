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


def view(cohorts: np.ndarray, models: np.ndarray) -> CohortsView:
    gradients = np.stack([[a @ model - b for a, b in zip(GRAMS, MOMENTS, strict=True)] for model in models])
    return CohortsView(models, np.einsum("en,endc->edc", cohorts.astype(float), gradients), cohorts, POINTS)


def errors(seen: CohortsView, attack: Differencing | Null) -> np.ndarray:
    found = attack.run(seen, np.random.default_rng(0)).gradients
    assert found is not None
    true = np.stack([a @ seen.models[-1] - b for a, b in zip(GRAMS, MOMENTS, strict=True)])
    return np.linalg.norm(found - true, axis=(1, 2)) / np.linalg.norm(true, axis=(1, 2))


def leaving_one_out() -> np.ndarray:
    return np.array([np.arange(DEVICES) != epoch % DEVICES for epoch in range(EPOCHS)])


def test_one_model_and_cohorts_that_leave_one_out_tell_every_gradient() -> None:
    models = np.repeat(RNG.standard_normal((1, D, C)), EPOCHS, axis=0)
    assert errors(view(leaving_one_out(), models), Differencing()).max() < 1e-10


def test_models_that_move_are_allowed_for_by_the_guess() -> None:
    """With the mean Gram matrix of a point, what is left of the drift is how devices differ from the mean."""
    steps = 0.05 * RNG.standard_normal((EPOCHS, D, C))
    seen = view(leaving_one_out(), RNG.standard_normal((D, C)) + np.cumsum(steps, axis=0))
    mean = np.sum(GRAMS, axis=0) / POINTS.sum()
    assert errors(seen, Differencing(mean)).max() < 0.5 * errors(seen, Differencing()).max()


def test_a_sum_of_one_device_is_read_as_it_is() -> None:
    seen = view(np.arange(DEVICES)[None] == 3, RNG.standard_normal((1, D, C)))
    assert errors(seen, Differencing())[3] < 1e-10


@pytest.mark.parametrize("attack", [Differencing(), Null()], ids=["differencing", "null"])
def test_the_same_cohort_in_all_epochs_tells_nobodys_gradient(attack: Differencing | Null) -> None:
    models = np.repeat(RNG.standard_normal((1, D, C)), EPOCHS, axis=0)
    assert errors(view(np.ones((EPOCHS, DEVICES), bool), models), attack).min() > 0.5


def test_devices_that_are_always_in_get_their_share() -> None:
    """Two of five never leave: their sum is known, and each is given half of it."""
    models = np.repeat(RNG.standard_normal((1, D, C)), EPOCHS, axis=0)
    cohorts = leaving_one_out()
    cohorts[:, :2] = True
    found = Differencing().run(view(cohorts, models), np.random.default_rng(0)).gradients
    assert found is not None
    true = np.stack([a @ models[-1] - b for a, b in zip(GRAMS, MOMENTS, strict=True)])
    np.testing.assert_allclose(found[2:], true[2:], atol=1e-9)
    np.testing.assert_allclose(found[:2].sum(axis=0), true[:2].sum(axis=0), atol=1e-9)
