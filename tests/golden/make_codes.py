"""Golden vectors of the codes by an independent route: exact fractions in plain Python, no codedfl.

Run ``python tests/golden/make_codes.py`` to write codes_*.json beside this file.
"""

import json
import random
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path

HERE = Path(__file__).parent


def eliminate(rows):
    """Reduced row echelon form and pivot columns, exactly."""
    rows = [list(row) for row in rows]
    pivots = []
    for column in range(len(rows[0]) if rows else 0):
        height = len(pivots)
        pick = next((i for i in range(height, len(rows)) if rows[i][column]), None)
        if pick is None:
            continue
        rows[height], rows[pick] = rows[pick], rows[height]
        pivot = rows[height][column]
        rows[height] = [x / pivot for x in rows[height]]
        for i, row in enumerate(rows):
            if i != height and row[column]:
                factor = row[column]
                rows[i] = [x - factor * y for x, y in zip(row, rows[height], strict=True)]
        pivots.append(column)
    return rows[: len(pivots)], pivots


def null_space(rows):
    """A basis of {x : rows x = 0}."""
    reduced, pivots = eliminate(rows)
    width = len(rows[0])
    basis = []
    for free in (j for j in range(width) if j not in pivots):
        vector = [Fraction(0)] * width
        vector[free] = Fraction(1)
        for row, pivot in zip(reduced, pivots, strict=True):
            vector[pivot] = -row[free]
        basis.append(vector)
    return basis


def stopping_set(checks, erased):
    """What peeling leaves of ``erased``; checks are sets of positions."""
    left = set(erased)
    while True:
        found = {next(iter(check & left)) for check in checks if len(check & left) == 1}
        if not found:
            return sorted(left)
        left -= found


def parity_checks(rng, n, m, degree):
    """A sparse matrix of dyadic entries whose last column is twice the one before."""
    H = [[Fraction(0)] * n for _ in range(m)]
    for j in range(n - 1):
        for i in rng.sample(range(m), degree):
            H[i][j] = rng.choice([-1, 1]) * Fraction(rng.randrange(32, 97), 64)
    for i in range(m):
        H[i][n - 1] = 2 * H[i][n - 2]
    return H


def erasures():
    """A code, codewords in exact fractions, and of many erased sets what can be decoded."""
    rng = random.Random(2005)
    n, m, degree = 12, 6, 3
    H = parity_checks(rng, n, m, degree)
    assert len(eliminate(H)[1]) == m
    basis = null_space(H)
    words = []
    for _ in range(3):
        coefficients = [rng.randrange(-9, 10) for _ in basis]
        words.append([sum(c * v[j] for c, v in zip(coefficients, basis, strict=True)) for j in range(n)])
    checks = [{j for j in range(n) if row[j]} for row in H]
    cases = []
    for size in range(1, m + 1):
        sets = list(combinations(range(n), size))
        for erased in sets if size <= 4 else rng.sample(sets, 60):
            columns = [[row[j] for j in erased] for row in H]
            dependences = null_space(columns)
            dependent = [j for i, j in enumerate(erased) if any(v[i] for v in dependences)]
            cases.append(
                {
                    "erased": list(erased),
                    "rank": len(erased) - len(dependences),
                    "dependent": dependent,
                    "stopping_set": stopping_set(checks, erased),
                }
            )
    texts = [[str(x) for x in row] for row in H]
    return {"H": texts, "words": [[str(x) for x in word] for word in words], "cases": cases}


def peeling():
    """Exactly how many erased sets of each size stop peeling, by trying them all."""
    rng = random.Random(1999)
    n, m, degree = 14, 7, 3
    neighbours = [sorted(rng.sample(range(m), degree)) for _ in range(n)]
    checks = [{v for v in range(n) if c in neighbours[v]} for c in range(m)]
    stopped = {
        size: sum(bool(stopping_set(checks, erased)) for erased in combinations(range(n), size))
        for size in range(n + 1)
    }
    four_cycles = sum(len(a & b) * (len(a & b) - 1) // 2 for a, b in combinations(checks, 2))
    return {"n": n, "m": m, "checks": neighbours, "stopped": stopped, "four_cycles": four_cycles}


def times_four(a, b):
    """Product in the field of four elements: carry-less, modulo x^2 + x + 1."""
    value = (a if b & 1 else 0) ^ (a << 1 if b & 2 else 0)
    return value ^ 7 if value & 4 else value


def lines(q, plus, times):
    """All lines of the plane over a field, as point + multiples of a direction."""
    found = set()
    for x, y, dx, dy in product(range(q), repeat=4):
        if dx or dy:
            found.add(tuple(sorted(plus(x, times(s, dx)) * q + plus(y, times(s, dy)) for s in range(q))))
    return sorted(found)


def families():
    """Lines of the affine planes of order 3 and 4."""
    return {
        "3": lines(3, lambda a, b: (a + b) % 3, lambda a, b: a * b % 3),
        "4": lines(4, lambda a, b: a ^ b, times_four),
    }


def contents():
    """Name of every file and what belongs in it."""
    return {"codes_erasures": erasures(), "codes_peeling": peeling(), "codes_families": families()}


if __name__ == "__main__":
    for name, content in contents().items():
        (HERE / f"{name}.json").write_text(json.dumps(content, indent=None, separators=(",", ":")) + "\n")
