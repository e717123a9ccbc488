"""Error bounds of the codes' tests, from condition numbers and rounding units."""

import numpy as np


def restored_tolerance(plan, words):
    """Largest error that decoding may leave in ``words``, codewords computed in float64.

    A computed word c misses H c = 0 by its syndrome s. It is an exact codeword c* plus a change of at most d
    = |H_J^-1|_inf |s| in the parity positions J, where s also has its own rounding, (row weight + 1) eps
    |H||c|. So |decode(c) - c| <= |decode(c) - decode(c*)| + |decode(c*) - c*| + |c* - c|, hence at most
    (amplification + 1) d + bound |c|; casting the known symbols to the plan's precision changes them by eps
    |c|.
    """
    code = plan.code
    scale = np.abs(words).max()
    rounding = (np.diff(code.H.indptr).max() + 1) * np.finfo(np.float64).eps * abs(code.H).sum(axis=1).max()
    syndrome = np.abs(code.syndrome(words)).max() + rounding * scale
    inverse = np.linalg.inv(code.H[:, code.parity].toarray())
    change = np.abs(inverse).sum(axis=1).max() * syndrome
    cast = np.finfo(plan.dtype).eps
    return (plan.amplification + 1) * change + (plan.error_bound + cast) * scale


def message_tolerance(plan, words):
    """The same through S^T, whose columns have absolute sums of at most sqrt(k); k + 3 roundings a sum."""
    k = plan.code.k
    unit = np.finfo(plan.dtype).eps
    return np.sqrt(k) * (restored_tolerance(plan, words) + (k + 3) * unit * np.abs(words).max())
