"""Which runs may add noise, what follows from it for all parties, and a device's noisy data."""

import math
from typing import Any, ClassVar

import numpy as np
import pytest

from codedfl import schemes
from codedfl.errors import ScenarioError
from codedfl.privacy.descent import GradientRelease
from codedfl.privacy.noise import spare_seed
from codedfl.privacy.release import Release
from codedfl.scenario import Scenario
from codedfl.schemes import Work
from codedfl.schemes.plain.row_gradients import BELOW
from codedfl.schemes.private import (
    NoisyShard,
    clipped,
    device_seed,
    noise_key,
    noiseless_shard,
    noisy_shard,
    noisy_shards,
    once_only,
    privacy_entries,
    release_of,
    shortened_rows,
    stated_secrecy,
    with_release,
)
from codedfl.task import Shard
from tiny import is_one_sentence, scenario

BASE = {"privacy.epsilon": 1.0, "scheme": "secagg", "data.held_out": 0.0}
ONCE = {"scheme": "one-shot", "training.solver": "closed-form"}
RANGED = {
    "data.source": "rows.csv",
    "data.target": "y",
    "features.kind": "none",
    "privacy.columns": [{"name": "*", "low": 0.0, "high": 1.0}],
}
ASKED: dict[str, Any] = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "clip_features": 2.0,
    "features": 3,
    "outputs": 2,
    "devices": 3,
    "largest_rows": 5,
    "records": 12,
}
NOISE = Release.plan(**ASKED, clip_targets=3.0)
NOISY_GRADIENTS = GradientRelease.plan(**ASKED, clip_residuals=3.0, epochs=4)


def private(**changes: Any) -> Scenario:
    return scenario(BASE | {key.replace("__", "."): value for key, value in changes.items()})


def ranged(**changes: Any) -> Scenario:
    return scenario(BASE | RANGED | {key.replace("__", "."): value for key, value in changes.items()})


def refused(wanted: Scenario, *said: str) -> None:
    with pytest.raises(ScenarioError) as error:
        schemes.check(wanted)
    assert is_one_sentence(str(error.value))
    for words in said:
        assert words in str(error.value)


class TestWhatMayAddNoise:
    def test_without_noise_nothing_is_refused(self) -> None:
        schemes.check(scenario({"scheme": "conventional", "task.precision": "float32"}))

    @pytest.mark.parametrize("scheme", ["secagg", "one-shot", "sealed-coded"])
    def test_schemes_of_sums_may(self, scheme: str) -> None:
        solver = "closed-form" if scheme == "one-shot" else "gradient-descent"
        schemes.check(private(scheme=scheme, training__solver=solver))

    @pytest.mark.parametrize(
        ("release", "advice"),
        [("once", "choose one-shot, sealed-coded or secagg, or leave"), ("each-epoch", "choose secagg, or leave")],
    )
    def test_others_are_refused_with_the_schemes_that_fit(self, release: str, advice: str) -> None:
        refused(private(scheme="conventional", privacy__release=release), "by scheme = 'conventional'", advice)

    @pytest.mark.parametrize(("colluding", "losses"), [(25, 0), (0, 25), (20, 5)])
    def test_one_device_must_be_left_to_add_noise(self, colluding: int, losses: int) -> None:
        wanted = private(**ONCE, privacy__colluding=colluding, privacy__losses=losses)
        refused(wanted, f"{colluding} and privacy.losses = {losses} leave none of the 25 devices")

    @pytest.mark.parametrize(("colluding", "losses"), [(24, 0), (20, 4)])
    def test_one_is_enough(self, colluding: int, losses: int) -> None:
        schemes.check(private(**ONCE, privacy__colluding=colluding, privacy__losses=losses))

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"task__precision": "float32"}, 'task.precision = "float32"; leave'),
            (
                {"task__ridge": [1e-3, 1e-2], "training__solver": "conjugate-gradients"},
                "task.ridge with several weights; give one",
            ),
            ({"data__held_out": 0.25}, "data.held_out; set 0"),
            ({"training__start": "model.npz"}, "training.start; leave it out"),
            ({"features__missing": "mean"}, 'features.missing = "mean"; remove'),
        ],
        ids=str,
    )
    def test_what_would_be_released_without_noise_is_refused(self, changes: dict[str, Any], said: str) -> None:
        refused(private(**changes), f"privacy.epsilon does not go with {said}")

    def test_one_weight_in_a_list_is_one(self) -> None:
        schemes.check(private(task__ridge=[1e-3]))

    @pytest.mark.parametrize(("release", "fits"), [("once", True), ("each-epoch", False)])
    def test_noise_in_each_epoch_is_not_for_sums_that_are_made_once(self, release: str, fits: bool) -> None:
        assert (once_only(private(privacy__release=release).privacy) is None) is fits


