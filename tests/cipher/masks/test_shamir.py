"""Secret sharing: any t shares give the secret, t - 1 fit every secret exactly once, and misuse is refused in words."""

import re
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shape_checker
from codedfl.cipher.masks import shamir
from codedfl.cipher.masks.shamir import SecretSharing
from codedfl.errors import CipherError
from tiny import is_one_sentence

P = 2**31 - 1
secret_bytes = st.one_of(st.binary(min_size=32, max_size=32), st.sampled_from([bytes(32), b"\xff" * 32]))
fleets = st.integers(1, 12).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n)))


@given(fleets, st.lists(secret_bytes, min_size=1, max_size=3), st.data())
@settings(max_examples=60)
def test_any_t_shares_give_the_secrets(sizes: tuple[int, int], given_secrets: list[bytes], data: st.DataObject) -> None:
    """In any order, and with shares beyond the threshold beside them."""
    t, n = sizes
    numbers = data.draw(st.lists(st.integers(1, P - 1), min_size=n, max_size=n, unique=True))
    shares = SecretSharing(t).split(given_secrets, numbers)
    assert shares.shape == (n, len(given_secrets), 9)
    assert shares.max() < P
    chosen = data.draw(st.permutations(range(n)))[: data.draw(st.integers(t, n))]
    found = SecretSharing(t).join([numbers[place] for place in chosen], shares[chosen])
    assert found == given_secrets


@given(st.integers(1, 6), st.lists(secret_bytes, min_size=1, max_size=4), st.data())
@settings(max_examples=40)
def test_secrets_with_shares_of_different_numbers_join_as_each_alone(
    t: int, given_secrets: list[bytes], data: st.DataObject
) -> None:
    distinct = st.lists(st.integers(1, P - 1), min_size=t, max_size=t, unique=True)
    numbers = [data.draw(distinct) for _ in given_secrets]
    sharing = SecretSharing(t)
    pairs = zip(given_secrets, numbers, strict=True)
    shares = np.stack([sharing.split([secret], each)[:, 0] for secret, each in pairs])
    assert sharing.join_each(np.array(numbers), shares) == given_secrets


def shares_of(values: list[list[int]]) -> np.ndarray:
    """Shares of secrets, of which only the lowest limb differs from zero."""
    found = np.zeros((len(values), len(values[0]), 9), np.uint32)
    found[:, :, 0] = values
    return found


def test_lines_are_read_off_at_zero() -> None:
    """9 + 5 x at 1 and 2, 7 - 3 x at 1 and p - 1 = -1, and 8 everywhere."""
    numbers, values = [[1, 2], [1, P - 1], [3, 77]], [[14, 19], [4, 10], [8, 8]]
    expected = [number.to_bytes(32, "little") for number in (9, 7, 8)]
    assert SecretSharing(2).join_each(np.array(numbers), shares_of(values)) == expected
    for each, share, secret in zip(numbers, values, expected, strict=True):
        assert SecretSharing(2).join(each, shares_of([share]).transpose(1, 0, 2)) == [secret]


def test_a_parabola_is_read_off_at_zero() -> None:
    """6 + x + x^2 at 1, 2 and 4 is 8, 12 and 26; with a threshold of 3, a fourth share is not looked at."""
    numbers, values = [1, 2, 4, 9], [8, 12, 26, 999]
    assert SecretSharing(3).join(numbers, shares_of([values]).transpose(1, 0, 2)) == [(6).to_bytes(32, "little")]
    assert SecretSharing(3).join_each(np.array([[4, 1, 2]]), shares_of([[26, 8, 12]])) == [(6).to_bytes(32, "little")]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5])
def test_many_secrets_are_joined_in_blocks(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shamir, "_BLOCK", 2)
    found = SecretSharing(1).join_each(np.ones((count, 1), np.int64), shares_of([[k] for k in range(5)])[:count])
    assert found == [k.to_bytes(32, "little") for k in range(count)]


def test_words_that_are_no_residues_are_refused() -> None:
    wrong = shares_of([[P, 1]])
    with pytest.raises(CipherError, match="1 of 18 numbers that were sent are no residues"):
        SecretSharing(2).join_each(np.array([[1, 2]]), wrong)
    with pytest.raises(CipherError, match="1 of 18 numbers that were sent are no residues"):
        SecretSharing(2).join([1, 2], wrong.transpose(1, 0, 2))


