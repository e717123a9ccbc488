"""What devices publish and agree on, by hand: noise, first models, prepared columns, and claims that are refused."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.data.preparation import Preparation
from codedfl.errors import DataError
from codedfl.schemes import Facts
from codedfl.schemes.facts import refuse_claims
from codedfl.task import Shard
from codedfl.task.preparing import Prepared
from tiny import is_one_sentence, scenario

FLOAT = np.dtype("float64")
PLAIN = scenario({"features.kind": "none"})
MAPPED = scenario({"features.kind": "rbf"})
EIGHT = 0.5 * (1 + 2.0**-20)
"""No random Fourier feature of eight is above sqrt(2 / 8), up to rounding."""


def prepared(
    features: float | None = None, targets: float | None = None, shift: tuple[float, ...] | None = None
) -> Prepared:
    """Columns whose energies over all devices are known, and random features that are shifted."""
    one = np.ones(1)
    moved = None if shift is None else np.array(shift)
    return Prepared(Preparation(one, one, None, moved, None, one, one), features, targets)


class TestFirstModel:
    def test_adds_the_largest_features_times_the_largest_norm_of_an_output(self) -> None:
        """Columns of norms 3 + 1 and 2 + 0.5 (rows: 5 and 1.5), features up to 2: 1 + 2 * 4, a 2^-20 for rounding."""
        start = np.array([[3.0, -2.0], [-1.0, 0.5]])
        shard = Shard(np.array([[0.5, -1.5]]), np.zeros((1, 2)))
        found = schemes.describe(PLAIN, shard, start)
        assert (found.largest_feature, found.largest_target) == (2.0, 9 + 8 * 2.0**-20)
        assert schemes.describe(PLAIN, shard).largest_target == 1

    def test_targets_that_are_larger_are_said(self) -> None:
        found = schemes.describe(PLAIN, Shard(np.ones((1, 1)), np.full((1, 1), 5.0)), np.ones((1, 1)))
        assert found.largest_target == 8


def test_sizes_and_formats_are_published() -> None:
    found = schemes.describe(MAPPED, Shard(np.full((3, 8), 0.25, np.float32), np.zeros((3, 2), np.float32)))
    assert (found.samples, found.features, found.outputs, found.dtype) == (3, 8, 2, np.dtype("float32"))
    assert found.largest_feature == EIGHT


class TestNoise:
    """What devices publish before noise is added must not depend on their data."""

    shards = (Shard(np.full((2, 8), 0.1), np.zeros((2, 3))), Shard(np.full((2, 8), 90.0), np.full((2, 3), 70.0)))

    @pytest.mark.parametrize(
        ("changes", "bounds"),
        [
            ({"features.kind": "none"}, (3.0, 0.75)),
            ({"features.kind": "none", "privacy.clip_features": 0.25}, (0.25, 0.75)),
            ({"features.kind": "rbf"}, (EIGHT, 0.75)),
            ({"features.kind": "rbf", "privacy.clip_features": 0.25}, (0.25, 0.75)),
        ],
    )
    def test_clips_bound_rows_whatever_they_are(self, changes: dict[str, Any], bounds: tuple[float, float]) -> None:
        clips = {"privacy.epsilon": 1.0, "privacy.clip_features": 3.0, "privacy.clip_targets": 0.75}
        wanted = scenario({**clips, **changes})
        for shard in self.shards:
            found = schemes.describe(wanted, shard)
            assert (found.largest_feature, found.largest_target) == bounds

    @pytest.mark.parametrize(("intercept", "bound"), [(True, 1.5), (False, EIGHT)])
    def test_a_constant_beside_random_features_is_as_large_as_the_clip(self, intercept: bool, bound: float) -> None:
        """Columns with ranges: the constant 1 of the intercept is larger than random features."""
        wanted = scenario(
            {
                "data.source": "rows.csv",
                "data.target": "y",
                "features.kind": "rbf",
                "features.intercept": intercept,
                "privacy.epsilon": 1.0,
                "privacy.clip_features": 1.5,
                "privacy.columns": [{"name": "*", "low": 0.0, "high": 1.0}],
            }
        )
        assert wanted.ranged
        for shard in self.shards:
            assert schemes.describe(wanted, shard).largest_feature == bound


USUAL = Facts(5, 8, 2, FLOAT, 0.5, 1.0)


class TestAgreement:
    def test_everything_public_is_kept(self) -> None:
        wanted = scenario({"training.first_epoch_offline": False, "task.accuracy": 0.01, "task.bound_share": 7.0})
        facts = [USUAL, replace(USUAL, samples=9, largest_feature=0.25, largest_target=4.0)]
        found = schemes.agree(wanted, facts, prepared(3.0, 2.0), ["north", "south"])
        assert found.samples == (5, 9)
        assert (found.features, found.outputs, found.dtype) == (8, 2, FLOAT)
        assert (found.largest_feature, found.largest_target) == (0.5, 4.0)
        assert found.claims == ((0.5, 1.0), (0.25, 4.0))
        assert (found.first_offline, found.accuracy, found.bound_share) == (False, 0.01, 7.0)
        assert (found.names, found.release, found.loss) == (("north", "south"), None, "squared")
        assert (found.feature_energy, found.target_energy) == (3.0, 2.0)
        assert found.delays is not None
        bare = schemes.agree(wanted, facts)
        assert (bare.names, bare.feature_energy, bare.target_energy) == ((), None, None)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            (
                {"features": 7},
                "device 1 has 7 features and 2 outputs in float64, device 0 has 8 features and 2 outputs",
            ),
            ({"outputs": 3}, "device 1 has 8 features and 3 outputs in float64, device 0 has 8 features and 2"),
            ({"dtype": np.dtype("float32")}, "8 features and 2 outputs in float32, device 0 has 8 features and 2 outp"),
        ],
    )
    def test_devices_with_other_columns_are_refused(self, changes: dict[str, Any], said: str) -> None:
        with pytest.raises(DataError, match=said) as error:
            schemes.agree(PLAIN, [USUAL, replace(USUAL, **changes), replace(USUAL, features=1)])
        assert is_one_sentence(str(error.value))


def test_one_device_agrees_with_itself() -> None:
    assert schemes.agree(PLAIN, [USUAL]).claims == ((0.5, 1.0),)
    refuse_claims(MAPPED, [USUAL], ["north"], "regression")


class TestClaims:
    """A claim at the limit is allowed, one a little above is not; a device that claims less says nothing."""

    @staticmethod
    def check(limits: tuple[float, float], wanted: Any, kind: str, found: Prepared | None = None) -> None:
        names = ("north", "south")
        for place, what in enumerate(("features", "targets")):
            key = f"largest_{what[:-1]}"
            least = Facts(5, 8, 2, FLOAT, 0.0, 0.0)
            if math.isinf(limits[place]):
                refuse_claims(wanted, [least, replace(least, **{key: 1e300})], names, kind, found)
                continue
            refuse_claims(wanted, [least, replace(least, **{key: limits[place]})], names, kind, found)
            above = math.nextafter(limits[place], math.inf)
            with pytest.raises(DataError, match=f"south claims {what} up to") as error:
                refuse_claims(wanted, [least, replace(least, **{key: above})], names, kind, found)
            assert is_one_sentence(str(error.value))
            with pytest.raises(DataError, match=f"north claims {what} up to nan"):
                refuse_claims(wanted, [replace(least, **{key: math.nan}), least], names, kind, found)

    def test_targets_of_a_classification_and_random_features_have_limits(self) -> None:
        self.check((math.inf, 1.0), PLAIN, "classification")
        self.check((math.inf, math.inf), PLAIN, "regression")
        self.check((EIGHT, math.inf), MAPPED, "regression")

    def test_no_entry_is_larger_than_the_root_of_an_energy(self) -> None:
        """Roots of 36 and of 5, as powers of two; of 1/9 and of 0 it is 1, which may be said of small numbers."""
        self.check((8.0, 4.0), PLAIN, "regression", prepared(36.0, 5.0))
        self.check((4.0, 1.0), PLAIN, "regression", prepared(16.0, 1 / 9))
        self.check((1.0, 2.0), PLAIN, "regression", prepared(0.0, 4.0))
        self.check((math.inf, 4.0), PLAIN, "regression", prepared(None, 5.0))
        self.check((4.0, math.inf), PLAIN, "regression", prepared(5.0, None))
        self.check((4.0, 1.0), PLAIN, "classification", prepared(5.0, 5.0))
        self.check((EIGHT, 1.0), MAPPED, "classification", prepared(5.0, None))

    def test_shifted_random_features_are_larger_by_the_largest_shift(self) -> None:
        """0.5 and a shift of up to 0.75, as a power of two: 2; up to 0.25 (and 2^-20): 1."""
        self.check((2.0, math.inf), MAPPED, "regression", prepared(shift=(0.25, -0.75)))
        self.check((1.0, math.inf), MAPPED, "regression", prepared(shift=(0.25, -0.125)))
        self.check((math.inf, math.inf), PLAIN, "regression", prepared(shift=(0.25, -0.75)))

    def test_columns_with_ranges_are_limited_by_the_clip(self) -> None:
        ranged = scenario(
            {
                "data.source": "rows.csv",
                "data.target": "y",
                "features.kind": "rbf",
                "privacy.epsilon": 1.0,
                "privacy.clip_features": 1.5,
                "privacy.columns": [{"name": "*", "low": 0.0, "high": 1.0}],
            }
        )
        self.check((1.5, math.inf), ranged, "regression")