class TestColumns:
    def test_ranges_prepare_columns_without_sums(self) -> None:
        schemes.check(ranged())
        schemes.check(ranged(features__intercept=False))
        schemes.check(ranged(features__kind="rbf"))

    @pytest.mark.parametrize("changes", [{"features__scale": "standard"}, {"features__intercept": True}])
    def test_named_data_are_used_as_they_are(self, changes: dict[str, Any]) -> None:
        refused(private(**changes), "because sums of columns are released without noise; leave both out")

    def test_others_are_scaled_by_ranges_only(self) -> None:
        wanted = ranged(features__scale="standard")
        refused(wanted, "features.scale = 'standard'", "leave features.scale out and declare ranges")

    def test_ranges_of_columns_that_are_used_as_they_are_say_nothing(self) -> None:
        said = "privacy.columns give a range of '*', but columns are used as they are"
        refused(private(privacy__columns=RANGED["privacy.columns"]), said)
        refused(ranged(features__scale="none", features__intercept=False), said)
        wanted = scenario(BASE | {"data.source": "rows.csv", "data.target": "y", "features.scale": "none"})
        schemes.check(wanted.with_settings({"features.intercept": False, "features.kind": "none"}))

    def test_rows_of_scaled_columns_are_not_clipped(self) -> None:
        schemes.check(private(privacy__clip_features=2.0, privacy__clip_targets=0.5))
        refused(ranged(privacy__clip_features=2.0), "privacy.clip_features = 2 does not go with privacy.columns")
        refused(ranged(privacy__clip_targets=0.5), "privacy.clip_targets = 0.5 does not go with privacy.columns")
        refused(ranged(privacy__clip_targets=0.5, features__kind="rbf"), "privacy.clip_targets = 0.5 does not")

    @pytest.mark.parametrize(
        ("clip", "intercept", "fits"),
        [
            (1.0, False, True),
            (0.5, False, True),
            (math.sqrt(2), True, True),
            (1.41, True, False),
            (1.0, True, False),
        ],
    )
    def test_random_features_and_a_constant_have_a_norm_of_the_root_of_two(
        self, clip: float, intercept: bool, fits: bool
    ) -> None:
        wanted = ranged(features__kind="rbf", features__intercept=intercept, privacy__clip_features=clip)
        if fits:
            schemes.check(wanted)
        else:
            refused(wanted, f"privacy.clip_features = {clip:g} is too small", "set it to 1.5")