@pytest.mark.parametrize("shape", [(2, 3), (1, 2), (3, 2)])
def test_shares_of_many_secrets_have_the_shape_of_their_numbers(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape_checker, "CALLS", 0)  # which would refuse them before the product does
    with pytest.raises(CipherError, match="do not fit a threshold of 2"):
        SecretSharing(2).join_each(np.array([[1, 2], [3, 4]]), np.zeros((*shape, 9), np.uint32))


def test_one_share_of_a_threshold_of_one_is_the_secret() -> None:
    secret = bytes(range(32))
    shares = SecretSharing(1).split([secret], [1, P - 1])
    assert np.array_equal(shares[0], shares[1])
    assert SecretSharing(1).join_each(np.array([[5]]), shares[:1]) == [secret]


@pytest.mark.parametrize(
    "numbers",
    [[[1, 1]], [[0, 1]], [[1, 2, 3]], [[1, -1]], [[1, 2], [3, 3]]],
    ids=["twice", "zero", "too many", "negative", "twice in the second"],
)
def test_numbers_of_many_secrets_that_are_none(numbers: list[list[int]]) -> None:
    shares = np.zeros((len(numbers), len(numbers[0]), 9), np.uint32)
    with pytest.raises(CipherError) as raised:
        SecretSharing(2).join_each(np.array(numbers), shares)
    assert is_one_sentence(str(raised.value))


def test_every_subset_of_t_shares_of_a_small_sharing() -> None:
    secret = bytes(range(100, 132))
    shares = SecretSharing(3).split([secret], range(1, 7))
    for chosen in combinations(range(6), 3):
        assert SecretSharing(3).join([place + 1 for place in chosen], shares[list(chosen)]) == [secret]


def solved(matrix: list[list[int]], right: list[int]) -> list[int] | None:
    """Gauss's elimination in whole numbers modulo p; None if the matrix has no inverse."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for column in range(len(rows)):
        pivot = next((row for row in rows[column:] if row[column] % P), None)
        if pivot is None:
            return None
        rows.remove(pivot)
        factor = pow(pivot[column], -1, P)
        rows.insert(column, [entry * factor % P for entry in pivot])
        for place, row in enumerate(rows):
            if place != column:
                rows[place] = [(entry - row[column] * own) % P for entry, own in zip(row, rows[column], strict=True)]
    return [row[-1] for row in rows]


@given(st.integers(1, 5), secret_bytes, secret_bytes, st.data())
@settings(max_examples=40)
def test_t_minus_1_shares_fit_every_secret_exactly_once(
    t: int, secret: bytes, other: bytes, data: st.DataObject
) -> None:
    """Coefficients are uniform, so one solution for each secret makes every secret as likely as it was before.

    The t - 1 equations for the t - 1 unknown coefficients have one solution whatever the secret: the polynomial with
    that solution and the other secret has the very same shares.
    """
    numbers = data.draw(st.lists(st.integers(1, P - 1), min_size=t, max_size=t, unique=True))
    shares = SecretSharing(t).split([secret], numbers)[: t - 1, 0]
    limbs = shamir._limbs(other)
    powers = [[pow(x, j, P) for j in range(1, t)] for x in numbers[: t - 1]]
    drawn = []
    for limb in range(9):
        right = [(int(share[limb]) - int(limbs[limb])) % P for share in shares]
        solution = solved(powers, right)
        assert solution is not None, "no secret is told apart by its number of solutions"
        drawn.append(solution)
    coefficients = np.array([limbs, *np.array(drawn, np.uint32).reshape(9, t - 1).T], np.uint32)
    again = shamir.values_at(numbers[: t - 1], coefficients) if t > 1 else shares
    assert np.array_equal(again, shares)


def test_values_are_those_of_the_polynomial() -> None:
    """Against Horner's rule in whole numbers."""
    rng = np.random.default_rng(0)
    coefficients = rng.integers(0, P, (5, 4), dtype=np.uint32)
    numbers = [1, 2, 77, P - 1]
    expected = np.zeros((4, 4), np.uint32)
    for (row, x), column in product(enumerate(numbers), range(4)):
        value = 0
        for coefficient in coefficients[::-1, column]:
            value = (value * x + int(coefficient)) % P
        expected[row, column] = value
    assert np.array_equal(shamir.values_at(numbers, coefficients), expected)


