"""What inactivation decoding buys: larger erasure sets at no failure rate, hence larger supports or more of them.

The paper (section VI) says that its scheme improves with a better decoder such as inactivation. Peeling stalls soon
above its t_tot = 256. Inactivation fails only where the erased columns of H are linearly dependent.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from codedfl.cipher.mceliece.parameters import PAPER_92, PAPER_128, Parameters
from codedfl.codes.bounds import johnson_bound, least_overlap
from codedfl.codes.frame_errors import decoder_error_rates
from codedfl.codes.mdpc import draw_parity_check
from codedfl.progress import Progress, silent
from codedfl.security.estimates.claimed import claimed_level

LENGTHS = (256, 264, 272, 288, 320, 384, 448, 512)
"""Sizes t_tot of the erasure set: peeling breaks down between the first and the fourth."""
Q_BITS = 32


def larger_supports(
    lengths: Sequence[int] = LENGTHS,
    *,
    parameters: Parameters = PAPER_92,
    many: Parameters = PAPER_128,
    trials: int = 20_000,
    stalls: int = 200,
    seed: int = 0,
    workers: int | None = None,
    progress: Progress = silent,
) -> list[dict[str, Any]]:
    """Return one row for each size t_tot of the erasure set.

    ``peeling`` and ``inactivation`` are failure rates on the same random sets, with ``_low`` and ``_high`` of their 95%
    Wilson intervals, ``trials`` sets in all, fewer once peeling has stalled ``stalls`` times. ``condition`` is that of
    the erased columns of one set. ``t`` is the largest size of M supports that need overlap by no larger share than
    those of ``parameters``, ``overlap`` the least they can, and ``level`` the level claimed for t.
    ``supports`` bounds how many supports of the t of ``many`` can overlap in as few positions as those of ``many``.
    The result depends on ``seed``, not on ``workers``.
    """
    p = parameters
    H = draw_parity_check(p.n, p.k, p.degree, seed=seed, weights=p.weights, construction=p.construction)
    allowed = least_overlap(many.t_tot, many.t, many.M)
    rows = []
    for number, length in enumerate(lengths):
        progress("larger erasure sets", number, len(lengths))
        rates = decoder_error_rates(H, length, trials=trials, stalls=stalls, seed=seed, workers=workers)
        row: dict[str, Any] = {"t_tot": length, "trials": rates["peeling"].trials}
        for name, rate in rates.items():
            row |= {name: rate.rate, f"{name}_low": rate.low, f"{name}_high": rate.high}
        erased = np.random.default_rng([seed, length]).choice(p.n, length, replace=False)
        t = _largest_support(p, length)
        row |= {
            "condition": float(np.linalg.cond(H[:, erased].toarray())),
            "M": p.M,
            "t": t,
            "overlap": least_overlap(length, t, p.M),
            "level": claimed_level(p.n, p.k, t, p.beta, Q_BITS),
            "supports": johnson_bound(length, many.t, allowed) if many.t <= length else 0,
        }
        rows.append(row)
    progress("larger erasure sets", len(lengths), len(lengths))
    return rows


def _largest_support(p: Parameters, length: int) -> int:
    """Return the largest t for which M supports in ``length`` positions need share no more of t than those of p do."""
    share = least_overlap(p.t_tot, p.t, p.M) / p.t
    # M t of the positions are used M t / length times on average, so pairs share at least (M t / length - 1) / (M - 1)
    # of t, and no larger t than this fits
    largest = int(length * (1 + (p.M - 1) * share) / p.M)
    fitting = (t for t in range(largest, 0, -1) if least_overlap(length, t, p.M) <= share * t)
    return next(fitting, 1)
