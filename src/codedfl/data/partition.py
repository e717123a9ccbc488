"""Partition of the training samples among devices: each sample goes to exactly one."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int, Shaped

from codedfl.errors import DataError, ScenarioError

PARTITION_KINDS = ("iid", "shards", "dirichlet", "sizes", "column", "files")
DIRICHLET_TRIES = 100
Labels = Shaped[np.ndarray, "m ..."]
Indices = Int[np.ndarray, " _"]


def partition(
    labels: Labels | None,
    samples: int,
    devices: int,
    *,
    kind: str = "iid",
    seed: int = 0,
    shards_per_device: int = 1,
    alpha: float | int = 1.0,
    sizes: Sequence[float | int] | None = None,
    owners: Shaped[np.ndarray, " m"] | None = None,
) -> tuple[Indices, ...]:
    """Return the indices of the training samples of each device.

    - ``iid``: at random, sizes equal up to one;
    - ``shards``: sorted by label (by the first target of a regression) and cut into ``shards_per_device`` equal shards
      per device; a single shard per device is assigned in order, several at random;
    - ``dirichlet``: the samples of each class in proportions drawn from Dirichlet(``alpha``);
    - ``sizes``: at random, in proportion to the weights ``sizes``, one per device;
    - ``column``, ``files``: by ``owners``, the owner of each sample; devices are owners in sorted order.

    The parts are disjoint, none is empty, and their union is 0 to ``samples`` - 1. The indices of a device are
    shuffled, so that any slice of them is a random mini-batch.
    """
    if devices < 1:
        raise ScenarioError(f"the number of devices is {devices}; it must be at least 1.")
    if devices > samples:
        raise DataError(f"{samples} samples cannot be dealt to {devices} devices; lower the number of devices.")
    if labels is not None and len(labels) != samples:
        raise DataError(f"{len(labels)} labels were given for {samples} samples; give one per sample.")
    if seed < 0:
        raise ScenarioError(f"the partition seed is {seed}; it must not be negative.")
    generator = np.random.default_rng(seed)
    if kind in ("column", "files"):
        return _by_owner(owners, devices)
    if kind == "iid":
        parts = np.array_split(generator.permutation(samples), devices)
    elif kind == "shards":
        parts = _shards(labels, devices, shards_per_device, generator)
    elif kind == "dirichlet":
        parts = _dirichlet(labels, devices, alpha, generator)
    elif kind == "sizes":
        cuts = np.cumsum(_counts(samples, devices, sizes))[:-1]
        parts = np.split(generator.permutation(samples), cuts)
    else:
        raise ScenarioError(f"there is no partition kind {kind!r}; choose one of {', '.join(PARTITION_KINDS)}.")
    return tuple(generator.permutation(part).astype(np.int64) for part in parts)


def _by_owner(owners: Shaped[np.ndarray, " m"] | None, devices: int) -> tuple[Indices, ...]:
    if owners is None:
        raise DataError("the data do not name the owner of each row; use another partition.kind.")
    names, owner = np.unique(owners, return_inverse=True)
    if len(names) != devices:
        raise DataError(f"the data have {len(names)} owners but the fleet {devices} devices; give one to each owner.")
    order = np.argsort(owner, kind="stable").astype(np.int64)
    return tuple(np.split(order, np.cumsum(np.bincount(owner))[:-1]))


def _shards(
    labels: Labels | None, devices: int, shards_per_device: int, generator: np.random.Generator
) -> list[Indices]:
    if labels is None:
        raise DataError("the partition 'shards' sorts by label or target, but none was given; use 'iid'.")
    if shards_per_device < 1:
        raise ScenarioError(f"shards_per_device is {shards_per_device}; it must be at least 1.")
    count = devices * shards_per_device
    if count > len(labels):
        raise DataError(
            f"{len(labels)} samples cannot fill {count} shards ({shards_per_device} for each of {devices}"
            " devices); lower shards_per_device or the number of devices."
        )
    order = np.argsort(labels.reshape(len(labels), -1)[:, 0], kind="stable")
    shards = np.array_split(order, count)
    # one shard per device is the label-sorted split: device i has the i-th shard
    dealt = np.arange(count) if shards_per_device == 1 else generator.permutation(count)
    return [np.concatenate([shards[i] for i in own]) for own in dealt.reshape(devices, -1)]


def _dirichlet(
    labels: Labels | None, devices: int, alpha: float | int, generator: np.random.Generator
) -> list[Indices]:
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError("the partition 'dirichlet' needs classes, but the data has none; use 'iid' or 'shards'.")
    if not (math.isfinite(alpha) and alpha > 0):
        raise ScenarioError(f"alpha of the partition 'dirichlet' is {alpha}; it must be a positive number.")
    for _ in range(DIRICHLET_TRIES):
        parts = _dirichlet_draw(labels, devices, alpha, generator)
        if all(part.size for part in parts):
            return parts
    raise DataError(
        f"alpha = {alpha} left some of {devices} devices without a sample in each of {DIRICHLET_TRIES} draws"
        f" from {len(labels)} samples; raise alpha or lower the number of devices."
    )


def _dirichlet_draw(
    labels: Int[np.ndarray, " m"], devices: int, alpha: float | int, generator: np.random.Generator
) -> list[Indices]:
    parts: list[list[Indices]] = [[] for _ in range(devices)]
    for label in np.unique(labels):
        of_class = generator.permutation(np.flatnonzero(labels == label))
        shares = generator.dirichlet(np.full(devices, alpha))
        # a tiny alpha can underflow to 0/0: the last device gets everything, and the draw is repeated
        cuts = np.nan_to_num(np.cumsum(shares)[:-1]) * len(of_class)
        for own, piece in zip(parts, np.split(of_class, np.round(cuts).astype(np.int64)), strict=True):
            own.append(piece)
    return [np.concatenate(own) for own in parts]


def _counts(samples: int, devices: int, sizes: Sequence[float | int] | None) -> Int[np.ndarray, " devices"]:
    """Return sizes by the largest-remainder method: each is within one of its exact share."""
    if sizes is None or len(sizes) != devices:
        given = "none" if sizes is None else len(sizes)
        raise ScenarioError(
            f"the partition 'sizes' needs one weight for each of {devices} devices, but {given} were given."
        )
    weights: Float[np.ndarray, " devices"] = np.asarray(sizes, dtype=np.float64)
    if not (np.isfinite(weights).all() and (weights > 0).all()):
        raise ScenarioError(f"the weights of the partition 'sizes' are {list(sizes)}; all must be positive.")
    shares = weights / weights.max()
    shares *= samples / shares.sum()
    counts: Int[np.ndarray, " devices"] = np.floor(shares).astype(np.int64)
    counts[np.argsort(counts - shares, kind="stable")[: samples - counts.sum()]] += 1
    if not counts.all():
        raise DataError(
            f"device {int(np.argmin(counts))} would hold none of {samples} samples by its weight"
            f" {sizes[int(np.argmin(counts))]}; raise that weight or lower the others."
        )
    return counts