def test_coefficients_are_fresh_and_from_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same secret never has the same shares twice; a word that is no residue is drawn again."""
    secret = bytes(32)
    one, other = (SecretSharing(2).split([secret], [1, 2]) for _ in range(2))
    assert not np.array_equal(one, other)
    words = iter([np.array([5, P, 2**31 + 7, 2**32 - 1], "<u4"), np.array([9, P], "<u4"), np.array([3], "<u4")])
    monkeypatch.setattr(shamir.system, "token_bytes", lambda count: next(words).tobytes())
    assert shamir.uniform_residues(4).tolist() == [5, 9, 7, 3]


def test_a_large_fleet_shares_and_joins() -> None:
    """120 devices, threshold 80, two secrets each."""
    sharing, numbers = SecretSharing(80), range(1, 121)
    given_secrets = [bytes([k]) * 32 for k in range(2)]
    shares = sharing.split(given_secrets, numbers)
    assert sharing.join(range(41, 121), shares[40:]) == given_secrets


def limbs_of(limbs: dict[int, int]) -> np.ndarray:
    """The share of one secret whose limbs are these and else zero, where one share is enough."""
    share = np.zeros((1, 1, 9), np.uint32)
    for place, limb in limbs.items():
        share[0, 0, place] = limb
    return share


def test_limbs_are_30_bits_and_the_last_one_16() -> None:
    """256 = 8 * 30 + 16."""
    assert shamir._limbs(b"\xff" * 32).tolist() == [2**30 - 1] * 8 + [2**16 - 1]
    for place, top in ((0, 30), (3, 30), (8, 16)):
        expected = ((2**top - 1) << 30 * place).to_bytes(32, "little")
        assert SecretSharing(1).join([1], limbs_of({place: 2**top - 1})) == [expected]


REFUSED = {
    "too few": lambda: SecretSharing(3).join([1, 2], np.zeros((2, 1, 9), np.uint32)),
    "twice": lambda: SecretSharing(2).join([4, 4], np.zeros((2, 1, 9), np.uint32)),
    "twice in the making": lambda: SecretSharing(2).split([bytes(32)], [1, 2, 1]),
    "number zero": lambda: SecretSharing(1).split([bytes(32)], [0, 1]),
    "too few made": lambda: SecretSharing(3).split([bytes(32)], [1, 2]),
    "no threshold": lambda: SecretSharing(0),
    "short secret": lambda: SecretSharing(1).split([bytes(31)], [1]),
    "numbers missing": lambda: SecretSharing(1).join([1, 2], np.zeros((1, 1, 9), np.uint32)),
    "not one sharing": lambda: SecretSharing(1).join([1], np.full((1, 1, 9), P - 1, np.uint32)),
    "one limb too large": lambda: SecretSharing(1).join([1], limbs_of({0: 2**30})),
    "one bit too many": lambda: SecretSharing(1).join([1], limbs_of({8: 2**16})),
    "number p": lambda: SecretSharing(1).split([bytes(32)], [P]),
    "beyond the last bit": lambda: SecretSharing(1).join([1], np.full((1, 1, 9), 2**29, np.uint32)),
}
WORDS = {"too few": "2 shares say nothing of a secret that takes 3", "twice": "hold a number twice"}


@pytest.mark.parametrize(("count", "shown"), [(8, "0, 1, 2, 3, 4, 5, 6, 7"), (9, "0, 1, 2, 3, 4, 5, 6, 7, ...")])
def test_of_many_numbers_the_first_eight_are_named(count: int, shown: str) -> None:
    with pytest.raises(CipherError, match=f"^Shares numbered {re.escape(shown)} are not those"):
        SecretSharing(2).split([bytes(32)], range(count))


@pytest.mark.parametrize("case", REFUSED)
def test_misuse_is_refused_in_one_sentence(case: str) -> None:
    with pytest.raises(CipherError) as error:
        REFUSED[case]()
    assert is_one_sentence(str(error.value))
    assert WORDS.get(case, "") in str(error.value)
