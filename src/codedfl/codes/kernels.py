"""Compiled inner loops of the codes: bitset edge growth, edge swaps, shortest cycles, counted peeling, thin products.

Sets of checks are rows of 64-bit words. Random numbers are arguments, so a kernel is a pure function.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

ZERO = np.uint64(0)
ONE = np.uint64(1)
WORD = 64
HALF = np.uint64(32)
UNIT = np.uint64(1 << 32)
LOW = np.uint64(0xFFFFFFFF)


@njit(cache=True, inline="always")
def _popcount(x: np.uint64) -> int:
    x = x - ((x >> ONE) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(cache=True, inline="always")
def _bit(c: int) -> np.uint64:
    return ONE << np.uint64(c & 63)


@njit(cache=True, nogil=True)
def _lowest(x: np.uint64) -> int:
    return _popcount((x & (~x + ONE)) - ONE)


@njit(cache=True, nogil=True)
def _absorb(
    seen: NDArray[np.uint64],
    frontier: NDArray[np.uint64],
    reach: NDArray[np.uint64],
    free: NDArray[np.uint64],
) -> bool:
    """Add to ``seen`` all that the frontier reaches; False as soon as no free check is left outside."""
    for w in range(frontier.size):
        bits = frontier[w]
        while bits != ZERO:
            c = w * WORD + _lowest(bits)
            bits &= bits - ONE
            outside = ZERO
            for u in range(seen.size):
                seen[u] |= reach[c, u]
                outside |= free[u] & ~seen[u]
            if outside == ZERO:
                return False
    return True


@njit(cache=True, nogil=True)
def _farthest(
    own: NDArray[np.uint64], near: NDArray[np.uint64], reach: NDArray[np.uint64], free: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Free checks outside the deepest tree of the variable that leaves any of them outside."""
    seen, grown = own.copy(), own | near
    while True:
        outside = ZERO
        for u in range(seen.size):
            outside |= free[u] & ~grown[u]
        if outside == ZERO:
            break
        frontier = grown & ~seen
        seen = grown
        if not frontier.any():
            break
        grown = seen.copy()
        if not _absorb(grown, frontier, reach, free):
            break
    return free & ~seen


@njit(cache=True, nogil=True)
def _pick(candidates: NDArray[np.uint64], room: NDArray[np.uint64], top: int, uniform: float) -> int:
    """One of the candidates with most room, all of them equally likely for a ``uniform`` number below 1."""
    for r in range(top, 0, -1):
        count = 0
        for u in range(candidates.size):
            count += _popcount(candidates[u] & room[r, u])
        if count == 0:
            continue
        skip = int(uniform * count)
        for u in range(candidates.size):
            bits = candidates[u] & room[r, u]
            here = _popcount(bits)
            if skip >= here:
                skip -= here
                continue
            for _ in range(skip):
                bits &= bits - ONE
            return u * WORD + _lowest(bits)
    return -1


