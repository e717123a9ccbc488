"""Embedding and Gram matrices of the paper's size against the bare BLAS calls for the same products."""

from typing import Any

import numpy as np
from scipy.linalg.blas import ssyrk

from benchmarks.measure import best_seconds, show
from codedfl import data
from codedfl.scenario import load
from codedfl.task import gram

LIMIT = 1.3


def main() -> dict[str, Any]:
    """Measure on MNIST: 25 shards of 2400 images, 2000 features, float32."""
    scenario = load("paper")
    images = data.load("mnist").x_train
    devices = scenario.fleet.size
    shards = np.split(images, devices)
    settings = scenario.features
    features = data.FeatureMap.create(
        "rbf", inputs=images.shape[1], dimension=settings.dimension, gamma=settings.gamma, seed=settings.seed
    )
    weights = np.ascontiguousarray(features.weights)
    embedded = [features.transform(shard) for shard in shards]

    # both sides keep their results, as every device does
    best = best_seconds(
        {
            "embedding": lambda: [features.transform(shard) for shard in shards],
            "bare_embedding": lambda: [shard @ weights for shard in shards],
            "gram": lambda: [gram(x) for x in embedded],
            "bare_gram": lambda: [ssyrk(1.0, x.T) for x in embedded],
        },
        rounds=5,
    )
    ours, bare = best["embedding"] + best["gram"], best["bare_embedding"] + best["bare_gram"]
    ratios = {
        "embedding": best["embedding"] / best["bare_embedding"],
        "gram": best["gram"] / best["bare_gram"],
        "together": ours / bare,
    }
    show("embedding / bare sgemm", ratios["embedding"])
    show("Gram matrices / bare ssyrk", ratios["gram"])
    show("embedding + Gram matrices / bare BLAS calls", ratios["together"], LIMIT)
    return {"seconds": best, "ratios": ratios, "limit": LIMIT}


if __name__ == "__main__":
    main()