class TestPlans:
    """All that is public about the devices goes into the plan of the noise."""

    given: ClassVar[dict[str, Any]] = {
        "privacy.epsilon": 2.0,
        "privacy.delta": 1e-6,
        "privacy.clip_features": 0.5,
        "privacy.colluding": 1,
        "privacy.losses": 1,
        "privacy.seed": 7,
        "privacy.unit": "device",
        "privacy.most_rows": 3,
        "training.epochs": 9,
    }
    asked: ClassVar[dict[str, Any]] = {
        "epsilon": 2.0,
        "delta": 1e-6,
        "clip_features": 0.5,
        "colluding": 1,
        "losses": 1,
        "known_seed": True,
        "unit": "device",
        "most_rows": 3,
        "features": 6,
        "outputs": 2,
        "devices": 3,
        "largest_rows": 9,
        "records": 20,
    }

    def test_once_or_in_each_epoch(self) -> None:
        once = scenario({**self.given, "privacy.clip_targets": 0.25})
        each = scenario({**self.given, "privacy.release": "each-epoch", "privacy.clip_residuals": 4.0})
        assert release_of(once, (4, 9, 7), 6, 2) == Release.plan(**self.asked, clip_targets=0.25)
        expected = GradientRelease.plan(**self.asked, clip_residuals=4.0, epochs=9, loss="squared")
        assert release_of(each, (4, 9, 7), 6, 2) == expected
        assert release_of(scenario(), (4, 9, 7), 6, 2) is None

    def test_noise_of_the_operating_system_has_no_known_seed(self) -> None:
        found = release_of(private(), (4, 9, 7), 6, 2)
        assert found is not None
        assert not found.known_seed

    def test_what_files_say_of_it(self) -> None:
        assert privacy_entries(None) == {"epsilon": None, "delta": None, "privacy": None}
        told = {"epsilon": NOISE.epsilon, "delta": 1e-5, "privacy": NOISE.to_table()}
        assert privacy_entries(NOISE) == told

    def test_a_scheme_without_data_gets_the_noise_of_its_scenario(self) -> None:
        wanted = private()
        plain = schemes.nominal(wanted)
        public = plain.public
        assert public.release is None
        noisy = with_release(wanted, plain)
        assert type(noisy) is type(plain)
        assert noisy.public.release == release_of(wanted, public.samples, public.features, public.outputs)
        with pytest.raises(ScenarioError, match="cannot be kept"):
            with_release(private(scheme="conventional"), plain := schemes.nominal(private(scheme="conventional")))


class TestVerdicts:
    """What sums tell is bounded for those who know less noise than was planned for, and told to all others."""

    @staticmethod
    def cells(**privacy: Any) -> tuple[Release, dict[tuple[str, str], Any]]:
        wanted = scenario({"scheme": "secagg", **{f"privacy.{key}": value for key, value in privacy.items()}})
        scheme = schemes.nominal(wanted)
        found = with_release(wanted, scheme) if "epsilon" in privacy else scheme
        release: Any = found.public.release
        return release, {(cell.adversary, cell.asset): cell for cell in stated_secrecy(found)}

    def test_without_noise_they_are_those_of_the_scheme(self) -> None:
        _, found = self.cells()
        plain = schemes.nominal(scenario({"scheme": "secagg"})).secrecy()
        assert tuple(found.values()) == plain

    @pytest.mark.parametrize(
        ("colluding", "pooling", "all_others"), [(0, False, False), (23, True, False), (24, True, True)]
    )
    def test_those_who_pool_more_than_was_planned_for_are_not_bounded(
        self, colluding: int, pooling: bool, all_others: bool
    ) -> None:
        release, found = self.cells(epsilon=1.0, colluding=colluding)
        union = "membership in the union"
        for adversary, pooled, bounded in (
            ("server", 0, True),
            ("model reader", 0, True),
            ("device", 1, True),
            ("deviating device", 1, True),
            ("devices", 24, all_others),
        ):
            cell = found[adversary, union]
            assert cell.verdict == ("bounded" if bounded else "leaks")
            assert release.promise(pooled) in cell.reason
            assert ("they know their own noise" in cell.reason) is not bounded
        cell = found["server and devices", union]
        assert cell.verdict == ("bounded" if pooling else "leaks")
        assert (f"with at most {colluding} devices; with noise: {release.promise(colluding)}" in cell.reason) is pooling

    def test_of_three_devices_two_know_more_noise_than_one(self) -> None:
        wanted = scenario(BASE | {"fleet.devices": [{"count": 3, "mac_rate": 1e6}]})
        cells = stated_secrecy(with_release(wanted, schemes.nominal(wanted)))
        found = {cell.adversary: cell.verdict for cell in cells if cell.asset == "membership in the union"}
        assert (found["device"], found["devices"]) == ("bounded", "leaks")

    def test_noise_for_records_hides_no_whole_device(self) -> None:
        _, found = self.cells(epsilon=1.0, colluding=24)
        assert "not all of a device" in found["devices", "gram"].reason
        _, found = self.cells(epsilon=1.0, colluding=24, unit="device", most_rows=1)
        assert found["devices", "gram"].verdict == "bounded"


