"""What the models themselves tell all devices but one, in every exact scheme with gradient descent.

Two models in a row tell the summed gradient: m g_e = m ((Theta_e - Theta_e+1) / mu_e - lambda Theta_e). Who knows the
data of all devices but one subtracts theirs. Models are rounded when they are sent, to float32 or to the steps of a
ring, and m / mu times that rounding is the error of the gradient.
"""

from collections.abc import Callable, Iterable

import numpy as np
from jaxtyping import Float

from codedfl.security.transcript import Exposure, Transcript
from codedfl.security.views.kinds import CohortsView, KnownOthersView
from codedfl.task import Problem
from codedfl.task.objective import side_by_side

ASSUMPTION = "all other devices together, from the models"


def model_exposures(transcript: Transcript, problem: Problem, rate: Callable[[int], float]) -> Iterable[Exposure]:
    """Yield for each device its products with all models, and its gradient at the last, as all others know them."""
    if len(transcript.points) < 3:
        return
    points = np.stack(transcript.points).astype(np.float64)
    rates = np.array([rate(epoch) for epoch in range(1, len(points))])[:, None, None]
    told = problem.samples * ((points[:-1] - points[1:]) / rates - problem.ridge * points[:-1])
    total, right = (
        np.asarray(sum(np.asarray(part, np.float64) for part in parts))
        for parts in zip(*((shard.gram, shard.moments) for shard in problem.shards), strict=True)
    )
    errors = told - (_products(total, points[:-1]) - right)
    models, noise = points[1:-1], errors[1:] - errors[0]
    summed = total @ models[-1] - right
    # epochs count by how exactly they are known, which follows from the public steps of the models
    weights = 1 / np.maximum(np.sqrt(np.mean(noise**2, axis=(1, 2), keepdims=True)), np.finfo(np.float64).tiny)
    weighted = weights * models
    sizes = np.array([shard.samples for shard in problem.shards])
    for device, shard in enumerate(problem.shards):
        products = _products(shard.gram.astype(np.float64), models)
        noisy = weights * (products + noise)
        unit = float(np.linalg.norm(weights * noise) / np.linalg.norm(noisy))
        view = KnownOthersView(weighted, noisy, unit)
        yield Exposure(view, device, shard.gram, assumption=ASSUMPTION)
        gradient = products[-1] - shard.moments
        alone = np.arange(len(sizes))[None] == device
        cohort = CohortsView(models[-1:], gradient[None] + errors[-1:], alone, sizes)
        parts = {device: gradient}
        yield Exposure(cohort, None, summed, assumption=ASSUMPTION, adversary="devices", parts=parts)


def _products(
    matrix: Float[np.ndarray, "d d"], models: Float[np.ndarray, "epochs d c"]
) -> Float[np.ndarray, "epochs d c"]:
    """Return the product of a matrix with every model, in one: a stack of products would read it for each of them."""
    epochs, d, c = models.shape
    return np.asarray(matrix @ side_by_side(models)).reshape(d, epochs, c).transpose(1, 0, 2)
