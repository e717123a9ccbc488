"""Frame error rates by Monte Carlo: how often a random set of erasures stops peeling, or any decoder at all."""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeVar, final

import numpy as np
import scipy
from jaxtyping import Int

from codedfl.codes.graph import TannerGraph
from codedfl.codes.threads import cores
from codedfl.errors import CodeError

BLOCK = 4096
"""Trials that share one random stream; fixed, because the result depends on it."""

BATCH = 16
"""Blocks between two checks of the precision; fixed, so that an early stop does not depend on the workers."""

SMALL_BLOCK, SMALL_BATCH = 32, 2
"""The same for :func:`decoder_error_rates`, whose trials may cost milliseconds each."""

Progress = Callable[[int, int], None]


@final
@dataclass(frozen=True)
class FrameErrorRate:
    """Failures of a decoder among random sets of ``erasures`` positions, with a 95% Wilson interval."""

    erasures: int
    trials: int
    failures: int
    rate: float
    low: float
    high: float


def wilson_interval(failures: int, trials: int) -> tuple[float, float]:
    """Return the 95% Wilson interval of a probability; it is valid without any failure, too."""
    z = NormalDist().inv_cdf((1 + 0.95) / 2)
    rate = failures / trials
    scale = 1 + z * z / trials
    centre = (rate + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    return 0.0 if failures == 0 else centre - half, 1.0 if failures == trials else centre + half


def frame_error_rate(
    graph: TannerGraph,
    erasures: int,
    *,
    trials: int,
    seed: int,
    relative_precision: float | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
) -> FrameErrorRate:
    """Estimate how often peeling stalls on ``erasures`` random positions of ``graph``.

    It stops early once half the interval's width is at most ``relative_precision`` times the rate. The result depends
    on ``seed``, not on ``workers`` (default: all cores). ``progress(done, failures)`` is called between batches.
    """
    _check(graph, erasures, trials, relative_precision, workers)
    done = failures = 0
    for sizes, found in _batches(graph, erasures, trials, seed, workers, len, BLOCK, BATCH):
        failures += sum(found)
        done += sum(sizes)
        if progress is not None:
            progress(done, failures)
        low, high = wilson_interval(failures, done)
        if relative_precision is not None and (high - low) / 2 <= relative_precision * failures / done:
            break
    return _rate(erasures, done, failures)


def decoder_error_rates(
    H: "scipy.sparse.csr_matrix",
    erasures: int,
    *,
    trials: int,
    seed: int,
    stalls: int | None = None,
    workers: int | None = None,
) -> dict[str, FrameErrorRate]:
    """Estimate how often ``peeling`` and ``inactivation`` fail on the same random sets of columns of ``H``.

    Inactivation fails exactly where every decoder does: where the erased columns are linearly dependent. What peeling
    restores is independent of the rest, so only what it leaves is looked at. It stops early once peeling has stalled
    ``stalls`` times. The result depends on ``seed``, not on ``workers``.
    """
    graph = TannerGraph.of(H)
    _check(graph, erasures, trials, None, workers)
    columns = scipy.sparse.csc_matrix(H)

    def judged(stalled: Int[np.ndarray, "sets erasures"]) -> tuple[int, int]:
        return len(stalled), sum(not independent_columns(columns, row[row >= 0]) for row in stalled)

    done = stalled = dependent = 0
    for sizes, found in _batches(graph, erasures, trials, seed, workers, judged, SMALL_BLOCK, SMALL_BATCH):
        done += sum(sizes)
        stalled += sum(pair[0] for pair in found)
        dependent += sum(pair[1] for pair in found)
        if stalls is not None and stalled >= stalls:
            break
    return {"peeling": _rate(erasures, done, stalled), "inactivation": _rate(erasures, done, dependent)}


def independent_columns(H: "scipy.sparse.csc_matrix", positions: Int[np.ndarray, "e"]) -> bool:
    """Whether these columns of H are linearly independent, to rounding as ``decodable`` counts it."""
    e = positions.size
    if e == 0:
        return True
    chosen = H[:, positions]
    gram = (chosen.T @ chosen).toarray()
    # Cholesky in float64 is exact for a matrix within e (e + 1) eps max(diag) of the given one (Higham, Accuracy and
    # Stability, theorem 10.3), so success on a matrix that is smaller by twice that proves independence
    shift = 2 * e * (e + 1) * np.finfo(np.float64).eps * gram.diagonal().max()
    _, failed = scipy.linalg.lapack.dpotrf(gram - shift * np.eye(e), lower=1, overwrite_a=1)
    if not failed:
        return True
    values = scipy.linalg.svdvals(chosen.toarray())
    rank = np.count_nonzero(values > max(chosen.shape) * np.finfo(np.float64).eps * values[0])
    return bool(rank == e)


_Counted = TypeVar("_Counted")


def _batches(
    graph: TannerGraph,
    erasures: int,
    trials: int,
    seed: int,
    workers: int | None,
    count: Callable[[Int[np.ndarray, "sets erasures"]], _Counted],
    block: int,
    batch: int,
) -> Iterator[tuple[list[int], list[_Counted]]]:
    """Peel random sets in blocks with streams of their own; yield the blocks' sizes and counts, batch by batch."""
    from codedfl.codes import kernels  # numba is slow to import

    blocks = math.ceil(trials / block)
    sizes = [min(block, trials - i * block) for i in range(blocks)]
    seeds = np.random.SeedSequence(seed).generate_state(blocks, np.uint64)
    # the narrowest index type keeps the table of edges in the cache; measured a third faster
    edges = graph.checks.astype(np.uint16 if graph.m <= 1 << 16 else np.uint32)

    def work(size: int, stream: np.uint64) -> _Counted:
        return count(kernels.stalled_sets(edges, graph.m, erasures, size, stream))

    with ThreadPoolExecutor(workers or cores()) as pool:
        for start in range(0, blocks, batch):
            part = slice(start, start + batch)
            yield sizes[part], list(pool.map(work, sizes[part], seeds[part]))


def _rate(erasures: int, trials: int, failures: int) -> FrameErrorRate:
    return FrameErrorRate(erasures, trials, failures, failures / trials, *wilson_interval(failures, trials))


def _check(graph: TannerGraph, erasures: int, trials: int, precision: float | None, workers: int | None) -> None:
    if not 0 <= erasures <= graph.n:
        raise CodeError(f"{erasures} of {graph.n} positions cannot be erased: choose 0 to {graph.n}.")
    if trials < 1:
        raise CodeError(f"{trials} trials give no rate: ask for at least 1.")
    if precision is not None and not precision > 0:
        raise CodeError(f"Relative precision {precision} is never reached: give a number above 0.")
    if workers is not None and workers < 1:
        raise CodeError(f"{workers} workers cannot work: ask for at least 1.")