class TestShards:
    x = np.array([[1.0, 2.0, 2.0], [3.0, 0.0, 4.0]])
    y = np.array([[0.5, 0.0], [6.0, 8.0]])
    shard = Shard(x, y)

    def test_long_rows_are_clipped(self) -> None:
        """Norms of 3 and 5, clipped to 4; the result is in float64."""
        found = clipped(self.x.astype(np.float32), 4.0)
        assert found.dtype == np.float64
        assert found == pytest.approx(np.array([[1.0, 2.0, 2.0], [2.4, 0.0, 3.2]]), rel=1e-9)

    def test_each_device_draws_from_the_key_of_all(self) -> None:
        key = noise_key(private(privacy__seed=5).privacy)
        assert key == noise_key(private(privacy__seed=5).privacy)
        assert key != noise_key(private(privacy__seed=6).privacy)
        assert noise_key(private().privacy) != noise_key(private().privacy)
        found: list[Any] = noisy_shards([self.shard] * 3, NOISE, key)
        for device, each in enumerate(found):
            alone: Any = noisy_shard(self.shard, NOISE, device_seed(key, device))
            assert np.array_equal(each.gram, alone.gram)
            assert np.array_equal(each.moments, alone.moments)
            assert not np.array_equal(each.gram, found[device - 1].gram)

    def test_only_where_devices_may_be_lost_there_is_noise_for_them(self) -> None:
        seed = bytes(range(32))
        alone: Any = noisy_shard(self.shard, NOISE, seed)
        spare: Any = noisy_shard(self.shard, Release.plan(**ASKED, clip_targets=3.0, losses=1), seed)
        assert alone.spare is None
        assert spare.spare == spare_seed(seed)
        assert "spare" not in repr(spare)

    def test_a_hidden_device_counts_as_no_more_rows_than_it_has(self) -> None:
        """Two rows where five count: all of them. Noise of one seed cancels in the difference to zeros."""
        for most_rows, weight in ((5, 1.0), (1, 0.5)):
            release = Release.plan(**ASKED, clip_targets=3.0, unit="device", most_rows=most_rows)
            drawn: Any = noisy_shard(self.shard, release, bytes(32))
            zero: Any = noisy_shard(Shard(0 * self.x, 0 * self.y), release, bytes(32))
            x, y = clipped(self.x, 2.0), clipped(self.y, 3.0)
            step = 2.0**-release.gram_bits, 2.0**-release.moments_bits
            assert drawn.gram - zero.gram == pytest.approx(weight * x.T @ x, abs=step[0], rel=0)
            assert drawn.moments - zero.moments == pytest.approx(weight * x.T @ y, abs=step[1], rel=0)

    def test_costs_are_predicted_without_noise(self) -> None:
        assert noiseless_shard(self.shard, None) is self.shard
        found = noiseless_shard(self.shard, NOISE)
        assert isinstance(found, NoisyShard)
        assert found.gram is self.shard.gram, "matrices that are known are not computed again"
        assert found.moments is self.shard.moments
        assert (found.compact, found.samples) == (True, 2)
        noisy: Any = noiseless_shard(self.shard, NOISY_GRADIENTS)
        assert type(noisy) is type(noisy_shard(self.shard, NOISY_GRADIENTS, None))
        assert noisy.gradients.steps(1, np.zeros((3, 2)), Work()).shape == (3, 2)

    def test_shares_of_rows_that_are_scaled_to_less_than_half(self) -> None:
        """Clips of 2 and 3; a row of exactly twice the clip that rounding leaves is scaled to a half, not less."""
        x = np.array([[0.0, 1.0], [4 * BELOW, 0.0], [0.0, 4.1], [0.0, 9.0], [0.0, 0.0]])
        y = np.array([[6.5], [0.0], [1.0], [2.0], [6 * BELOW]])
        two = [Shard(x[:3], y[:3]), Shard(x[3:], y[3:])]
        assert shortened_rows(two, NOISE) == {"features": 0.4, "targets": 0.2}
        assert shortened_rows(two, NOISY_GRADIENTS) == {"features": 0.4}
