"""Losses beside the squared one, whose sums and gradients no Gram matrix gives: they are computed from rows."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from codedfl.errors import ScenarioError
from codedfl.task.shard import Shard

SQUARED, SOFTMAX = "squared", "softmax"


def softmax(scores: Float[np.ndarray, "*n c"]) -> Float[np.ndarray, "*n c"]:
    """Return exp(scores) divided by their sum over the classes."""
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))


def residuals(
    loss: str, scores: Float[np.ndarray, "n c"], targets: Float[np.ndarray, "n c"]
) -> Float[np.ndarray, "n c"]:
    """Return the gradient of the loss with respect to the scores X Theta of rows."""
    return np.asarray((softmax(scores) if loss == SOFTMAX else scores) - targets)


def softmax_terms(
    shards: Sequence[Shard], models: Float[np.ndarray, "b d c"]
) -> tuple[Float[np.ndarray, "b"], Float[np.ndarray, "b d c"]]:
    """Return the mean cross entropy of models over all rows, and its gradients, in float64."""
    b, d, c = models.shape
    columns = models.astype(np.float64).transpose(1, 0, 2).reshape(d, b * c)
    losses, gradients = np.zeros(b), np.zeros((d, b * c))
    for shard in shards:
        x, y = shard.x.astype(np.float64, copy=False), shard.y.astype(np.float64, copy=False)
        scores = (x @ columns).reshape(len(x), b, c)
        largest = scores.max(axis=2)
        logarithms = largest + np.log(np.exp(scores - largest[..., None]).sum(axis=2))
        losses += logarithms.sum(axis=0) - np.einsum("nbc,nc->b", scores, y)
        gradients += x.T @ (softmax(scores) - y[:, None]).reshape(len(x), b * c)
    samples = sum(shard.samples for shard in shards)
    return losses / samples, np.asarray(gradients.reshape(d, b, c).transpose(1, 0, 2) / samples)


def check_kind(loss: str, kind: str) -> None:
    """Refuse a loss of classes for a regression."""
    if loss == SOFTMAX and kind != "classification":
        raise ScenarioError("task.loss = 'softmax' needs classes, and the data are a regression; choose 'squared'")
