"""Golden vectors of the cipher by an independent route: exact fractions, nothing imported from codedfl.

    python tests/golden/make_cipher.py    writes cipher_small.json beside itself

A parity-check matrix with weights that are exact in binary, its null space by elimination, a scrambled
generator, one encryption per support, their sum and one reply, and the erasure decoding by elimination: all
as fractions.
"""

import json
import random
from fractions import Fraction
from pathlib import Path

Matrix = list[list[Fraction]]
N, K, DEGREE, T_TOT, T, BETA = 12, 6, 3, 4, 3, 2
SUPPORTS = [[0, 1, 2], [1, 2, 3]]  # indices into the erasure set


def product(left: Matrix, right: Matrix) -> Matrix:
    columns = list(zip(*right, strict=True))
    return [[sum((a * b for a, b in zip(row, column, strict=True)), Fraction(0)) for column in columns] for row in left]


def total(left: Matrix, right: Matrix) -> Matrix:
    return [[a + b for a, b in zip(x, y, strict=True)] for x, y in zip(left, right, strict=True)]


def transposed(matrix: Matrix) -> Matrix:
    return [list(column) for column in zip(*matrix, strict=True)]


def reduced(matrix: Matrix) -> tuple[Matrix, list[int]]:
    """Reduced row echelon form and its pivot columns."""
    rows, pivots = [list(row) for row in matrix], []
    for column in range(len(rows[0])):
        found = next((i for i in range(len(pivots), len(rows)) if rows[i][column] != 0), None)
        if found is None:
            continue
        at = len(pivots)
        rows[at], rows[found] = rows[found], rows[at]
        rows[at] = [value / rows[at][column] for value in rows[at]]
        for i in range(len(rows)):
            if i != at:
                rows[i] = [a - rows[i][column] * b for a, b in zip(rows[i], rows[at], strict=True)]
        pivots.append(column)
    return rows, pivots


def null_space(matrix: Matrix) -> tuple[Matrix, list[int]]:
    """A basis that is the identity at the columns without pivot, and those columns."""
    rows, pivots = reduced(matrix)
    free = [column for column in range(len(matrix[0])) if column not in pivots]
    basis = []
    for column in free:
        vector = [Fraction(0)] * len(matrix[0])
        vector[column] = Fraction(1)
        for row, pivot in zip(rows, pivots, strict=False):
            vector[pivot] = -row[column]
        basis.append(vector)
    return basis, free


def solved(matrix: Matrix, right: Matrix) -> Matrix:
    """The unique X with matrix X = right, from an overdetermined but consistent system."""
    unknowns = len(matrix[0])
    rows, pivots = reduced([a + b for a, b in zip(matrix, right, strict=True)])
    if pivots[:unknowns] != list(range(unknowns)) or len(pivots) > unknowns:
        raise SystemExit("the system has no unique solution; choose another seed")
    return [row[unknowns:] for row in rows[:unknowns]]


def small_matrix(rng: random.Random, rows: int, columns: int) -> Matrix:
    return [[Fraction(rng.choice([-3, -2, -1, 1, 2, 3])) for _ in range(columns)] for _ in range(rows)]


def orthogonal(rng: random.Random, size: int) -> Matrix:
    """Cayley's map of a skew-symmetric Q: (I + Q)^-1 (I - Q) is orthogonal and rational."""
    plus = [[Fraction(int(i == j)) for j in range(size)] for i in range(size)]
    minus = [list(row) for row in plus]
    for i in range(size):
        for j in range(i):
            entry = Fraction(rng.choice([-3, -2, -1, 1, 2, 3]), 2)
            plus[i][j], plus[j][i], minus[i][j], minus[j][i] = entry, -entry, -entry, entry
    return solved(plus, minus)


def parity_checks(rng: random.Random) -> Matrix:
    H = [[Fraction(0)] * N for _ in range(N - K)]
    for column in range(N):
        for row in rng.sample(range(N - K), DEGREE):
            H[row][column] = rng.choice([-1, 1]) * Fraction(rng.randint(4, 12), 8)
    return H


def error_factors(rng: random.Random) -> tuple[Matrix, Matrix]:
    """[I ; S_1 ; S_2] with full-rank S_j, and a generator with any BETA columns independent."""
    identity = [[Fraction(int(i == j)) for j in range(BETA)] for i in range(BETA)]
    blocks = [list(row) for row in identity]
    while len(blocks) < K:
        candidate = small_matrix(rng, BETA, BETA)
        if len(reduced(candidate)[1]) == BETA:
            blocks += candidate
    generator = [[Fraction(z + 1) ** power for z in range(T)] for power in range(BETA)]
    return blocks, generator


def placed(error: Matrix, positions: list[int]) -> Matrix:
    wide = [[Fraction(0)] * N for _ in error]
    for source, target in zip(error, wide, strict=True):
        for value, position in zip(source, positions, strict=True):
            target[position] = value
    return wide


def peels(H: Matrix, erased: set[int]) -> bool:
    """Whether a check that misses one symbol can always be found, so that the vectors serve every decoder."""
    while erased:
        missing = [[z for z in erased if row[z] != 0] for row in H]
        found = next((symbols for symbols in missing if len(symbols) == 1), None)
        if found is None:
            return False
        erased = erased - set(found)
    return True


def decoded(words: Matrix, H: Matrix, G: Matrix, erased: list[int]) -> Matrix:
    kept = [z for z in range(N) if z not in erased]
    syndromes = [[-sum((row[z] * word[z] for z in kept), Fraction(0)) for word in words] for row in H]
    values = solved([[row[z] for z in erased] for row in H], syndromes)
    restored = [list(word) for word in words]
    for position, row in zip(erased, values, strict=True):
        for word, value in zip(restored, row, strict=True):
            word[position] = value
    return transposed(solved(transposed(G), transposed(restored)))


def main() -> None:
    rng = random.Random(20)
    H = parity_checks(rng)
    basis, information = null_space(H)
    G = product(orthogonal(rng, K), basis)
    parity = [z for z in range(N) if z not in information]
    erasures: list[int] = []
    while not erasures or not peels(H, set(erasures)):
        erasures = sorted(rng.sample(information, T_TOT // 2) + rng.sample(parity, T_TOT // 2))
    A = [small_matrix(rng, K, K) for _ in SUPPORTS]
    theta_T = small_matrix(rng, 2, K)
    factors = [error_factors(rng) for _ in SUPPORTS]
    positions = [[erasures[i] for i in support] for support in SUPPORTS]
    errors = [product(*factor) for factor in factors]
    C = [total(product(a, G), placed(e, z)) for a, e, z in zip(A, errors, positions, strict=True)]
    reply = product(theta_T, total(*C))
    for words, message in [(C[0], A[0]), (C[1], A[1]), (reply, product(theta_T, total(*A)))]:
        if decoded(words, H, G, erasures) != message:
            raise SystemExit("exact decoding does not return the message")
    vectors = {
        "n": N, "k": K, "degree": DEGREE, "t_tot": T_TOT, "t": T, "beta": BETA,
        "erasures": erasures, "supports": SUPPORTS, "information": information,
        "H": H, "G": G, "A": A, "theta_T": theta_T,
        "blocks": [factor[0] for factor in factors], "generators": [factor[1] for factor in factors],
        "errors": errors, "C": C, "reply": reply, "decrypted_reply": product(theta_T, total(*A)),
    }  # fmt: skip
    path = Path(__file__).with_name("cipher_small.json")
    path.write_text(json.dumps(vectors, default=str, indent=1) + "\n")


if __name__ == "__main__":
    main()
