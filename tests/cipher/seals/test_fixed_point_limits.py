"""Fixed point at its limits: the last bit that fits, the first that does not, and the last number of a band."""

import math
from fractions import Fraction

import numpy as np
import pytest

from codedfl.cipher.seals import FIELD_31, FIELD_48, RINGS, Z_32, FixedPoint, Ring
from codedfl.errors import CipherError

ROOM = 2013265919
"""15/16 of 2^31 - 1: what products may reach in Z_2^32."""
every_ring = pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS.keys())


class TestChoice:
    @pytest.mark.parametrize("shift", [-40, -1, 0, 1, 40])
    def test_data_and_model_have_as_many_steps_by_default(self, shift: int) -> None:
        """sqrt(ROOM / (2000 * 25)) = 200.7 steps times 2000 rows leave 5016 for the sum: 60 * 2^6 + 25, not 2^7.

        A unit that is twice as large takes a bit less.
        """
        found = FixedPoint.choose(Z_32, entry_bound=math.ldexp(2.4, shift), summands=25, dimension=2000)
        assert found.data_bits == 6 - shift
        assert found.sum_limit == 60 * 64 + 25
        assert found.model_budget == ROOM // (60 * 64 + 25)
        assert found.data_step == 2.0 ** (shift - 6)

    def test_a_smaller_bound_on_the_sum_leaves_more_bits(self) -> None:
        """sqrt(ROOM / (2000 * 3 / 2.4)) = 897.4 steps leave 1121: 3 * 2^8 + 25."""
        found = FixedPoint.choose(Z_32, entry_bound=2.4, summands=25, dimension=2000, sum_bound=3.0)
        assert (found.data_bits, found.sum_bound, found.summands, found.entry_bound) == (8, 3.0, 25, 2.4)

    def test_one_step_for_an_entry_is_the_least(self) -> None:
        """Of data: a sum of two steps (one entry, rounded up) times half the room. Of a model: one on average."""
        sizes = {"entry_bound": 1.0, "summands": 1, "dimension": 1}
        assert FixedPoint.choose(Z_32, **sizes, model_steps=ROOM // 2).data_bits == 0
        assert FixedPoint.choose(Z_32, **sizes, model_steps=ROOM // 3 + 1).data_bits == 0
        assert FixedPoint.choose(Z_32, **sizes, model_steps=ROOM // 3).data_bits == 1
        with pytest.raises(CipherError, match="is too small for the sum of 1 matrices with 1 rows"):
            FixedPoint.choose(Z_32, **sizes, model_steps=ROOM // 2 + 1)
        assert FixedPoint.choose(Z_32, **sizes, model_steps=1).data_bits == 30
        for steps in (0.999, math.nan):
            with pytest.raises(CipherError, match="has no room for 1 rows summed over 1 devices"):
                FixedPoint.choose(Z_32, **sizes, model_steps=steps)

    def test_the_bound_of_a_sum_is_never_below_the_sum_of_bounds(self) -> None:
        """Where double precision rounds the product up it is taken, and where it rounds down the next number above."""
        assert FixedPoint.choose(Z_32, entry_bound=0.1, summands=3, dimension=1).sum_bound == 3 * 0.1
        below = next(summands for summands in range(2, 99) if Fraction(0.7) * summands > Fraction(0.7 * summands))
        found = FixedPoint.choose(Z_32, entry_bound=0.7, summands=below, dimension=1)
        assert found.sum_bound == math.nextafter(0.7 * below, math.inf)


class TestFormat:
    def test_the_budget_of_a_model_is_one_step_at_least(self) -> None:
        """2^30 + 1 steps of data leave one for a model, 2^31 + 1 none."""
        assert FixedPoint(Z_32, 30, entry_bound=1.0, summands=1, sum_bound=1.0).model_budget == 1
        with pytest.raises(CipherError, match=r"too small for entries up to 1 in steps of 2\^-31"):
            FixedPoint(Z_32, 31, entry_bound=1.0, summands=1, sum_bound=1.0)

    def test_an_entry_has_one_step_at_least(self) -> None:
        assert FixedPoint(Z_32, -3, entry_bound=8.0, summands=1, sum_bound=8.0).sum_limit == 2
        with pytest.raises(CipherError, match="too small for entries"):
            FixedPoint(Z_32, -4, entry_bound=8.0, summands=1, sum_bound=8.0)

    @pytest.mark.parametrize(
        "wrong",
        [
            *({name: value} for name in ("entry_bound", "sum_bound") for value in (0.0, -1.0, math.inf, math.nan)),
            {"summands": 0},
        ],
        ids=str,
    )
    def test_bounds_are_positive_and_finite(self, wrong: dict[str, float]) -> None:
        sizes = {"entry_bound": 0.5, "summands": 1, "sum_bound": 0.5}
        assert FixedPoint(Z_32, 4, **sizes).sum_limit == 9
        with pytest.raises(CipherError, match="are not positive numbers"):
            FixedPoint(Z_32, 4, **sizes | wrong)


class TestModels:
    NUMBERS = FixedPoint(Z_32, 10, entry_bound=1.0, summands=3, sum_bound=3.0)
    BUDGET = ROOM // (3 * 1024 + 3)

    @pytest.mark.parametrize(("over", "bits"), [(0, 0), (0.4, 0), (1, -1), (-1, 0), (0.5 * BUDGET, -1)])
    def test_the_budget_may_be_spent_to_the_last_step(self, over: float, bits: int) -> None:
        """Spread over two entries; what rounds down to the budget fits, and a step more takes a bit."""
        total = self.BUDGET + over
        for theta in ([[total]], [[1.0], [1 - total]]):
            model = self.NUMBERS.encode_model(np.array(theta, np.float64))
            assert model.bits.tolist() == [bits]
            steps = sum(abs(round(math.ldexp(row[0], bits))) for row in theta)
            assert model.limits.tolist() == [steps * (3 * 1024 + 3)]

    def test_classes_have_bits_of_their_own(self) -> None:
        model = self.NUMBERS.encode_model(np.array([[self.BUDGET, 1.0, 0.0], [0.0, 2.0, 0.0]]))
        power = math.floor(math.log2(self.BUDGET / 3))
        assert model.bits.tolist() == [0, power, 900]
        assert model.value.tolist() == [[self.BUDGET, 1.0, 0.0], [0.0, 2.0, 0.0]]
        assert model.residues.tolist() == [[self.BUDGET, 0], [2**power, 2 * 2**power], [0, 0]]

    @pytest.mark.parametrize(("longest", "bits"), [(5.0, 0), (4.999, -1), (80.0, 4), (79.9, 3), (2.0, -2)])
    def test_a_class_is_as_long_as_told(self, longest: float, bits: int) -> None:
        """The vector (3, -4) has the length 5."""
        model = self.NUMBERS.encode_model(np.array([[3.0, 1.0], [-4.0, 0.0]]), longest=longest)
        assert model.bits[0] == bits
        assert model.bits[1] == math.floor(math.log2(longest))

    def test_steps_of_tiny_models_stay_normal_numbers(self) -> None:
        """2^-890 in steps of 2^-900, which is the least step; halves are rounded to even."""
        model = self.NUMBERS.encode_model(np.array([[2.0**-890, 2.0**-901], [0.0, 3 * 2.0**-901]]))
        assert model.bits.tolist() == [900, 900]
        assert model.residues.tolist() == [[1024, 0], [0, 2]]

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_one_entry_that_is_no_number_is_refused(self, value: float) -> None:
        with pytest.raises(CipherError, match="The model holds NaN or infinity"):
            self.NUMBERS.encode_model(np.array([[1.0], [value]]))


@every_ring
def test_bands_end_at_their_last_number(ring: Ring) -> None:
    """A sum of two devices and a product with a model of two classes, whose limits differ."""
    numbers = FixedPoint(ring, 3, entry_bound=2.0, summands=2, sum_bound=4.0)
    assert numbers.sum_limit == 4 * 8 + 2
    for sign in (1, -1):
        assert numbers.decode_sum(ring.residues(np.array([sign * 34]))).tolist() == [sign * 34 / 8]
        with pytest.raises(CipherError, match=r"^1 of 2 decoded numbers"):
            numbers.decode_sum(ring.residues(np.array([sign * 35, 0])))
    model = numbers.encode_model(np.array([[1.0, 3.0]]))
    limits = model.limits[:, None] * np.array([1, -1])
    found = numbers.decode_product(ring.residues(limits), model)
    assert np.array_equal(found, np.ldexp(limits.astype(float), -(model.bits + 3)[:, None]))
    for place in ((0, 0), (0, 1), (1, 0), (1, 1)):
        beyond = limits.copy()
        beyond[place] += np.sign(beyond[place])
        with pytest.raises(CipherError, match=r"^1 of 4 decoded numbers"):
            numbers.decode_product(ring.residues(beyond), model)


@pytest.mark.parametrize("ring", [Z_32, FIELD_31, FIELD_48], ids=str)
def test_data_may_reach_its_bound(ring: Ring) -> None:
    numbers = FixedPoint(ring, 3, entry_bound=1.25, summands=1, sum_bound=1.25)
    A = np.array([[1.25, -1.25], [-1.25, 0.0625]])  # half a step rounds to even
    steps = [10, ring.modulus - 10, 0]
    assert numbers.encode_symmetric(A).tolist() == steps
    assert numbers.encode(A).ravel().tolist() == [10, ring.modulus - 10, ring.modulus - 10, 0]
    assert numbers.encode(A, bound=1.25).ravel().tolist() == numbers.encode(A).ravel().tolist()
    for bound in (1.2499, math.nextafter(1.25, 2)):
        with pytest.raises(CipherError, match=r"beyond the agreed bound 1\.2"):
            numbers.encode(A, bound=bound)
    for beyond in (math.nextafter(1.25, 2), -math.nextafter(1.25, 2)):
        for attempt in (numbers.encode, numbers.encode_symmetric):
            with pytest.raises(CipherError, match=r"beyond the agreed bound 1\.25"):
                attempt(np.array([[0.0, beyond], [beyond, 0.0]]))