@njit(cache=True, nogil=True)
def grow_edges(n: int, degree: int, capacity: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.int32]:
    """Progressive edge growth of ``n`` variables, edges in order; ``capacity[c]`` of them end in check c.

    ``room[r]`` is the set of checks that may still take r edges, so the lowest degree is found by scanning
    a few words. ``reach[c]`` is the set of checks that share a finished variable with c. A check whose room
    equals the number of variables left must be taken by each of them; taking it first keeps the rest feasible
    (Gale-Ryser: equal demands on one side need only capacities no larger than their number).
    """
    m = capacity.size
    words = (m + WORD - 1) // WORD
    left = capacity.copy()
    top = left.max()
    room = np.zeros((top + 1, words), dtype=np.uint64)
    for c in range(m):
        room[left[c], c // WORD] |= _bit(c)
    reach = np.zeros((m, words), dtype=np.uint64)
    everything = np.zeros(words, dtype=np.uint64)
    for c in range(m):
        everything[c // WORD] |= _bit(c)
    edges = np.empty((n, degree), dtype=np.int32)
    for v in range(n):
        own = np.zeros(words, dtype=np.uint64)
        near = np.zeros(words, dtype=np.uint64)
        while top > 0 and not room[top].any():
            top -= 1
        for j in range(degree):
            if top >= n - v and (room[n - v] & ~own).any():
                candidates = room[n - v] & ~own
            else:
                free = everything & ~own & ~room[0]
                candidates = _farthest(own, near, reach, free)
            c = _pick(candidates, room, top, uniforms[v, j])
            edges[v, j] = c
            own[c // WORD] |= _bit(c)
            room[left[c], c // WORD] &= ~_bit(c)
            left[c] -= 1
            room[left[c], c // WORD] |= _bit(c)
            for u in range(words):  # a loop: to compile the assignment of a whole row takes seconds
                near[u] |= reach[c, u]
        for j in range(degree):
            for u in range(words):
                reach[edges[v, j], u] |= own[u]
    return edges


@njit(cache=True, nogil=True)
def swap_edges(edges: NDArray[np.int32], first: NDArray[np.int64], second: NDArray[np.int64]) -> None:
    """Exchange the check ends of edge pairs in place wherever no double edge would arise."""
    degree = edges.shape[1]
    for i in range(first.size):
        v, a = first[i] // degree, first[i] % degree
        w, b = second[i] // degree, second[i] % degree
        c, d = edges[v, a], edges[w, b]
        allowed = True  # an end that moves within its row, or to its own check, is found there, too
        for j in range(degree):
            if edges[v, j] == d or edges[w, j] == c:
                allowed = False
        if allowed:
            edges[v, a] = d
            edges[w, b] = c


@njit(cache=True, nogil=True)
def shortest_cycle(starts: NDArray[np.int64], ends: NDArray[np.int64], roots: int) -> int:
    """Length of the shortest cycle through one of the first ``roots`` nodes; 0 if there is none."""
    nodes = starts.size - 1
    best = 0
    depth = np.empty(nodes, dtype=np.int64)
    parent = np.empty(nodes, dtype=np.int64)
    queue = np.empty(nodes, dtype=np.int64)
    for root in range(roots):
        depth[:] = -1
        depth[root], parent[root] = 0, -1
        queue[0] = root
        head, tail = 0, 1
        while head < tail:
            u = queue[head]
            head += 1
            if best > 0 and 2 * depth[u] + 1 >= best:
                break
            for e in range(starts[u], starts[u + 1]):
                w = ends[e]
                if depth[w] < 0:
                    depth[w], parent[w] = depth[u] + 1, u
                    queue[tail] = w
                    tail += 1
                elif w != parent[u]:
                    length = depth[u] + depth[w] + 1
                    if best == 0 or length < best:
                        best = length
    return best


@njit(cache=True, inline="always")
def _next_state(state: np.uint64) -> np.uint64:
    return state + np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, inline="always")
def _mix(state: np.uint64) -> np.uint64:
    z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, inline="always")
def bounded(draw: np.uint64, bound: int) -> int:
    """A number below ``bound`` < 2**31 from 64 random bits; uneven by less than bound / 2**32."""
    return int(((draw >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@njit(cache=True, nogil=True)
def _peel(
    edges: NDArray[Any], tally: NDArray[np.uint64], ready: NDArray[np.int64], left: NDArray[np.bool_], erasures: int
) -> int:
    """Peel the erasures that are counted in ``tally`` and marked in ``left``; return how many stay marked."""
    size = 0
    for c in range(tally.size):
        if tally[c] >> HALF == ONE:
            ready[size] = c
            size += 1
    unresolved = erasures
    while size > 0 and unresolved > 0:
        size -= 1
        known = tally[ready[size]]
        if known >> HALF != ONE:
            continue
        v = np.int64(known & LOW)
        unresolved -= 1
        left[v] = False
        for e in range(edges.shape[1]):
            c = edges[v, e]
            rest = (tally[c] - UNIT) ^ np.uint64(v)
            tally[c] = rest
            if rest >> HALF == ONE:
                ready[size] = c
                size += 1
    return unresolved


@njit(cache=True, nogil=True)
def stalled_sets(edges: NDArray[Any], m: int, erasures: int, trials: int, seed: np.uint64) -> NDArray[np.int32]:
    """Erase ``trials`` random sets of variables; return what peeling leaves of each that stops it, filled up with -1.

    Each check keeps the number of its erased neighbours (high half of a word) and the exclusive or of their
    indices (low half), so the last erased neighbour is read off without a search.
    """
    n, degree = edges.shape
    order = np.arange(n)
    tally = np.zeros(m, dtype=np.uint64)
    # a count only falls, so a check becomes ready at most once
    ready = np.empty(m, dtype=np.int64)
    left = np.zeros(n, dtype=np.bool_)
    found = np.empty((trials, erasures), dtype=np.int32)
    state = seed
    failures = 0
    for _ in range(trials):
        tally[:] = 0
        for i in range(erasures):
            state = _next_state(state)
            j = i + bounded(_mix(state), n - i)
            v = order[j]
            order[j] = order[i]
            order[i] = v
            left[v] = True
            for e in range(degree):
                c = edges[v, e]
                tally[c] = (tally[c] + UNIT) ^ np.uint64(v)
        if _peel(edges, tally, ready, left, erasures) > 0:
            size = 0
            for i in range(erasures):
                if left[order[i]]:
                    found[failures, size] = order[i]
                    left[order[i]] = False
                    size += 1
            found[failures, size:] = -1
            failures += 1
    return found[:failures].copy()


TILE = 1024
"""Columns of eight rows that are multiplied by all rows on the left before the next ones are read."""


@njit(cache=True, nogil=True, fastmath={"contract"})
def add_thin_product(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any]) -> None:
    """Add left @ right to ``out``; entries are added in the order of the rows of ``right``, eight at a time.

    A general product first copies ``right`` into blocks, which pays for many rows on the left only. ``left`` has an
    even number of rows: two share what is read of ``right``, as registers do not suffice for more.
    """
    rows, inner = left.shape
    whole = inner - inner % 8
    for k in range(0, whole, 8):
        for start in range(0, right.shape[1], TILE):
            stop = min(start + TILE, right.shape[1])
            b0, b1, b2, b3 = (
                right[k, start:stop],
                right[k + 1, start:stop],
                right[k + 2, start:stop],
                right[k + 3, start:stop],
            )
            b4, b5, b6, b7 = (
                right[k + 4, start:stop],
                right[k + 5, start:stop],
                right[k + 6, start:stop],
                right[k + 7, start:stop],
            )
            for r in range(0, rows, 2):
                a0, a1, a2, a3 = left[r, k], left[r, k + 1], left[r, k + 2], left[r, k + 3]
                a4, a5, a6, a7 = left[r, k + 4], left[r, k + 5], left[r, k + 6], left[r, k + 7]
                c0, c1, c2, c3 = left[r + 1, k], left[r + 1, k + 1], left[r + 1, k + 2], left[r + 1, k + 3]
                c4, c5, c6, c7 = left[r + 1, k + 4], left[r + 1, k + 5], left[r + 1, k + 6], left[r + 1, k + 7]
                first, second = out[r, start:stop], out[r + 1, start:stop]
                for j in range(stop - start):
                    low = a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j]
                    other = c0 * b0[j] + c1 * b1[j] + c2 * b2[j] + c3 * b3[j]
                    one = first[j] + (low + a4 * b4[j] + a5 * b5[j] + a6 * b6[j] + a7 * b7[j])
                    two = second[j] + (other + c4 * b4[j] + c5 * b5[j] + c6 * b6[j] + c7 * b7[j])
                    first[j] = one
                    second[j] = two
    for k in range(whole, inner):
        for r in range(rows):
            factor, last, row = left[r, k], right[k], out[r]
            for j in range(last.size):
                row[j] += factor * last[j]
